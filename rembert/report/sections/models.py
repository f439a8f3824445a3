"""What there is: folders, models, how far each has come; and how large the models are beside the paper's."""

from collections.abc import Sequence

from rembert.report.page import MISSING, Section, rows_table
from rembert.report.reading import Model, Source

# The paper's ablation models (A.2), which all of its tables but 7, 13, 14 and 16 are of.
_PAPER_WIDTH, _PAPER_LAYERS = 768, 12


def all_models(sources: Sequence[Source]) -> list[Model]:
  """Of all folders, in their order: a model's place in it is its colour on the whole page."""
  return [model for source in sources for model in source.models]


def scale_in_words(sources: Sequence[Source]) -> str:
  """How large the models are, and what follows for the paper's figures beside them; '' where no size is known."""
  configs = [run.model for model in all_models(sources) for run in model.runs if run.model is not None]
  if not configs:
    return ''
  span = lambda values: f'{min(values):,}' if min(values) == max(values) else f'{min(values):,} to {max(values):,}'
  words = (
    f'{span([config.hidden_size for config in configs])} wide, '
    f'{span([config.num_hidden_layers for config in configs])} layers, '
    f'vocabulary of {span([config.vocab_size for config in configs])}'
  )
  names = ', '.join(dict.fromkeys(source.scale for source in sources if source.scale))
  words = f'{names}: {words}' if names else f'Models: {words}'
  if any(config.hidden_size < _PAPER_WIDTH or config.num_hidden_layers < _PAPER_LAYERS for config in configs):
    return (
      f"{words}. The paper's figures are of the full size ({_PAPER_WIDTH} wide, {_PAPER_LAYERS} layers, 26 billion "
      'tokens): the level of the scores cannot be compared, only which model is ahead of which.'
    )
  return f'{words}.'


def section(sources: Sequence[Source]) -> Section:
  """A line for every model: what is done of what was planned, and where it stands."""
  models = all_models(sources)
  rows = []
  for model in models:
    runs = model.runs
    losses = [loss for run in runs if (loss := run.last('eval/loss')) is not None]
    accuracies = [value for run in runs if (value := run.last('eval/accuracy')) is not None]
    steps = [int(run.metrics[-1]['step']) for run in runs if run.metrics]
    analysed = [each for each in model.analyses if each.results is not None]
    rows.append(
      [
        model.name,
        _done(len(runs), len(model.pretrained)),
        f'{max(steps):,}' if steps else MISSING,
        f'{sum(losses) / len(losses):.3f}' if losses else MISSING,
        f'{100 * sum(accuracies) / len(accuracies):.1f} %' if accuracies else MISSING,
        _done(len(model.judged), len(model.learned)),
        _done(len(analysed), len(model.analyses)),
        ', '.join(f'Table {table}' for table in dict.fromkeys(table for table, _ in model.rows)) or MISSING,
      ]
    )
  columns = ['model', 'pre-trained', 'steps', 'held-out loss', 'MLM accuracy', 'judged', 'analysed', 'stands for']
  shown = [number for number in range(len(columns)) if any(row[number] != MISSING for row in rows)]
  columns, rows = [columns[number] for number in shown], [[row[number] for number in shown] for row in rows]
  notes = ['Done, of what was planned. Loss in nats and accuracy are means over seeds, at the last evaluation.']
  broken = [
    f'{run.name}: {run.broken_lines} line(s) of metrics.jsonl cannot be read'
    for run in _runs(models)
    if run.broken_lines
  ]
  return Section('Models', [rows_table('What there is', columns, rows, [*notes, *broken])] if rows else [])


def _runs(models: Sequence[Model]):
  for model in models:
    yield from model.runs
    yield from (each.run for each in model.learned if each.run is not None)


def _done(done: int, planned: int) -> str:
  return f'{done} of {planned}' if planned else MISSING
