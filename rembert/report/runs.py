"""Sections of a report about models and their runs: progress, parameters, analyses and settings."""

from collections.abc import Sequence

import pandas as pd
from etils import epath

from rembert import paper
from rembert.model.parameter_count import ParameterCounts, count_parameters
from rembert.plotting.style import label
from rembert.plotting.training import bar_parts, plot_parameters
from rembert.report.html import MISSING, Picture, Section, Table, table_frame
from rembert.report.load import ANALYSIS, FINE_TUNING, PRE_TRAINING, Model
from rembert.report.scores import ALL_LANGUAGES, HELD_OUT, Results, of

# The paper's ablation models (A.2), of all its tables except 7, 13, 14 and 16.
_PAPER_WIDTH, _PAPER_LAYERS = 768, 12
_PRINTED = {(row.table, row.name): row for rows in paper.TABLES.values() for row in rows}


# --- overview ---------------------------------------------------------------------------------------------------------


def overview(results: Results) -> Section:
  """A table with a row per model: its progress and its last evaluation."""
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
      'eval loss': MISSING if loss is None else f'{loss:.3f}',
      'MLM accuracy': MISSING if accuracy is None else f'{accuracy:.1f} %',
      'fine-tuned': _done([run.results is not None for run in model.runs(FINE_TUNING)]),
      'analysed': _done([run.results is not None for run in model.runs(ANALYSIS)]),
      'reproduces': ', '.join(f'Table {table}' for table in dict.fromkeys(table for table, _ in model.rows)) or MISSING,
    }
  frame = table_frame(rows.items(), 'model')
  notes = ['Completed and planned runs. Loss (nats) and accuracy are means over seeds at the last evaluation.']
  return Section('Models', [Table('Overview', frame.loc[:, (frame != MISSING).any()], notes)])


def _done(runs: Sequence[bool]) -> str:
  return f'{sum(runs)} of {len(runs)}' if runs else MISSING


def scale_in_words(results: Results) -> str:
  """Model sizes, and whether scores are comparable with the paper's; '' if no size is known."""
  configs = [run.model for model in results.models for run in model.pretrained if run.model is not None]
  if not configs:
    return ''
  span = lambda values: f'{min(values):,}' if min(values) == max(values) else f'{min(values):,} to {max(values):,}'
  words = (
    f'hidden size {span([config.hidden_size for config in configs])}, '
    f'{span([config.num_hidden_layers for config in configs])} layers, '
    f'vocabulary size {span([config.vocab_size for config in configs])}'
  )
  names = ', '.join(dict.fromkeys(source.scale for source in results.sources if source.scale)) or 'Models'
  words = f'{names}: {words}.'
  if any(config.hidden_size < _PAPER_WIDTH or config.num_hidden_layers < _PAPER_LAYERS for config in configs):
    words += (
      f" The paper's models have hidden size {_PAPER_WIDTH}, {_PAPER_LAYERS} layers and 26 billion training tokens: "
      'compare the order of models, not the level of their scores.'
    )
  return words


# --- parameters -------------------------------------------------------------------------------------------------------

_PARAMETERS = (
  'The output embedding is used in pre-training only and costs nothing in fine-tuning. The upper bar of '
  'each model is pre-training, the lower one fine-tuning without the head of a task.'
)


def parameters(results: Results) -> Section:
  """A bar plot and a table of the parameters of all models with a known architecture."""
  counted = [(model, counts) for model in results.models if (counts := counts_of(model)) is not None]
  if not counted:
    return Section('Parameters', [])
  drawing = plot_parameters([(label(model.name, 18), each.by_part, each.kept_by_part) for model, each in counted])
  caption = 'Parameters by part: above in pre-training, below, fainter, in fine-tuning.'
  alt = f'Parameters of {len(counted)} models by part, in pre-training and in fine-tuning'
  return Section('Parameters', [_PARAMETERS, Picture('Parameters', caption, alt, drawing), _parameters_table(counted)])


def counts_of(model: Model) -> ParameterCounts | None:
  """Parameters of a model by part; None if its architecture is unknown."""
  return None if model.config is None else count_parameters(model.config, kept_layers=model.kept_layers)


def _parameters_table(counted: Sequence[tuple[Model, ParameterCounts]]) -> Table:
  rows = {}
  for model, counts in counted:
    printed = next((row for key in model.rows if (row := _PRINTED.get(key)) is not None), None)
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
    'Counted from the shapes of the modules that train, without vocabulary padding. The output bias is counted with '
    'the output embedding, positions and types with the input embedding.',
    "The paper's figures are for its full-size models, and exclude the pooler and most of the MLM head.",
  ]
  return Table('Parameters by part', table_frame(rows.items(), 'model', 'in'), notes)


# --- analyses ---------------------------------------------------------------------------------------------------------

# The largest image that is embedded in the page.
_MOST_BYTES = 4 << 20


def analyses(results: Results) -> Section:
  """The plots of each analysis; its numbers are in `analysis.json`, the paper's in Tables 8 and 9."""
  runs = [(model, run) for model in results.models for run in model.runs(ANALYSIS)]
  by_analysis = dict.fromkeys(run.task for _, run in runs)
  pictures = [
    picture
    for what in by_analysis
    for model, run in runs
    if run.task == what and run.workdir.is_dir()
    for file in sorted(run.workdir.glob('*.png'), key=str)
    if (picture := _picture(file, f'{what.replace("_", " ").capitalize()}, {model.name}')) is not None
  ]
  return Section('Analyses', pictures)


def _picture(file: epath.Path, words: str) -> Picture | None:
  """The image, if it is a PNG and not too large for the page."""
  try:
    content = file.read_bytes()
  except OSError:
    return None
  is_png = content.startswith(b'\x89PNG') and len(content) <= _MOST_BYTES
  return Picture(words, f'{words}.', words, content) if is_png else None


# --- configuration ----------------------------------------------------------------------------------------------------


def configuration(results: Results) -> Section:
  """Settings that differ between models, of pre-training or, without it, of a fine-tuning run."""
  first = {model.name: model.trained[0].settings for model in results.models if model.trained}
  frame = pd.DataFrame({name: of_run for name, of_run in first.items() if of_run}, dtype=object).rename_axis('setting')
  different = frame[frame.nunique(axis='columns', dropna=False) > 1].sort_index().fillna(MISSING)
  if different.empty:
    return Section('Configuration', [])
  shown = different.map(lambda value: value if len(value) <= 200 else f'{value[:199]}…')
  return Section('Configuration', [Table('Differing settings', shown, look=lambda row, column: 'text')])
