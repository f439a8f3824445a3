"""Models and their runs: progress, parameters, time, and settings."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from rembert import paper
from rembert.model.parameter_count import ParameterCounts, count_parameters
from rembert.plotting.style import label
from rembert.plotting.training import bar_parts, plot_parameters
from rembert.report.html import MISSING, Block, Picture, Section, Table, table_frame
from rembert.report.load import Model, Run
from rembert.report.scores import ALL_LANGUAGES, HELD_OUT, Results, of
from rembert.tracking.console import human_duration
from rembert.tracking.goodput import ACTIVITIES, account

# The paper's ablation models (A.2), those of all its tables but 7, 13, 14 and 16.
_PAPER_WIDTH, _PAPER_LAYERS = 768, 12
# Of a sweep's many fine-tuning runs, which are alike, the first will do.
_MOST_TIMED = 40


# --- what there is ----------------------------------------------------------------------------------------------------


def overview(results: Results) -> Section:
  """A row per model: how much of the plan is done, and the last evaluation."""
  if not results.models:
    return Section('Models', [])
  held_out = of(results.scores, task=HELD_OUT, language=ALL_LANGUAGES)
  means = held_out.groupby(['model', 'metric'])['value'].mean()
  rows = {}
  for model in results.models:
    loss, accuracy = (means.get((model.name, metric)) for metric in ('loss', 'accuracy'))
    steps = [int(run.metrics.index[-1]) for run in model.runs if len(run.metrics)]
    rows[model.name] = {
      'pre-trained': _done(len(model.runs), len(model.pretrained)),
      'steps': f'{max(steps):,}' if steps else MISSING,
      'held-out loss': MISSING if loss is None else f'{loss:.3f}',
      'MLM accuracy': MISSING if accuracy is None else f'{accuracy:.1f} %',
      'judged': _done(sum(each.is_done for each in model.finetuned), len(model.finetuned)),
      'analysed': _done(sum(each.results is not None for each in model.analyses), len(model.analyses)),
      'stands for': ', '.join(f'Table {table}' for table in dict.fromkeys(table for table, _ in model.rows)) or MISSING,
    }
  frame = table_frame(rows.items(), 'model')
  notes = ['Done, of what was planned. Loss in nats and accuracy are means over seeds, at the last evaluation.']
  notes += [
    f'{run.name}: {run.broken_lines} line(s) of metrics.jsonl cannot be read'
    for model in results.models
    for run in model.all_runs
    if run.broken_lines
  ]
  return Section('Models', [Table('What there is', frame.loc[:, (frame != MISSING).any()], notes)])


def _done(done: int, planned: int) -> str:
  return f'{done} of {planned}' if planned else MISSING


def scale_in_words(results: Results) -> str:
  """Model sizes, and whether scores compare with the paper's; '' if no size is known."""
  configs = [run.model for model in results.models for run in model.runs if run.model is not None]
  if not configs:
    return ''
  span = lambda values: f'{min(values):,}' if min(values) == max(values) else f'{min(values):,} to {max(values):,}'
  words = (
    f'{span([config.hidden_size for config in configs])} wide, '
    f'{span([config.num_hidden_layers for config in configs])} layers, '
    f'vocabulary of {span([config.vocab_size for config in configs])}'
  )
  names = ', '.join(dict.fromkeys(source.scale for source in results.sources if source.scale)) or 'Models'
  words = f'{names}: {words}.'
  if any(config.hidden_size < _PAPER_WIDTH or config.num_hidden_layers < _PAPER_LAYERS for config in configs):
    words += (
      f" The paper's figures are of the full size ({_PAPER_WIDTH} wide, {_PAPER_LAYERS} layers, 26 billion "
      'tokens): the level of the scores cannot be compared, only which model is ahead of which.'
    )
  return words


# --- parameters -------------------------------------------------------------------------------------------------------

_PARAMETERS = (
  'The output embedding is used in pre-training alone: what is put there costs nothing later. Of each model the upper '
  'bar is what is pre-trained, the lower one what fine-tuning keeps, before the head of a task.'
)


def parameters(results: Results) -> Section:
  """Bars and a table of all models whose architecture is known."""
  counted = [(model, counts) for model in results.models if (counts := counts_of(model)) is not None]
  if not counted:
    return Section('Parameters', [])
  drawing = plot_parameters([(label(model.name, 18), each.by_part, each.kept_by_part) for model, each in counted])
  caption = 'Where the parameters sit: above in pre-training, below, fainter, what is kept for fine-tuning.'
  alt = f'Parameters of {len(counted)} models by part, in pre-training and in fine-tuning'
  return Section('Parameters', [_PARAMETERS, Picture('Parameters', caption, alt, drawing), _parameters_table(counted)])


