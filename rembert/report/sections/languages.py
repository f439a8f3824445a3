"""Language by language: the curve of each, and where each stands at the end."""

import statistics
from collections.abc import Sequence

from rembert.report import drawing
from rembert.report.page import MISSING, Cell, Picture, Section, Table, rows_table
from rembert.report.reading import Model, Source
from rembert.report.runs import Run
from rembert.report.sections.models import all_models

_LOSS, _ACCURACY = 'eval/loss', 'eval/accuracy'
# As many curves as can be told apart by colour and line; beyond, the best and the worst are named.
_MOST_NAMED = 8


def section(sources: Sequence[Source]) -> Section:
  """Held-out text by language."""
  everything = enumerate(all_models(sources))
  found = [(index, model) for index, model in everything if any(run.parts_of(_LOSS) for run in model.runs)]
  if not found:
    return Section('Languages', [])
  blocks = [_picture(model, index, len(found)) for index, model in found]
  models = [model for _, model in found]
  return Section('Languages', [*blocks, _alone(models[0]) if len(models) == 1 else _together(models)])


def _first(model: Model) -> Run:
  return next(run for run in model.runs if run.parts_of(_LOSS))


def _picture(model: Model, index: int, models: int) -> Picture:
  run = _first(model)
  languages = run.parts_of(_LOSS)
  last = sorted((run.last(f'{_LOSS}/{language}'), language) for language in languages)
  few = len(languages) <= _MOST_NAMED
  alt = f'Held-out loss of {model.name} in {len(languages)} languages over steps'
  with drawing.canvas(f'languages-{index}', alt=alt) as canvas:
    for number, language in enumerate(languages):
      steps, values = run.curve(f'{_LOSS}/{language}')
      thin = {'color': drawing.style(index)['color'], 'linewidth': 0.9, 'alpha': 0.6}
      look = drawing.style(number) | {'marker': ''} if few else thin
      canvas.axes.plot(*drawing.thinned(steps, values), label=drawing.label(language) if few else None, **look)
      if len(steps) == 1:
        canvas.axes.plot(steps, values, marker='o', markersize=3, color=look['color'])
    if not few:
      for loss, language in {last[0], last[len(last) // 2], last[-1]}:
        at = run.curve(f'{_LOSS}/{language}')[0][-1]
        canvas.axes.annotate(
          drawing.label(language, 12), (at, loss), xytext=(4, 0), textcoords='offset points', va='center', fontsize=9.5
        )
    canvas.axes.set_ylabel('held-out loss (nats)')
    if models > 1:
      canvas.axes.set_title(drawing.label(model.name, 48), loc='left')
    drawing.step_axis(canvas.axes)
    canvas.legend()
  caption = f'{model.name}: {len(languages)} languages. ' if models > 1 else f'{len(languages)} languages. '
  caption += f'Lowest at the end: {last[0][1]} ({last[0][0]:.2f} nats)'
  caption += f'; highest: {last[-1][1]} ({last[-1][0]:.2f}).' if len(last) > 1 else '.'
  return Picture(f'Languages of {model.name}', caption, canvas.drawing)


def _alone(model: Model) -> Table:
  run = _first(model)
  rows: list[tuple[float, list[str | Cell]]] = []
  for language in run.parts_of(_LOSS):
    _, losses = run.curve(f'{_LOSS}/{language}')
    accuracy = run.last(f'{_ACCURACY}/{language}')
    spark = drawing.sparkline(losses, alt=f'{language}: from {losses[0]:.2f} to {losses[-1]:.2f} nats')
    rows.append(
      (
        losses[-1],
        [
          language,
          Cell(' '.join(f'{loss:.3f}' for loss in losses), spark),
          f'{losses[0]:.3f}',
          f'{losses[-1]:.3f}',
          MISSING if accuracy is None else f'{100 * accuracy:.1f} %',
        ],
      )
    )
  ordered = [row for _, row in sorted(rows, key=lambda item: item[0])]
  notes = ['Of held-out text, in nats; the lowest loss first. Losses of languages are not of one kind: pieces differ.']
  return rows_table('Each language', ['language', 'curve', 'first loss', 'last loss', 'accuracy'], ordered, notes)


def _together(models: Sequence[Model]) -> Table:
  last: dict[str, dict[str, float]] = {}
  for model in models:
    runs = [run for run in model.runs if run.parts_of(_LOSS)]
    for language in dict.fromkeys(language for run in runs for language in run.parts_of(_LOSS)):
      found = [value for run in runs if (value := run.last(f'{_LOSS}/{language}')) is not None]
      last.setdefault(language, {})[model.name] = statistics.fmean(found)
  rows: list[list[str | Cell]] = []
  for language in sorted(last):
    best = min(last[language].values())
    cells = [last[language].get(model.name) for model in models]
    rows.append(
      [
        language,
        *(MISSING if value is None else Cell(f'{value:.3f}', kind='best' if value == best else '') for value in cells),
      ]
    )
  notes = ['Held-out loss in nats at the last evaluation, mean over seeds; the lowest of each language in bold.']
  return rows_table('Languages of all models', ['language', *(model.name for model in models)], rows, notes)
