"""Pre-training over steps: losses of all models in one picture, and held-out text by language."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from rembert.plotting import style
from rembert.report.html import MISSING, Picture, Section, Table, sparkline
from rembert.report.load import Model, Run
from rembert.report.scores import ALL_LANGUAGES, HELD_OUT, Results, of

_LOSS, _ACCURACY = 'eval/loss', 'eval/accuracy'
# As many curves as colour and line can tell apart; of more, the best, the middle and the worst are named.
_MOST_NAMED = 8


def plot_curve(axes: Any, curve: pd.Series, factor: float = 1.0, **look: Any) -> None:
  """Draws a metric over steps, if there is any of it."""
  if len(curve):
    x, y = style.thinned(curve.index, curve)
    axes.plot(x, factor * y, **look)


# --- all languages together -------------------------------------------------------------------------------------------


def losses(results: Results) -> Section:
  """Curves of pre-training: of several models together; of a single one, training and held-out text together."""
  models = [(index, model) for index, model in enumerate(results.models) if any(len(run.metrics) for run in model.runs)]
  if len(models) == 1:
    return Section('Loss', [*_alone(models[0][1])])
  pictures = [
    _overlay(models, _LOSS, 'loss on held-out text (nats)', 'Held-out loss'),
    _overlay(models, _ACCURACY, 'masked pieces predicted (%)', 'MLM accuracy', factor=100.0),
    _overlay(models, 'loss', 'training loss (nats)', 'Training loss'),
  ]
  sizes = {run.model.vocab_size for _, model in models for run in model.runs if run.model is not None}
  warnings = [_VOCABULARIES_DIFFER] if len(sizes) > 1 else []
  return Section('Loss', [*warnings, *(picture for picture in pictures if picture is not None)])


_VOCABULARIES_DIFFER = (
  'The vocabularies differ, and loss is counted per piece: a curve says nothing of another vocabulary’s.'
)


def _overlay(
  models: Sequence[tuple[int, Model]], key: str, ylabel: str, title: str, factor: float = 1.0
) -> Picture | None:
  found = [(index, model.name, [run.curve(key) for run in model.runs]) for index, model in models]
  drawn = [(index, name, curves) for index, name, each in found if (curves := [curve for curve in each if len(curve)])]
  if not drawn:
    return None
  with style.canvas() as canvas:
    for index, name, curves in drawn:
      for number, curve in enumerate(curves):
        look = style.line_style(index) | {'marker': '', 'alpha': 0.9}
        plot_curve(canvas.axes, curve, factor, label=None if number else style.label(name), **look)
    canvas.axes.set_ylabel(ylabel)
    style.step_axis(canvas.axes)
    canvas.legend()
  last = [(factor * statistics.fmean(curve.iloc[-1] for curve in curves), name) for _, name, curves in drawn]
  (best, best_name), *others = sorted(last, reverse=factor != 1.0)
  caption = f'{title}; a line for each seed. Best at the end: {best_name} ({best:.2f})'
  caption += f'; last: {others[-1][1]} ({others[-1][0]:.2f})' if others else ''
  return Picture(title, f'{caption}.', f'{title} of {len(drawn)} models over steps', canvas)


def _alone(model: Model) -> Iterator[Picture]:
  entropies = [run.last('eval/unigram_entropy') for run in model.runs]
  entropy = next((value for value in entropies if value is not None), None)
  caption = 'Loss in training and on held-out text'
  if (last := model.runs[0].last(_LOSS)) is not None:
    caption += f', {last:.3f} nats at the end'
  if entropy is not None:
    caption += f'; knowing nothing but how frequent each piece is costs {entropy:.3f}'
  alt = f'Loss of {model.name} over steps, in training and on held-out text'
  yield Picture('Loss', f'{caption}.', alt, _training_and_held_out(model, 'loss', 'loss (nats)', baseline=entropy))
  if any(len(run.curve(_ACCURACY)) for run in model.runs):
    caption = 'Masked pieces that are predicted'
    if (last := model.runs[0].last(_ACCURACY)) is not None:
      caption += f', {100 * last:.1f} % at the end'
    alt = f'Share of masked pieces that {model.name} predicts, over steps'
    drawing = _training_and_held_out(model, 'accuracy', 'masked pieces predicted (%)', factor=100.0)
    yield Picture('MLM accuracy', f'{caption}.', alt, drawing)


def _training_and_held_out(
  model: Model, key: str, ylabel: str, factor: float = 1.0, baseline: float | None = None
) -> style.Canvas:
  with style.canvas() as canvas:
    axes = canvas.axes
    for number, run in enumerate(model.runs):
      label = lambda words, number=number: None if number else words
      training, held_out = run.curve(key), run.curve(f'eval/{key}')
      plot_curve(axes, training, factor, color=style.FAINT, linewidth=1.1, label=label('training'))
      look = {'color': style.BLUE, 'marker': 'o', 'markersize': 4, 'linewidth': 1.9}
      plot_curve(axes, held_out, factor, label=label('held out'), **look)
    if baseline is not None:
      axes.axhline(baseline, color=style.RED, linestyle='--', linewidth=1.4, label='frequency alone')
    axes.set_ylabel(ylabel)
    style.step_axis(axes)
    canvas.legend()
  return canvas


# --- language by language ---------------------------------------------------------------------------------------------


def languages(results: Results) -> Section:
  """Held-out text by language: a picture per model, and the last evaluation."""
  evaluated = [
    (index, model.name, run)
    for index, model in enumerate(results.models)
    if (run := next((run for run in model.runs if run.parts_of(_LOSS)), None)) is not None
  ]
  pictures = [_languages_picture(name, run, index, len(evaluated)) for index, name, run in evaluated]
  tables = [_last_losses(results)] if len(evaluated) > 1 else [_each_language(run) for _, _, run in evaluated]
  return Section('Languages', [*pictures, *tables])


def _languages_picture(name: str, run: Run, index: int, models: int) -> Picture:
  curves = {language: run.curve(f'{_LOSS}/{language}') for language in run.parts_of(_LOSS)}
  by_loss = sorted((curve.iloc[-1], language) for language, curve in curves.items())
  is_named = len(curves) <= _MOST_NAMED
  thin = {'color': style.line_style(index)['color'], 'linewidth': 0.9, 'alpha': 0.6}
  with style.canvas() as canvas:
    for number, (language, curve) in enumerate(curves.items()):
      look = style.line_style(number) | {'marker': '', 'label': style.label(language)} if is_named else thin
      plot_curve(canvas.axes, curve, **look)
      if len(curve) == 1:
        canvas.axes.plot(curve.index, curve, marker='o', markersize=3, color=look['color'])
    if not is_named:
      for loss, language in {by_loss[0], by_loss[len(by_loss) // 2], by_loss[-1]}:
        point = (curves[language].index[-1], loss)
        style.name_point(canvas.axes, style.label(language, 12), point, xytext=(4, 0), fontsize=9.5)
    canvas.axes.set_ylabel('held-out loss (nats)')
    if models > 1:
      canvas.axes.set_title(style.label(name, 48), loc='left')
    style.step_axis(canvas.axes)
    canvas.legend()
  caption = f'{name}: {len(curves)} languages. ' if models > 1 else f'{len(curves)} languages. '
  caption += f'Lowest at the end: {by_loss[0][1]} ({by_loss[0][0]:.2f} nats)'
  caption += f'; highest: {by_loss[-1][1]} ({by_loss[-1][0]:.2f}).' if len(by_loss) > 1 else '.'
  alt = f'Held-out loss of {name} in {len(curves)} languages over steps'
  return Picture(f'Languages of {name}', caption, alt, canvas)


def _each_language(run: Run) -> Table:
  curves = {language: run.curve(f'{_LOSS}/{language}') for language in run.parts_of(_LOSS)}
  curves = dict(sorted(curves.items(), key=lambda item: item[1].iloc[-1]))
  accuracies = [run.last(f'{_ACCURACY}/{language}') for language in curves]
  frame = pd.DataFrame(
    {
      'curve': [' '.join(f'{loss:.3f}' for loss in curve) for curve in curves.values()],
      'first loss': [f'{curve.iloc[0]:.3f}' for curve in curves.values()],
      'last loss': [f'{curve.iloc[-1]:.3f}' for curve in curves.values()],
      'accuracy': [MISSING if each is None else f'{100 * each:.1f} %' for each in accuracies],
    },
    pd.Index(curves, name='language'),
  )
  sparks = [
    sparkline(curve.tolist(), f'{language}: from {curve.iloc[0]:.2f} to {curve.iloc[-1]:.2f} nats')
    for language, curve in curves.items()
  ]
  notes = ['Of held-out text, in nats; the lowest loss first. Losses of languages are not of one kind: pieces differ.']
  return Table('Each language', frame, notes, drawn={'curve': sparks})


def _last_losses(results: Results) -> Table:
  held_out = of(results.scores, task=HELD_OUT, metric='loss')
  by_language = held_out[held_out['language'] != ALL_LANGUAGES]
  last = by_language.pivot_table(index='language', columns='model', values='value', sort=False).sort_index()
  best = last.eq(last.min(axis='columns'), axis='index')
  notes = ['Held-out loss in nats at the last evaluation, mean over seeds; the lowest of each language in bold.']
  frame = last.map(lambda loss: MISSING if pd.isna(loss) else f'{loss:.3f}')
  return Table('Languages of all models', frame, notes, lambda row, column: 'best' if best.at[row, column] else '')
