"""Models and their runs: progress, parameters, analyses, time, and settings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from etils import epath

from rembert import paper
from rembert.model.parameter_count import ParameterCounts, count_parameters
from rembert.plotting.style import label
from rembert.plotting.training import bar_parts, plot_parameters
from rembert.report.html import MISSING, Block, Picture, Section, Table, table_frame
from rembert.report.load import ANALYSIS, FINE_TUNING, PRE_TRAINING, Model, Run, is_number
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
    steps = [int(run.metrics.index[-1]) for run in model.pretrained if len(run.metrics)]
    rows[model.name] = {
      'pre-trained': _done([run.is_started for run in model.runs(PRE_TRAINING)]),
      'steps': f'{max(steps):,}' if steps else MISSING,
      'held-out loss': MISSING if loss is None else f'{loss:.3f}',
      'MLM accuracy': MISSING if accuracy is None else f'{accuracy:.1f} %',
      'judged': _done([run.results is not None for run in model.runs(FINE_TUNING)]),
      'analysed': _done([run.results is not None for run in model.runs(ANALYSIS)]),
      'stands for': ', '.join(f'Table {table}' for table in dict.fromkeys(table for table, _ in model.rows)) or MISSING,
    }
  frame = table_frame(rows.items(), 'model')
  notes = ['Done, of what was planned. Loss in nats and accuracy are means over seeds, at the last evaluation.']
  notes += [
    f'{run.name}: {run.broken_lines} line(s) of metrics.jsonl cannot be read'
    for model in results.models
    for run in model.trained
    if run.broken_lines
  ]
  return Section('Models', [Table('What there is', frame.loc[:, (frame != MISSING).any()], notes)])


def _done(runs: Sequence[bool]) -> str:
  return f'{sum(runs)} of {len(runs)}' if runs else MISSING


def scale_in_words(results: Results) -> str:
  """Model sizes, and whether scores compare with the paper's; '' if no size is known."""
  configs = [run.model for model in results.models for run in model.pretrained if run.model is not None]
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


# --- analyses ---------------------------------------------------------------------------------------------------------

_ANALYSES = {
  'masked_accuracy': 'Masked pieces predicted',
  'layer_retrieval': 'Translations found, layer by layer',
  'word_similarity': 'Word similarity',
  'edge_probing': 'Edge probing',
  'spectra': 'Spectra',
  'fertility': 'Fertility of the vocabulary',
}
_MOST_ROWS = 400
_MOST_OPEN = 40  # rows of a table that is not folded
_MOST_LISTED = 40  # numbers of a list
# The largest picture that is put into the page.
_MOST_BYTES = 4 << 20


def analyses(results: Results) -> Section:
  """A table per analysis, models side by side, and its pictures."""
  by_name: dict[str, list[tuple[str, Run]]] = {}
  for model in results.models:
    several = len({run.pretrain_seed for run in model.runs(ANALYSIS)}) > 1
    for run in model.runs(ANALYSIS):
      column = f'{model.name}, seed {run.pretrain_seed}' if several else model.name
      by_name.setdefault(run.task, []).append((column, run))
  return Section('Analyses', [block for what, each in by_name.items() for block in _blocks(what, each)])


def _blocks(what: str, found: Sequence[tuple[str, Run]]) -> Iterator[Block]:
  title = _ANALYSES.get(what, what.replace('_', ' '))
  there = [(column, run.results) for column, run in found if run.results is not None]
  notes = [f'{column}: no results yet.' for column, run in found if run.results is None]
  tabular = list(dict.fromkeys(name for _, results in there for name in results if _is_table(results[name])))
  numbers = {
    column: dict(_flat({name: value for name, value in results.items() if name not in tabular}))
    for column, results in there
  }
  if any(numbers.values()):
    names = dict.fromkeys(name for of_model in numbers.values() for name in of_model)
    rows = {name: {column: of_model.get(name) for column, of_model in numbers.items()} for name in names}
    yield _table(title, table_frame(rows.items(), 'result'), notes)
  elif not tabular:
    yield f'{title}: {" ".join(notes) or "nothing in it."}'
  for name in tabular:
    rows = {
      (column, row): dict(_flat(fields))
      for column, results in there
      if _is_table(results.get(name))
      for row, fields in results[name].items()
    }
    yield _table(f'{title}: {name}', table_frame(rows.items(), 'model', 'of'), notes)
  for column, run in found:
    files = sorted(run.workdir.glob('*.png'), key=str) if run.workdir.is_dir() else ()
    yield from (picture for file in files for picture in _picture(file, f'{title}, {column}'))


def _table(caption: str, values: pd.DataFrame, notes: Sequence[str]) -> Table:
  """The first rows, of each model if they are grouped by models; long tables are folded."""
  is_nested = values.index.nlevels > 1
  count = values.groupby(level=0).size().max() if is_nested else len(values)
  if count > _MOST_ROWS:
    values = values.groupby(level=0, sort=False).head(_MOST_ROWS) if is_nested else values.head(_MOST_ROWS)
    notes = [*notes, f'The first {_MOST_ROWS} of {count} lines; analysis.json has all.']
  look = lambda row, column: 'text' if isinstance(values.at[row, column], str | bool) else ''
  return Table(caption, values.map(_cell), notes, look, is_folded=is_nested and len(values) > _MOST_OPEN)


def _is_table(value: Any) -> bool:
  """Whether a part of the results is one: names to objects with the same fields, as scores by language are."""
  if not isinstance(value, Mapping) or len(value) < 2:
    return False
  return all(isinstance(each, Mapping) and each.keys() == next(iter(value.values())).keys() for each in value.values())


def _flat(results: Mapping[str, Any], before: str = '') -> Iterator[tuple[str, Any]]:
  """Numbers and texts by the path to them; short lists of numbers as text."""
  for name, value in results.items():
    path = f'{before} · {name}' if before else str(name)
    if isinstance(value, Mapping):
      yield from _flat(value, path)
    elif isinstance(value, list):
      if value and len(value) <= _MOST_LISTED and all(map(is_number, value)):
        yield path, '  '.join(f'{each:.3g}' for each in value)
    elif value is not None:
      yield path, value


def _cell(value: Any) -> str:
  if not is_number(value):
    return MISSING if value is None else str(value)[:300]
  if isinstance(value, int):
    return f'{value:,}'
  return f'{value:.4g}' if math.isfinite(value) else MISSING


def _picture(file: epath.Path, title: str) -> Iterator[Picture]:
  """The picture, if it is a PNG of a size that fits into the page."""
  try:
    content = file.read_bytes()
  except OSError:
    return
  if content.startswith(b'\x89PNG') and len(content) <= _MOST_BYTES:
    words = f'{title}: {file.stem.replace("_", " ")}'
    yield Picture(words, f'{words}.', words, content)


# --- time -------------------------------------------------------------------------------------------------------------


def time(results: Results) -> Section:
  """A row per run: time by activity, restarts, speed."""
  runs = [run for model in results.models for run in model.trained if run.sessions]
  runs.sort(key=lambda run: run.kind != PRE_TRAINING)
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


# --- configuration ----------------------------------------------------------------------------------------------------


def configuration(results: Results) -> Section:
  """Settings of each model's pre-training, or if there is none, of a fine-tuning run: differences first, then all."""
  first = {model.name: model.trained[0].settings for model in results.models if model.trained}
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
