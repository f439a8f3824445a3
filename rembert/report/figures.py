"""The paper's two figures with our models: accuracy by the layers that are kept, and translations found by layer."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rembert import paper
from rembert.plotting import style
from rembert.report.html import MISSING, Block, Picture, Section, Table
from rembert.report.load import Model
from rembert.report.scores import SEEDS, Results
from tasks.xtreme.leaderboard import NAMES, spread

_KEEPS = r'RemBertConfig\.num_hidden_layers\s*=\s*(\d+)'
_LABELS = {row.name: row.label for row in paper.TABLES[4]}


def figures(results: Results) -> Section:
  """Both figures, as far as there are numbers."""
  return Section('Figures 1 and 2', [*_figure_1(results), *_figure_2(results.models)])


def _plot(canvas: style.Canvas, values: pd.DataFrame, by: str, models: Sequence[Model]) -> None:
  """A line per model: the mean over seeds, and its deviation."""
  for index, model in enumerate(models):
    points = values[values['model'] == model.name].groupby(by)['value'].agg(['mean', 'std'])
    if len(points):
      look = style.line_style(index) | {'capsize': 3, 'label': style.label(model.name)}
      canvas.axes.errorbar(points.index, points['mean'], yerr=points['std'].fillna(0), **look)


def _numbers(values: pd.DataFrame, by: str) -> pd.DataFrame:
  """A row per model, a column per number of layers: mean and deviation over seeds as text."""
  text = lambda of_seeds: str(spread(of_seeds.tolist()))
  frame = values.groupby(['model', by], sort=False)['value'].agg(text).unstack(by, fill_value=MISSING, sort=False)
  return frame.sort_index(axis='columns')


def _plot_paper(canvas: style.Canvas, curves: Mapping[str, tuple], models: Sequence[Model]) -> None:
  for index, name, (x, y) in in_our_colours(curves, models):
    canvas.axes.plot(x, y, label=_LABELS[name], alpha=0.55, **style.line_style(index))


def in_our_colours(curves: Mapping[str, Any], models: Sequence[Model]) -> Iterator[tuple[int, str, Any]]:
  """Curves of the paper with the colour of our model of the same row, or else with one that no model has."""
  ours = {row: index for index, model in reversed(list(enumerate(models))) for table, row in model.rows if table == 4}
  free = itertools.count(len(models))
  for name, points in curves.items():
    yield ours[name] if name in ours else next(free), name, points


# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def by_kept_layers(results: Results) -> pd.DataFrame:
  """`model`, `task`, `layers` that fine-tuning kept, and `value`: the mean over languages of each seed.

  Models are left out whose layers are cut for another reason (Table 5), and tasks with one number of layers alone.
  """
  depths = {model.name: model.config and model.config.num_hidden_layers for model in results.models}
  cut = [model.name for model in results.models if model.kept_layers is not None]
  worths = results.worths[~results.worths['model'].isin(cut)]
  named = worths['variant'].map(re.compile(_KEEPS).fullmatch)
  kept = named.map(lambda match: float(match[1]) if match else math.nan)
  kept = kept.where(worths['variant'] != '', worths['model'].map(depths).astype(float))
  values = worths.assign(layers=kept).dropna(subset='layers').astype({'layers': int})
  values = values.groupby(['model', 'task', 'layers', *SEEDS], sort=False)['value'].mean().reset_index()
  return values[values.groupby(['model', 'task'])['layers'].transform('nunique') > 1]


def _figure_1(results: Results) -> list[Block]:
  found = by_kept_layers(results)
  tasks = list(dict.fromkeys(found['task']))
  pictures: list[Block] = []
  for task in sorted(tasks, key=lambda task: task != 'xnli'):
    name, of_task = NAMES.get(task, task), found[found['task'] == task]
    with style.canvas() as canvas:
      _plot(canvas, of_task, 'layers', results.models)
      canvas.axes.set_xticks(sorted(of_task['layers'].unique()))
      canvas.axes.set(xlabel='layers kept', ylabel=f'{name}, mean over languages')
      canvas.legend()
    alt = f'{name} by the number of layers kept, {of_task["model"].nunique()} models of ours'
    caption = f'Figure 1 with ours: {name} when fine-tuning keeps the bottom layers alone; bars are ± sd over seeds.'
    pictures.append(Picture(f'Figure 1 {name}', caption, alt, canvas))
    if len(pictures) == 1:
      pictures.append(_figure_1_of_the_paper(results.models))
  tables = []
  for task in tasks:
    numbers = _numbers(found[found['task'] == task], 'layers').rename(columns='{} layers'.format)
    tables.append(Table(f'Figure 1 in numbers: {NAMES.get(task, task)}', numbers))
  return [*pictures, *tables]


def _figure_1_of_the_paper(models: Sequence[Model]) -> Picture:
  with style.canvas() as canvas:
    curves = {name: (list(points), list(points.values())) for name, points in paper.FIGURE_1.items()}
    _plot_paper(canvas, curves, models)
    canvas.axes.set_xticks(sorted(next(iter(paper.FIGURE_1.values()))))
    canvas.axes.set(xlabel='layers kept', ylabel='XNLI accuracy')
    canvas.legend()
  caption = f"The paper's Figure 1, read off its chart (± {paper.FIGURE_1_READING:g})."
  alt = "The paper's Figure 1: XNLI by the number of layers kept"
  return Picture('Figure 1 of the paper', caption, alt, canvas)


# --- Figure 2 ---------------------------------------------------------------------------------------------------------


def by_layer(models: Sequence[Model]) -> pd.DataFrame:
  """`model`, `layer` and `value`: accuracy of nearest-neighbour translation, mean over pairs, of each seed.

  The embeddings, layer 0, are left out, and so are layers that not every seed of a model has.
  """
  rows = []
  for model in models:
    curves = [_retrieval_curve(each.results or {}) for each in model.analyses if each.what == 'layer_retrieval']
    curves = [curve for curve in curves if curve]
    for layer in sorted(set.intersection(*map(set, curves))) if curves else ():
      rows += [(model.name, layer, curve[layer]) for curve in curves]
  return pd.DataFrame(rows, columns=['model', 'layer', 'value'])


def _retrieval_curve(results: Mapping) -> dict[int, float]:
  layers, mean = results.get('layers'), results.get('mean')
  if not isinstance(layers, list) or not isinstance(mean, list):
    return {}
  is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
  pairs = zip(layers, mean, strict=False)
  return {int(layer): float(value) for layer, value in pairs if is_number(layer) and is_number(value) and layer > 0}


def _figure_2(models: Sequence[Model]) -> list[Block]:
  found = by_layer(models)
  if found.empty:
    return []
  layers = sorted(found['layer'].unique())
  with style.canvas() as canvas:
    _plot(canvas, found, 'layer', models)
    canvas.axes.set_xticks(layers if len(layers) <= 16 else layers[:: -(-len(layers) // 16)])
    canvas.axes.set_ylim(bottom=0)
    canvas.axes.set(xlabel='layer', ylabel='translations found (%)')
    canvas.legend()
  with style.canvas() as theirs:
    curves = {name: (range(1, len(points) + 1), points) for name, points in paper.FIGURE_2.items()}
    _plot_paper(theirs, curves, models)
    theirs.axes.set_xticks(range(1, 13))
    theirs.axes.set_ylim(bottom=0)
    theirs.axes.set(xlabel='layer', ylabel='translations found, EN → DE (%)')
    theirs.legend()
  caption = (
    'Figure 2 with ours: sentences whose nearest neighbour in the other language, after a shift that is the same for '
    'all, is their translation; mean over pairs of languages, bars are ± sd over seeds.'
  )
  of_the_paper = f"The paper's Figure 2, read off its chart (± {paper.FIGURE_2_READING:g})."
  return [
    Picture('Figure 2', caption, f'Translations found after each layer, {found["model"].nunique()} models', canvas),
    Picture('Figure 2 of the paper', of_the_paper, "The paper's Figure 2: translations found after each layer", theirs),
    Table('Figure 2 in numbers', _numbers(found, 'layer').rename(columns='layer {}'.format)),
  ]