def counts_of(model: Model) -> ParameterCounts | None:
  """Parameters of a model by part; None if its architecture is not known."""
  return None if model.config is None else count_parameters(model.config, kept_layers=model.kept_layers)


def _parameters_table(counted: Sequence[tuple[Model, ParameterCounts]]) -> Table:
  rows = {}
  for model, counts in counted:
    printed = next((row for table, name in model.rows if (row := _printed_row(table, name)) is not None), None)
    for title, by_part, stated in (
      ('pre-training', counts.by_part, printed and printed.pre_training_millions),
      ('fine-tuning', counts.kept_by_part, printed and printed.fine_tuning_millions),
    ):
      parts, total = bar_parts(by_part), sum(by_part.values())
      embeddings = parts['input embedding'] + parts['output embedding']
      rows[model.name, title] = {
        **{name: f'{count:,}' if count else MISSING for name, count in parts.items()},
        'all': f'{total:,}',
        'in embeddings': f'{embeddings / total:.0%}',
        'the paper': f'{stated}M' if stated else MISSING,
      }
  notes = [
    'Counted from the shapes of the modules that train; padding rows do not count. The output bias is counted with the '
    'output embedding, positions and types with the input embedding.',
    "The paper's figures are of its full-size models, and leave out the pooler and most of the MLM head.",
  ]
  return Table('Parameters by part', table_frame(rows.items(), 'model', 'in'), notes)


def _printed_row(table: int, name: str) -> paper.PaperRow | None:
  return next((row for row in paper.TABLES.get(table, ()) if row.name == name), None)


# --- time -------------------------------------------------------------------------------------------------------------


def time(results: Results) -> Section:
  """A row per run: time by activity, restarts, speed."""
  runs = [run for run in _pre_training_first(results.models) if run.sessions]
  rows = []
  for run in runs[:_MOST_TIMED]:
    spent = account(list(run.sessions))
    seconds = {name: spent.by_activity[name] for name in ACTIVITIES}
    seconds |= {'between restarts': spent.restart, 'made again': spent.lost}
    speed, tokens = (run.curve(key).median() for key in ('step_seconds', 'tokens_per_second'))
    cells = {
      'all': human_duration(spent.total),
      **{name: human_duration(each) if each >= 0.5 else MISSING for name, each in seconds.items()},
      'starts': f'{spent.starts}',
      'goodput': f'{spent.productive_share:.1%}',
      'a step': MISSING if pd.isna(speed) else f'{speed:.3g} s',
      'tokens/s': MISSING if pd.isna(tokens) else f'{tokens:,.0f}',
    }
    rows.append((run.name, cells))
  notes = ['Goodput is the share of the time that went into steps which were kept. A step and tokens/s are medians.']
  if len(runs) > _MOST_TIMED:
    notes.append(f'The first {_MOST_TIMED} of {len(runs)} runs.')
  return Section('Time', [Table('Where the time went', table_frame(rows, 'run'), notes)] if rows else [])


def _pre_training_first(models: Sequence[Model]) -> Iterator[Run]:
  for model in models:
    yield from model.runs
  for model in models:
    yield from model.all_runs[len(model.runs) :]


# --- configuration ----------------------------------------------------------------------------------------------------


def configuration(results: Results) -> Section:
  """Settings of each model's pre-training, or if there is none, of a fine-tuning run: differences first, then all."""
  first = {model.name: model.all_runs[0].settings for model in results.models if model.all_runs}
  settings = {name: of_run for name, of_run in first.items() if of_run}
  if not settings:
    return Section('Configuration', [])
  blocks: list[Block] = []
  different = differences(settings)
  if len(settings) > 1:
    blocks.append(_settings_table('What differs', different) if different else 'All were told the same.')
  name, of_run = next(iter(settings.items()))
  shared = {key: {'value': value} for key, value in sorted(of_run.items()) if key not in different}
  if shared:
    title = f'All {len(shared)} settings of {name}' if len(settings) == 1 else f'{len(shared)} settings that they share'
    blocks.append(_settings_table(title, shared, is_folded=True))
  return Section('Configuration', blocks)


def _settings_table(caption: str, settings: Mapping[str, Mapping[str, str | None]], is_folded: bool = False) -> Table:
  frame = table_frame(settings.items(), 'setting').map(_setting)
  return Table(caption, frame, look=lambda row, column: 'text', is_folded=is_folded)


def differences(settings: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str | None]]:
  """Settings that are not equal in all runs, with the value of each run; None if it has none."""
  names = sorted({name for of_run in settings.values() for name in of_run})
  by_name = {name: {run: of_run.get(name) for run, of_run in settings.items()} for name in names}
  return {name: values for name, values in by_name.items() if len(set(values.values())) > 1}


def _setting(value: str | None) -> str:
  if value is None:
    return MISSING
  return value if len(value) <= 200 else f'{value[:199]}…'
