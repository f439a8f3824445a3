"""Pictures of a run, and of what it reads."""

import io
import math
from collections.abc import Mapping

from etils import epath

from rembert.data.mixture import sampling_rates
from rembert.storage import write_whole
from rembert.training.tracking import read_jsonl


class LossPicture:
  """A tracker that draws `plot_loss` anew after every evaluation; to be told after the one that writes the metrics."""

  def __init__(self, metrics_file: epath.PathLike, picture: epath.PathLike):
    self._metrics_file, self._picture = metrics_file, picture

  def log(self, metrics: Mapping[str, float], *, step: int) -> None:
    """See `rembert.training.tracking.Tracker`."""
    del step
    if 'eval/loss' in metrics:
      plot_loss(self._metrics_file, self._picture)

  def close(self) -> None:
    """Nothing is open."""


def plot_loss(metrics_file: epath.PathLike, picture: epath.PathLike) -> None:
  """Draws training loss, held-out loss, and the loss that frequency alone would give, over steps; writes a PNG at once.

  Where there are languages, their held-out losses are drawn thin behind; the best and the worst are named.
  """
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  rows = read_jsonl(metrics_file)
  training = [(row['step'], row['loss']) for row in rows if 'loss' in row]
  evaluations = [row for row in rows if 'eval/loss' in row]

  figure = Figure(figsize=(9, 5), dpi=120, layout='constrained')
  FigureCanvasAgg(figure)
  axes = figure.add_subplot()
  if training:
    axes.plot(*zip(*training, strict=True), color='#9aa5b1', linewidth=1, label='training')
  languages = sorted({name.rsplit('/', 1)[1] for row in evaluations for name in row if name.startswith('eval/loss/')})
  for language in languages:
    points = [(row['step'], row[f'eval/loss/{language}']) for row in evaluations if f'eval/loss/{language}' in row]
    axes.plot(*zip(*points, strict=True), color='#1f6feb', linewidth=0.6, alpha=0.25)
  if evaluations:
    last = evaluations[-1]
    axes.plot(
      [row['step'] for row in evaluations],
      [row['eval/loss'] for row in evaluations],
      color='#1f6feb',
      linewidth=2,
      marker='o',
      markersize=4,
      label=f'held out, {len(languages)} languages' if languages else 'dev',
    )
    if 'eval/unigram_entropy' in last:
      axes.axhline(
        last['eval/unigram_entropy'], color='#d1242f', linestyle='--', linewidth=1.2, label='frequency alone'
      )
    named = sorted(
      (last[f'eval/loss/{language}'], language) for language in languages if f'eval/loss/{language}' in last
    )
    for loss, language in {named[0], named[-1]} if len(named) > 1 else ():
      axes.annotate(language, (last['step'], loss), xytext=(5, 0), textcoords='offset points', va='center', fontsize=8)
    axes.annotate(
      f'{last["eval/loss"]:.2f}',
      (last['step'], last['eval/loss']),
      xytext=(5, 0),
      textcoords='offset points',
      va='center',
      color='#1f6feb',
      weight='bold',
    )
  drawn = [loss for _, loss in training]
  drawn += [row[name] for row in evaluations for name in ('eval/loss', 'eval/unigram_entropy') if name in row]
  axes.set_ylim(bottom=0, top=1.08 * max(filter(math.isfinite, drawn), default=1.0))
  axes.set(xlabel='step', ylabel='loss (nats)')
  axes.grid(alpha=0.25)
  axes.spines[['top', 'right']].set_visible(False)
  if training or evaluations:
    axes.legend(frameon=False)
  _save(figure, picture)


def plot_languages(sentences: Mapping[str, int], tokens: Mapping[str, int], picture: epath.PathLike) -> None:
  """Draws how much there is of every language, and how often it would be drawn with α of 1, 0.7 and 0.5; a PNG.

  Args:
    sentences: in the training documents; the rates rest on them.
    tokens: likewise; languages without any are not drawn.
    picture: the file.
  """
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  languages = sorted((language for language in tokens if tokens[language]), key=lambda language: -tokens[language])
  figure = Figure(figsize=(max(6.0, 2 + 0.16 * len(languages)), 6), dpi=110, layout='constrained')
  FigureCanvasAgg(figure)
  size, share = figure.subplots(2, 1, sharex=True)
  size.bar(range(len(languages)), [tokens[language] for language in languages], color='#1f6feb', alpha=0.8)
  size.set(yscale='log', ylabel='tokens')
  for alpha, color in (1.0, '#9aa5b1'), (0.7, '#bf8700'), (0.5, '#1f6feb'):
    rates = sampling_rates({language: sentences[language] for language in languages}, alpha)
    drawn = [100 * rates.get(language, math.nan) for language in languages]
    share.plot(drawn, color=color, marker='.', linewidth=1, label=f'α = {alpha:g}' + (', as they come' * (alpha == 1)))
  share.set(yscale='log', ylabel='share of the rows (%)')
  share.set_xticks(range(len(languages)), languages, rotation=90, fontsize=7)
  share.set_xlim(-1, len(languages))
  for axes in size, share:
    axes.grid(alpha=0.25, axis='y')
    axes.spines[['top', 'right']].set_visible(False)
  if languages:
    share.legend(frameon=False)
  _save(figure, picture)


def _save(figure, picture: epath.PathLike) -> None:
  content = io.BytesIO()
  figure.savefig(content, format='png')
  write_whole(picture, content.getvalue())
