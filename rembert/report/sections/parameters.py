"""Where the parameters sit: as bars, in pre-training and after the output table is dropped, and to the digit."""

from collections.abc import Mapping, Sequence

from rembert import paper
from rembert.model.parameter_count import ParameterCounts, count_parameters
from rembert.report import drawing
from rembert.report.page import MISSING, Group, Picture, Section, Table
from rembert.report.reading import Model, Source
from rembert.report.sections.models import all_models

# Parts of the bars, from the left: what is counted, and its place among the colours.
_PARTS: tuple[tuple[str, tuple[str, ...], int], ...] = (
  ('input embedding', ('word embedding', 'position and type embeddings'), 0),
  ('input projection', ('embedding projection',), 6),
  ('layers', ('Transformer layers',), 3),
  ('pooler', ('pooler',), 4),
  ('MLM transform', ('MLM transform',), 5),
  ('output embedding', ('output embedding', 'output bias'), 1),
)
_BAR = 0.36


def section(sources: Sequence[Source]) -> Section:
  """Bars and table of all models whose architecture is known."""
  counted = [(model, counts) for model in all_models(sources) if (counts := counts_of(model)) is not None]
  if not counted:
    return Section('Parameters', [])
  drawn = bars([(drawing.label(model.name, 18), counts) for model, counts in counted])
  caption = 'Where the parameters sit: above in pre-training, below, fainter, what is kept for fine-tuning.'
  return Section('Parameters', [_INTRODUCTION, Picture('Parameters', caption, drawn), _table(counted)])


_INTRODUCTION = (
  'The output embedding is used in pre-training alone: what is put there costs nothing later. Of each model the upper '
  'bar is what is pre-trained, the lower one what fine-tuning keeps, before the head of a task.'
)


def counts_of(model: Model) -> ParameterCounts | None:
  """Parameters of a model by part; None where its architecture is not known."""
  config = next((run.model for run in model.runs if run.model is not None), None)
  return None if config is None else count_parameters(config, kept_layers=kept_layers(model))


def kept_layers(model: Model) -> int | None:
  """How many layers fine-tuning keeps, where the paper's row keeps fewer; None for all."""
  return next((run.kept_layers for run in model.runs if run.kept_layers is not None), None)


def bar_parts(by_part: Mapping[str, int]) -> dict[str, int]:
  """The parts of a bar, those that are empty too."""
  return {name: sum(by_part.get(part, 0) for part in parts) for name, parts, _ in _PARTS}


def millions(count: float) -> str:
  """1234567 as `1.23M`; from a hundred on without digits behind the point, as the paper prints them."""
  count /= 1_000_000
  return f'{count:,.0f}M' if count >= 99.5 else f'{count:#.3g}M'


def bars(counted: Sequence[tuple[str, ParameterCounts]]) -> drawing.Drawing:
  """Two bars for each model, by name: what is pre-trained, and below, fainter, what fine-tuning keeps."""
  largest = max(counts.pre_training for _, counts in counted)
  with drawing.canvas(
    'parameters',
    alt=f'Parameters of {len(counted)} models by part, in pre-training and in fine-tuning',
    height=1.5 + 0.55 * len(counted),
  ) as canvas:
    axes, seen = canvas.axes, set()
    for index, (_, counts) in enumerate(counted):
      for below, by_part in ((0, counts.by_part), (1, counts.kept_by_part)):
        left, y = 0.0, index + (below - 0.5) * (_BAR + 0.04)
        for (name, count), (_, _, colour) in zip(bar_parts(by_part).items(), _PARTS, strict=True):
          if count:
            axes.barh(
              y,
              count / 1e6,
              left=left,
              height=_BAR,
              color=drawing.SERIES[colour],
              alpha=0.65 if below else 1.0,
              label=None if name in seen else name,
            )
            seen.add(name)
            left += count / 1e6
        axes.annotate(
          millions(sum(by_part.values())), (left, y), xytext=(4, 0), textcoords='offset points', va='center', fontsize=9
        )
    axes.set_yticks(range(len(counted)), [name for name, _ in counted])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.14 * largest / 1e6)
    axes.grid(False, axis='y')
    axes.set_xlabel('parameters (millions)')
    canvas.legend(columns=3, order=[name for name, _, _ in _PARTS])
  return canvas.drawing


def _table(counted: Sequence[tuple[Model, ParameterCounts]]) -> Table:
  groups = []
  for model, counts in counted:
    printed = next((row for table, name in model.rows if (row := printed_row(table, name)) is not None), None)
    rows = []
    for title, by_part, said in (
      ('pre-training', counts.by_part, printed and printed.pre_training_millions),
      ('fine-tuning', counts.kept_by_part, printed and printed.fine_tuning_millions),
    ):
      total = sum(by_part.values())
      parts = bar_parts(by_part)
      embeddings = parts['input embedding'] + parts['output embedding']
      cells = [f'{count:,}' if count else MISSING for count in parts.values()]
      rows.append([title, *cells, f'{total:,}', f'{embeddings / total:.0%}', f'{said}M' if said else MISSING])
    groups.append(Group(model.name, rows))
  names = [name for name, _, _ in _PARTS]
  notes = [
    'Counted from the shapes of the modules that train; padding rows do not count. The output bias is counted with the '
    'output embedding, positions and types with the input embedding.',
    "The paper's figures are of its full-size models, and leave out the pooler and most of the MLM head.",
  ]
  return Table('Parameters by part', ['model', 'in', *names, 'all', 'in embeddings', 'the paper'], groups, notes)


def printed_row(table: int, name: str) -> paper.PaperRow | None:
  """The paper's row; None for one that it has not."""
  return next((row for row in paper.TABLES.get(table, ()) if row.name == name), None)
