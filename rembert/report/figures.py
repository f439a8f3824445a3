"""Plots of a report: pre-training over steps, eval loss by language, and the paper's two figures with our models."""

import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rembert import paper
from rembert.plotting import style
from rembert.report.html import MISSING, Block, Picture, Section, Table
from rembert.report.load import Model, Run
from rembert.report.scores import ALL_LANGUAGES, HELD_OUT, SEEDS, Results, of
from tasks.xtreme.leaderboard import NAMES, spread

_LOSS, _ACCURACY = 'eval/loss', 'eval/accuracy'
_KEEPS = r'RemBertConfig\.num_hidden_layers\s*=\s*(\d+)'
_LABELS = {row.name: row.label for row in paper.TABLES[4]}


# --- pre-training, all languages together -----------------------------------------------------------------------------


def losses(results: Results) -> Section:
  """Pre-training curves: one plot of all models, or training and eval loss of a single one."""
  models = [
    (index, model) for index, model in enumerate(results.models) if any(len(run.metrics) for run in model.pretrained)
  ]
  if len(models) == 1:
    return Section('Loss', [*_single_model(models[0][1])])
  pictures = [
    *_overlay(models, _LOSS, 'eval loss (nats)', 'Eval loss'),
    *_overlay(models, _ACCURACY, 'MLM accuracy (%)', 'MLM accuracy', factor=100.0),
    *_overlay(models, 'loss', 'training loss (nats)', 'Training loss'),
  ]
  sizes = {run.model.vocab_size for _, model in models for run in model.pretrained if run.model is not None}
  warning = 'The vocabularies differ. Loss is per token, so curves of different vocabularies cannot be compared.'
  return Section('Loss', [*([warning] if len(sizes) > 1 else []), *pictures])


def _overlay(
  models: Sequence[tuple[int, Model]], key: str, ylabel: str, title: str, factor: float = 1.0
) -> Iterator[Picture]:
  """One plot of all models, if any has the metric."""
  lines, last = [], []
  for index, model in models:
    curves = [factor * curve for run in model.pretrained if len(curve := run.curve(key))]
    if curves:
      last.append((statistics.fmean(curve.iloc[-1] for curve in curves), model.name))
    for number, curve in enumerate(curves):
      label = None if number else style.label(model.name)
      lines.append((curve.index, curve, style.line_style(index) | {'marker': '', 'alpha': 0.9, 'label': label}))
  if last:
    (best, best_name), *others = sorted(last, reverse=factor != 1.0)
    caption = f'{title}; one line per seed. Best at the end: {best_name} ({best:.2f})'
    caption += f'; last: {others[-1][1]} ({others[-1][0]:.2f})' if others else ''
    alt = f'{title} of {len(last)} models over steps'
    yield Picture(title, f'{caption}.', alt, style.plot_lines(lines, ylabel))


def _single_model(model: Model) -> Iterator[Picture]:
  """Training and eval curves of the loss, with the unigram baseline, and of the accuracy."""
  loss, accuracy, entropy = (
    next((value for run in model.pretrained if (value := run.last(key)) is not None), None)
    for key in (_LOSS, _ACCURACY, 'eval/unigram_entropy')
  )
  caption = 'Training and eval loss' + (f', {loss:.3f} nats at the end' if loss is not None else '')
  caption += f'; the unigram baseline has {entropy:.3f}.' if entropy is not None else '.'
  drawing = style.plot_lines(_both_curves(model, 'loss'), 'loss (nats)', baseline=('unigram baseline', entropy))
  yield Picture('Loss', caption, f'Training and eval loss of {model.name} over steps', drawing)
  if accuracy is not None:
    drawing = style.plot_lines(_both_curves(model, 'accuracy', 100.0), 'MLM accuracy (%)')
    caption = f'MLM accuracy, {100 * accuracy:.1f} % at the end.'
    yield Picture('MLM accuracy', caption, f'MLM accuracy of {model.name} over steps', drawing)


def _both_curves(model: Model, key: str, factor: float = 1.0) -> Iterator[tuple[pd.Index, pd.Series, dict]]:
  looks = {
    key: {'color': style.FAINT, 'linewidth': 1.1, 'label': 'training'},
    f'eval/{key}': {'color': style.BLUE, 'marker': 'o', 'markersize': 4, 'linewidth': 1.9, 'label': 'eval'},
  }
  for number, run in enumerate(model.pretrained):
    for name, look in looks.items():
      curve = run.curve(name)
      yield curve.index, factor * curve, look | ({'label': None} if number else {})


