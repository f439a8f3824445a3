"""Where the time went: restarts, compilation, steps that count; and how fast the steps were."""

import statistics
from collections.abc import Iterator, Sequence

from rembert.report.page import MISSING, Section, rows_table
from rembert.report.reading import Source
from rembert.report.runs import Run
from rembert.report.sections.models import all_models
from rembert.training.console import human_duration
from rembert.training.goodput import ACTIVITIES, account

# Fine-tunings of a sweep are many and alike: the pre-trainings say what is to be known.
_MOST = 40


def section(sources: Sequence[Source]) -> Section:
  """A line for each run."""
  runs = [run for run in _runs(sources) if run.sessions]
  rows = []
  for run in runs[:_MOST]:
    spent = account(list(run.sessions))
    speeds = [row['step_seconds'] for row in run.metrics if 'step_seconds' in row]
    tokens = [row['tokens_per_second'] for row in run.metrics if 'tokens_per_second' in row]
    parts = [spent.by_activity[name] for name in ACTIVITIES]
    rows.append(
      [
        run.name,
        human_duration(spent.total),
        *(human_duration(seconds) if seconds >= 0.5 else MISSING for seconds in (*parts, spent.restart, spent.lost)),
        f'{spent.starts}',
        f'{spent.productive_share:.1%}',
        f'{statistics.median(speeds):.3g} s' if speeds else MISSING,
        f'{statistics.median(tokens):,.0f}' if tokens else MISSING,
      ]
    )
  columns = ['run', 'all', *ACTIVITIES, 'between restarts', 'made again', 'starts', 'goodput', 'a step', 'tokens/s']
  notes = ['Goodput is the share of the time that went into steps which were kept. A step and tokens/s are medians.']
  if len(runs) > _MOST:
    notes.append(f'The first {_MOST} of {len(runs)} runs.')
  return Section('Time', [rows_table('Where the time went', columns, rows, notes)] if rows else [])


def _runs(sources: Sequence[Source]) -> Iterator[Run]:
  models = all_models(sources)
  for model in models:
    yield from model.runs
  for model in models:
    yield from (each.run for each in model.learned if each.run is not None)
