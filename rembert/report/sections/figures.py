"""The paper's two figures, drawn again: accuracy by the layers that are kept, and translations found by layer."""

import itertools
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rembert import paper
from rembert.report import drawing
from rembert.report.page import MISSING, Block, Picture, Section, rows_table
from rembert.report.reading import Model, Source
from rembert.report.scores import task_scores, variants
from rembert.report.sections.models import all_models
from rembert.report.sections.parameters import kept_layers
from rembert.report.xtreme_scores import Spread, spread
from rembert.report.xtreme_table import NAMES

_KEEPS = re.compile(r'RemBertConfig\.num_hidden_layers\s*=\s*(\d+)')
_LABELS = {row.name: row.label for row in paper.TABLES[4]}


def section(sources: Sequence[Source]) -> Section:
  """Both figures, as far as there is something to draw."""
  models = all_models(sources)
  return Section('Figures 1 and 2', [*_figure_1(models), *_figure_2(models)])


# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def by_kept_layers(model: Model) -> dict[str, dict[int, Spread]]:
  """Task to number of kept layers to the mean over languages, over seeds; the whole model among them."""
  if kept_layers(model) is not None:  # of Table 5: its layers are cut for another reason
    return {}
  found: dict[str, dict[int, Spread]] = {}
  depth = next((run.model.num_hidden_layers for run in model.runs if run.model is not None), None)
  for variant in variants(model):
    match = _KEEPS.fullmatch(variant)
    layers = int(match[1]) if match else depth if variant == '' else None
    if layers is None:
      continue
    for task, scores in task_scores(model, variant).items():
      means = [statistics.fmean(run.values()) for run in scores.values().values()]
      found.setdefault(task, {})[layers] = spread(means)
  return {task: dict(sorted(of_task.items())) for task, of_task in found.items() if len(of_task) > 1}


def _figure_1(models: Sequence[Model]) -> list[Block]:
  found = {(index, model.name): by_kept_layers(model) for index, model in enumerate(models)}
  tasks = dict.fromkeys(task for of_model in found.values() for task in of_model)
  blocks: list[Block] = []
  for task in sorted(tasks, key=lambda task: task != 'xnli'):
    name = NAMES.get(task, task)
    drawn = {model: of_tasks[task] for model, of_tasks in found.items() if task in of_tasks}
    with drawing.canvas(
      f'figure-1-{task}', alt=f'{name} by the number of layers kept, {len(drawn)} models of ours'
    ) as canvas:
      for (index, model), points in drawn.items():
        canvas.axes.errorbar(
          list(points),
          [each.mean for each in points.values()],
          yerr=[each.deviation or 0 for each in points.values()],
          capsize=3,
          label=drawing.label(model),
          **drawing.style(index),
        )
      layers = sorted({layer for points in drawn.values() for layer in points})
      canvas.axes.set_xticks(layers)
      canvas.axes.set(xlabel='layers kept', ylabel=f'{name}, mean over languages')
      canvas.legend()
    caption = f'Figure 1 with ours: {name} when fine-tuning keeps the bottom layers alone; bars are ± sd over seeds.'
    blocks += [Picture(f'Figure 1 {name}', caption, canvas.drawing)]
    if len(blocks) == 1:
      blocks.append(_figure_1_of_the_paper(models))
  for task in tasks:
    rows = [
      [model, *_cells(of_tasks[task], _layers(found, task))]
      for (_, model), of_tasks in found.items()
      if task in of_tasks
    ]
    columns = ['model', *(f'{layer} layers' for layer in _layers(found, task))]
    blocks.append(rows_table(f'Figure 1 in numbers: {NAMES.get(task, task)}', columns, rows))
  return blocks


def _layers(found, task: str) -> list[int]:
  return sorted({layer for of_tasks in found.values() for layer in of_tasks.get(task, ())})


def _cells(points: Mapping[int, Spread], layers: Sequence[int]) -> list[str]:
  show = lambda each: f'{each.mean:.1f}' + ('' if each.deviation is None else f' ± {each.deviation:.1f}')
  return [show(points[layer]) if layer in points else MISSING for layer in layers]