# --- pre-training, language by language -------------------------------------------------------------------------------


def languages(results: Results) -> Section:
  """Eval loss by language: a plot per model, and the last evaluation."""
  evaluated = [
    (index, model.name, run)
    for index, model in enumerate(results.models)
    if (run := next((run for run in model.pretrained if run.parts_of(_LOSS)), None)) is not None
  ]
  pictures = [_languages_picture(name, run, index, len(evaluated)) for index, name, run in evaluated]
  return Section('Languages', [*pictures, _last_losses(results)] if pictures else [])


def _languages_picture(name: str, run: Run, index: int, models: int) -> Picture:
  curves = {language: run.curve(f'{_LOSS}/{language}') for language in run.parts_of(_LOSS)}
  look = {'color': style.line_style(index)['color'], 'linewidth': 0.9, 'alpha': 0.6, 'marker': 'o', 'markersize': 2}
  lines = [(curve.index, curve, look) for curve in curves.values()]
  ends = sorted(((language, float(curve.iloc[-1])) for language, curve in curves.items()), key=lambda end: end[1])
  named = dict.fromkeys((ends[0], ends[len(ends) // 2], ends[-1]))
  drawing = style.plot_lines(
    lines,
    'eval loss (nats)',
    title=style.label(name, 48) if models > 1 else '',
    names=[(style.label(language, 12), (curves[language].index[-1], loss)) for language, loss in named],
  )
  caption = f'{name}: {len(curves)} languages. ' if models > 1 else f'{len(curves)} languages. '
  caption += f'Lowest at the end: {ends[0][0]} ({ends[0][1]:.2f} nats)'
  caption += f'; highest: {ends[-1][0]} ({ends[-1][1]:.2f}).' if len(ends) > 1 else '.'
  alt = f'Eval loss of {name} in {len(curves)} languages over steps'
  return Picture(f'Languages of {name}', caption, alt, drawing)


def _last_losses(results: Results) -> Table:
  held_out = of(results.scores, task=HELD_OUT, metric='loss')
  by_language = held_out[held_out['language'] != ALL_LANGUAGES]
  last = by_language.pivot_table(index='language', columns='model', values='value', sort=False).sort_index()
  are_several = len(last.columns) > 1
  best = last.eq(last.min(axis='columns'), axis='index') & are_several
  notes = ['Eval loss in nats at the last evaluation, mean over seeds.']
  notes += ['The lowest loss of each language is bold.'] if are_several else []
  frame = last.map(lambda loss: MISSING if pd.isna(loss) else f'{loss:.3f}')
  caption = 'Languages of all models' if are_several else 'Each language'
  return Table(caption, frame, notes, lambda row, column: 'best' if best.at[row, column] else '')


# --- the paper's figures ----------------------------------------------------------------------------------------------


def figures(results: Results) -> Section:
  """The paper's two figures, if there are results for them."""
  return Section('Figures 1 and 2', [*_figure_1(results), *_figure_2(results.models)])


def _plot(values: pd.DataFrame, by: str, models: Sequence[Model], ylabel: str, **options: Any) -> style.Canvas:
  """Plots a line per model: mean and standard deviation over seeds."""
  lines = []
  for index, model in enumerate(models):
    points = of(values, model=model.name).groupby(by)['value'].agg(['mean', 'std'])
    if len(points):
      look = style.line_style(index) | {'capsize': 3, 'label': style.label(model.name)}
      lines.append((points.index, points['mean'], look | {'yerr': points['std'].fillna(0)}))
  return style.plot_lines(lines, ylabel, **options)


def _paper_figure(number: int, models: Sequence[Model], words: str, ylabel: str, **options: Any) -> Picture:
  curves, reading = {1: (paper.FIGURE_1, paper.FIGURE_1_READING), 2: (paper.FIGURE_2, paper.FIGURE_2_READING)}[number]
  lines = [
    (list(points), list(points.values()), {'label': _LABELS[name], 'alpha': 0.55, **style.line_style(index)})
    for index, name, points in in_our_colours(curves, models)
  ]
  caption = f"The paper's Figure {number}, read off its chart (± {reading:g})."
  drawing = style.plot_lines(lines, ylabel, **options)
  return Picture(f'Figure {number} of the paper', caption, f"The paper's Figure {number}: {words}", drawing)


def in_our_colours(curves: Mapping[str, Any], models: Sequence[Model]) -> Iterator[tuple[int, str, Any]]:
  """The paper's curves, in the colour of our model of the same row, or else in a colour of no model."""
  ours = {row: index for index, model in reversed(list(enumerate(models))) for table, row in model.rows if table == 4}
  free = itertools.count(len(models))
  for name, points in curves.items():
    yield ours[name] if name in ours else next(free), name, points


def _numbers(caption: str, values: pd.DataFrame, by: str, column: str) -> Table:
  """A table with a row per model and a column per number of layers: mean and standard deviation over seeds."""
  text = lambda of_seeds: str(spread(of_seeds.tolist()))
  frame = values.groupby(['model', by], sort=False)['value'].agg(text).unstack(by, fill_value=MISSING, sort=False)
  return Table(caption, frame.sort_index(axis='columns').rename(columns=column.format))


def by_kept_layers(results: Results) -> pd.DataFrame:
  """`model`, `task`, number of `layers` that fine-tuning kept, and `value`: the mean over languages, per seed.

  Excludes models that drop layers for another reason (Table 5), and tasks with a single number of layers.
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
  pictures: list[Block] = []
  tables: list[Block] = []
  for task, of_task in found.groupby('task', sort=False):
    name, layers = NAMES.get(task, task), sorted(of_task['layers'].unique())
    tables.append(_numbers(f'Figure 1 in numbers: {name}', of_task, 'layers', '{} layers'))
    ylabel = f'{name}, mean over languages'
    picture = Picture(
      f'Figure 1 {name}',
      f'Figure 1, our models: {name} if fine-tuning keeps only the bottom layers; bars are ± sd over seeds.',
      f'{name} by the number of layers kept, {of_task["model"].nunique()} of our models',
      _plot(of_task, 'layers', results.models, ylabel, xlabel='layers kept', ticks=layers),
    )
    pictures.insert(0 if task == 'xnli' else len(pictures), picture)
  if pictures:
    layers = sorted(next(iter(paper.FIGURE_1.values())))
    words, options = 'XNLI by the number of layers kept', {'xlabel': 'layers kept', 'ticks': layers}
    pictures.insert(1, _paper_figure(1, results.models, words, 'XNLI accuracy', **options))
  return [*pictures, *tables]


def by_layer(models: Sequence[Model]) -> pd.DataFrame:
  """`model`, `layer` and `value`: translation retrieval accuracy, mean over pairs, per seed.

  Excludes the embeddings (layer 0), and layers that some seed of a model lacks.
  """
  rows = []
  for model in models:
    curves = [dict(zip(found['layers'], found['mean'], strict=True)) for found in model.results('layer_retrieval')]
    for layer in sorted(set.intersection(*map(set, curves)) - {0}) if curves else ():
      rows += [(model.name, layer, curve[layer]) for curve in curves]
  return pd.DataFrame(rows, columns=['model', 'layer', 'value'])


def _figure_2(models: Sequence[Model]) -> list[Block]:
  found = by_layer(models)
  if found.empty:
    return []
  layers = sorted(found['layer'].unique())
  ticks = layers if len(layers) <= 16 else layers[:: -(-len(layers) // 16)]
  ours = _plot(found, 'layer', models, 'retrieval accuracy (%)', xlabel='layer', ticks=ticks, starts_at_zero=True)
  words, ylabel = 'translation retrieval by layer', 'retrieval accuracy, EN → DE (%)'
  theirs = _paper_figure(2, models, words, ylabel, xlabel='layer', ticks=range(1, 13), starts_at_zero=True)
  caption = (
    'Figure 2, our models: fraction of sentences whose nearest neighbour in the other language, after a shift common '
    'to all sentences, is their translation; mean over language pairs, bars are ± sd over seeds.'
  )
  return [
    Picture('Figure 2', caption, f'Translation retrieval by layer, {found["model"].nunique()} models', ours),
    theirs,
    _numbers('Figure 2 in numbers', found, 'layer', 'layer {}'),
  ]
