"""Loss over steps: all models in one picture, held out and in training; a model alone as it is drawn in its workdir."""

from collections.abc import Sequence

from rembert.report import drawing
from rembert.report.page import Picture, Section
from rembert.report.reading import Model, Source
from rembert.report.sections.models import all_models


def section(sources: Sequence[Source]) -> Section:
  """Curves of pre-training."""
  models = [(index, model) for index, model in enumerate(all_models(sources)) if any(run.metrics for run in model.runs)]
  if not models:
    return Section('Loss', [])
  if len(models) == 1:
    return Section('Loss', [*_alone(models[0][1])])
  pictures = [
    _overlay(models, 'eval/loss', 'loss on held-out text (nats)', 'Held-out loss'),
    _overlay(models, 'eval/accuracy', 'masked pieces predicted (%)', 'MLM accuracy', factor=100.0),
    _overlay(models, 'loss', 'training loss (nats)', 'Training loss'),
  ]
  sizes = {run.model.vocab_size for _, model in models for run in model.runs if run.model is not None}
  words = [_PIECES_DIFFER] if len(sizes) > 1 else []
  return Section('Loss', [*words, *(picture for picture in pictures if picture is not None)])


_PIECES_DIFFER = 'The vocabularies differ, and loss is counted per piece: a curve says nothing of another vocabulary’s.'


def _overlay(
  models: Sequence[tuple[int, Model]], key: str, ylabel: str, title: str, factor: float = 1.0
) -> Picture | None:
  drawn = [(index, model) for index, model in models if any(run.curve(key)[0] for run in model.runs)]
  if not drawn:
    return None
  said = []
  alt = f'{title} of {len(drawn)} models over steps'
  with drawing.canvas(f'loss-{key}'.replace('/', '-'), alt=alt) as canvas:
    for index, model in drawn:
      look = drawing.style(index) | {'marker': ''}
      text = drawing.label(model.name)
      for run in model.runs:
        steps, values = run.curve(key)
        if steps:
          x, y = drawing.thinned(steps, values)
          canvas.axes.plot(x, y * factor, label=text, alpha=0.9, **look)
          text = None
      last = [value for run in model.runs if (value := run.last(key)) is not None]
      said.append((sum(last) / len(last) * factor, model.name))
    canvas.axes.set_ylabel(ylabel)
    drawing.step_axis(canvas.axes)
    canvas.legend()
  ordered = sorted(said, reverse=factor != 1.0)
  caption = f'{title}; a line for each seed. Best at the end: {ordered[0][1]} ({ordered[0][0]:.2f})'
  if len(ordered) > 1:
    caption += f'; last: {ordered[-1][1]} ({ordered[-1][0]:.2f})'
  return Picture(title, f'{caption}.', canvas.drawing)


def _alone(model: Model):
  blue, red = drawing.SERIES[:2]
  with drawing.canvas('loss', alt=f'Loss of {model.name} over steps, in training and on held-out text') as canvas:
    entropy = None
    for number, run in enumerate(model.runs):
      text = lambda words, number=number: None if number else words
      steps, values = run.curve('loss')
      if steps:
        canvas.axes.plot(*drawing.thinned(steps, values), color=drawing.FAINT, linewidth=1.1, label=text('training'))
      steps, values = run.curve('eval/loss')
      if steps:
        canvas.axes.plot(
          *drawing.thinned(steps, values), color=blue, marker='o', markersize=4, linewidth=1.9, label=text('held out')
        )
      entropy = run.last('eval/unigram_entropy') if entropy is None else entropy
    if entropy is not None:
      canvas.axes.axhline(entropy, color=red, linestyle='--', linewidth=1.4, label='frequency alone')
    canvas.axes.set_ylabel('loss (nats)')
    drawing.step_axis(canvas.axes)
    canvas.legend()
  last = model.runs[0].last('eval/loss')
  caption = 'Loss in training and on held-out text'
  caption += f', {last:.3f} nats at the end' if last is not None else ''
  caption += f'; knowing nothing but how frequent each piece is costs {entropy:.3f}' if entropy is not None else ''
  yield Picture('Loss', f'{caption}.', canvas.drawing)
  if any(run.curve('eval/accuracy')[0] for run in model.runs):
    with drawing.canvas('accuracy', alt=f'Share of masked pieces that {model.name} predicts, over steps') as canvas:
      for number, run in enumerate(model.runs):
        for key, look, words in (
          ('accuracy', {'color': drawing.FAINT, 'linewidth': 1.1}, 'training'),
          ('eval/accuracy', {'color': blue, 'marker': 'o', 'markersize': 4, 'linewidth': 1.9}, 'held out'),
        ):
          steps, values = run.curve(key)
          if steps:
            x, y = drawing.thinned(steps, values)
            canvas.axes.plot(x, 100 * y, label=None if number else words, **look)
      canvas.axes.set_ylabel('masked pieces predicted (%)')
      drawing.step_axis(canvas.axes)
      canvas.legend()
    last = model.runs[0].last('eval/accuracy')
    caption = 'Masked pieces that are predicted' + (f', {100 * last:.1f} % at the end' if last is not None else '')
    yield Picture('MLM accuracy', f'{caption}.', canvas.drawing)