def _figure_1_of_the_paper(models: Sequence[Model]) -> Picture:
  with drawing.canvas('figure-1-paper', alt="The paper's Figure 1: XNLI by the number of layers kept") as canvas:
    for index, name, points in _as_ours(paper.FIGURE_1, models):
      canvas.axes.plot(list(points), list(points.values()), label=_LABELS[name], alpha=0.55, **drawing.style(index))
    canvas.axes.set_xticks(sorted(next(iter(paper.FIGURE_1.values()))))
    canvas.axes.set(xlabel='layers kept', ylabel='XNLI accuracy')
    canvas.legend()
  caption = f"The paper's Figure 1, read off its chart (± {paper.FIGURE_1_READING:g})."
  return Picture('Figure 1 of the paper', caption, canvas.drawing)


def _as_ours(figure: Mapping, models: Sequence[Model]) -> Iterator[tuple[int, str, Any]]:
  """Curves of the paper with the place among the colours that our model of the same row has; free ones without."""
  ours = {row: index for index, model in reversed(list(enumerate(models))) for row in model.stands_for(4)}
  free = itertools.count(len(models))
  for name, points in figure.items():
    yield ours[name] if name in ours else next(free), name, points


# --- Figure 2 ---------------------------------------------------------------------------------------------------------


def by_layer(model: Model) -> dict[int, Spread]:
  """Layer to the accuracy of nearest-neighbour translation there, 0 to 100, mean over pairs, over seeds; 0 left out."""
  runs = []
  for analysis in model.analyses:
    results = analysis.results or {}
    if analysis.what == 'layer_retrieval' and (curve := _retrieval_curve(results)):
      runs.append(curve)
  layers = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
  return {layer: spread([run[layer] for run in runs]) for layer in layers}


def _retrieval_curve(results: Mapping) -> dict[int, float]:
  layers, mean = results.get('layers'), results.get('mean')
  if not isinstance(layers, list) or not isinstance(mean, list):
    return {}
  is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
  pairs = zip(layers, mean, strict=False)
  return {int(layer): float(value) for layer, value in pairs if is_number(layer) and is_number(value) and layer > 0}


def _figure_2(models: Sequence[Model]) -> list[Block]:
  found = {(index, model.name): curve for index, model in enumerate(models) if (curve := by_layer(model))}
  if not found:
    return []
  with drawing.canvas('figure-2', alt=f'Translations found after each layer, {len(found)} models of ours') as canvas:
    for (index, model), points in found.items():
      canvas.axes.errorbar(
        list(points),
        [each.mean for each in points.values()],
        yerr=[each.deviation or 0 for each in points.values()],
        capsize=3,
        label=drawing.label(model),
        **drawing.style(index),
      )
    layers = sorted({layer for points in found.values() for layer in points})
    canvas.axes.set_xticks(layers if len(layers) <= 16 else layers[:: -(-len(layers) // 16)])
    canvas.axes.set_ylim(bottom=0)
    canvas.axes.set(xlabel='layer', ylabel='translations found (%)')
    canvas.legend()
  with drawing.canvas('figure-2-paper', alt="The paper's Figure 2: translations found after each layer") as theirs:
    for index, name, points in _as_ours(paper.FIGURE_2, models):
      x = range(1, len(points) + 1)
      theirs.axes.plot(x, points, label=_LABELS[name], alpha=0.55, **drawing.style(index))
    theirs.axes.set_xticks(range(1, 13))
    theirs.axes.set_ylim(bottom=0)
    theirs.axes.set(xlabel='layer', ylabel='translations found, EN → DE (%)')
    theirs.legend()
  rows = [[model, *_cells(points, layers)] for (_, model), points in found.items()]
  return [
    Picture(
      'Figure 2',
      'Figure 2 with ours: sentences whose nearest neighbour in the other language, after a shift that is the same for '
      'all, is their translation; mean over pairs of languages, bars are ± sd over seeds.',
      canvas.drawing,
    ),
    Picture(
      'Figure 2 of the paper',
      f"The paper's Figure 2, read off its chart (± {paper.FIGURE_2_READING:g}).",
      theirs.drawing,
    ),
    rows_table('Figure 2 in numbers', ['model', *(f'layer {layer}' for layer in layers)], rows),
  ]
