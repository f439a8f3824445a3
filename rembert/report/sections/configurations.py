"""What the runs were told: what differs between them as a table, and all of it, to be opened."""

from collections.abc import Mapping, Sequence

from rembert.report.page import MISSING, Block, Cell, Details, Section, rows_table
from rembert.report.reading import Model, Source
from rembert.report.runs import Run
from rembert.report.sections.models import all_models


def section(sources: Sequence[Source]) -> Section:
  """Settings of the pre-trainings; of fine-tunings where there are none."""
  runs = [(model.name, run) for model in all_models(sources) if (run := _run_of(model)) is not None and run.settings]
  if not runs:
    return Section('Configuration', [])
  blocks: list[Block] = []
  settings = {name: run.settings for name, run in runs}
  different = differences(settings)
  if len(runs) > 1:
    if different:
      rows = [[name, *(_cell(value) for value in values)] for name, values in different.items()]
      blocks.append(rows_table('What differs', ['setting', *settings], rows))
    else:
      blocks.append('All were told the same.')
  for name, run in runs[:1] if len(runs) > 1 else runs:
    rows = [[key, _cell(value)] for key, value in sorted(run.settings.items()) if key not in different]
    title = f'All {len(rows)} settings of {name}' if len(runs) == 1 else f'{len(rows)} settings that they share'
    if rows:
      blocks.append(Details(title, rows_table(title, ['setting', 'value'], rows)))
  return Section('Configuration', blocks)


def differences(settings: Mapping[str, Mapping[str, str]]) -> dict[str, list[str | None]]:
  """Setting to its value in each run, of those that are not everywhere the same; None where it was not told."""
  names = sorted({name for of_run in settings.values() for name in of_run})
  by_name = {name: [of_run.get(name) for of_run in settings.values()] for name in names}
  return {name: values for name, values in by_name.items() if len(set(values)) > 1}


def _run_of(model: Model) -> Run | None:
  learned = [each.run for each in model.learned if each.run is not None]
  return next(iter([*model.runs, *learned]), None)


def _cell(value: str | None) -> str | Cell:
  return MISSING if value is None else Cell(value if len(value) <= 200 else f'{value[:199]}…', kind='text')
