"""Pictures of a run."""

import io
import math

from etils import epath

from rembert.storage import write_whole
from rembert.training.tracking import read_jsonl


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
      label=f'held out, {len(languages)} languages',
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
  axes.set(xlabel='step', ylabel='masked-language-model loss (nats)')
  axes.grid(alpha=0.25)
  axes.spines[['top', 'right']].set_visible(False)
  if training or evaluations:
    axes.legend(frameon=False)
  content = io.BytesIO()
  figure.savefig(content, format='png')
  write_whole(picture, content.getvalue())
