"""Pictures of what is trained and on what: losses over steps, a corpus by language, parameters by part."""

import math
from collections.abc import Mapping, Sequence

from rembert.plotting.style import BLUE, FAINT, OCHRE, RED, SERIES, Canvas, canvas, name_point

# Parts of the bars of parameters, from the left: what they add up, and their place among the colours.
PARAMETER_PARTS: dict[str, tuple[tuple[str, ...], int]] = {
  'input embedding': (('word embedding', 'position and type embeddings'), 0),
  'input projection': (('embedding projection',), 6),
  'layers': (('Transformer layers',), 3),
  'pooler': (('pooler',), 4),
  'MLM transform': (('MLM transform',), 5),
  'output embedding': (('output embedding', 'output bias'), 1),
}
_BAR = 0.36


def plot_loss(rows: Sequence[Mapping[str, float]]) -> bytes:
  """Training loss, held-out loss and the unigram baseline over steps.

  Held-out losses of languages are thin lines in the background; the best and the worst are named.

  Args:
    rows: of metrics.jsonl.
  """
  training = [(row['step'], row['loss']) for row in rows if 'loss' in row]
  evaluations = [row for row in rows if 'eval/loss' in row]
  languages = sorted({name.rsplit('/', 1)[1] for row in evaluations for name in row if name.startswith('eval/loss/')})
  with canvas(width=9, height=5, dpi=120) as picture:
    axes = picture.axes
    if training:
      axes.plot(*zip(*training, strict=True), color=FAINT, linewidth=1, label='training')
    for language in languages:
      points = [(row['step'], row[f'eval/loss/{language}']) for row in evaluations if f'eval/loss/{language}' in row]
      axes.plot(*zip(*points, strict=True), color=BLUE, linewidth=0.6, alpha=0.25)
    if evaluations:
      last = evaluations[-1]
      steps, losses = zip(*((row['step'], row['eval/loss']) for row in evaluations), strict=True)
      held_out = f'held out, {len(languages)} languages' if languages else 'dev'
      axes.plot(steps, losses, color=BLUE, linewidth=2, marker='o', markersize=4, label=held_out)
      if 'eval/unigram_entropy' in last:
        entropy = last['eval/unigram_entropy']
        axes.axhline(entropy, color=RED, linestyle='--', linewidth=1.2, label='frequency alone')
      by_loss = sorted((last[f'eval/loss/{name}'], name) for name in languages if f'eval/loss/{name}' in last)
      for loss, language in {by_loss[0], by_loss[-1]} if len(by_loss) > 1 else ():
        name_point(axes, language, (last['step'], loss))
      point = (last['step'], last['eval/loss'])
      name_point(axes, f'{last["eval/loss"]:.2f}', point, color=BLUE, weight='bold', fontsize=10)
    drawn = [loss for _, loss in training]
    drawn += [row[name] for row in evaluations for name in ('eval/loss', 'eval/unigram_entropy') if name in row]
    axes.set_ylim(bottom=0, top=1.08 * max(filter(math.isfinite, drawn), default=1.0))
    axes.set(xlabel='step', ylabel='loss (nats)')
    if training or evaluations:
      axes.legend()
  return picture.png()


def plot_languages(tokens: Mapping[str, int], rates: Mapping[float, Mapping[str, float]]) -> bytes:
  """The size of every language, and its share of the sequences for several α.

  Args:
    tokens: of the training documents; languages without any are not drawn.
    rates: α to the sampling rate of each language.
  """
  languages = sorted((language for language in tokens if tokens[language]), key=lambda language: -tokens[language])
  with canvas(2, width=max(6.0, 2 + 0.16 * len(languages)), height=6, dpi=110, sharex=True) as picture:
    size, share = picture.axes
    size.bar(range(len(languages)), [tokens[language] for language in languages], color=BLUE, alpha=0.8)
    size.set(yscale='log', ylabel='tokens')
    for alpha, color in zip(rates, (FAINT, OCHRE, BLUE), strict=True):
      drawn = [100 * rates[alpha].get(language, math.nan) for language in languages]
      label = f'α = {alpha:g}' + ', as they come' * (alpha == 1)
      share.plot(drawn, color=color, marker='.', linewidth=1, label=label)
    share.set(yscale='log', ylabel='share of the rows (%)', xlim=(-1, len(languages)))
    share.set_xticks(range(len(languages)), languages, rotation=90, fontsize=7)
    for axes in size, share:
      axes.grid(visible=False, axis='x')
    if languages:
      share.legend()
  return picture.png()


def bar_parts(by_part: Mapping[str, int]) -> dict[str, int]:
  """Parameters by the parts of a bar, in their order; empty parts too."""
  return {name: sum(by_part.get(part, 0) for part in parts) for name, (parts, _) in PARAMETER_PARTS.items()}


def millions(count: float) -> str:
  """1234567 as `1.23M`; from a hundred on without decimals, as the paper prints them."""
  count /= 1_000_000
  return f'{count:,.0f}M' if count >= 99.5 else f'{count:#.3g}M'


def plot_parameters(models: Sequence[tuple[str, Mapping[str, int], Mapping[str, int]]]) -> Canvas:
  """Two bars per model: parameters in pre-training, and below, fainter, those that fine-tuning keeps.

  Args:
    models: name, parameters by part in pre-training, and in fine-tuning.
  """
  with canvas(height=1.5 + 0.55 * len(models)) as picture:
    axes, seen = picture.axes, set()
    for index, (_, *bars) in enumerate(models):
      for below, by_part in enumerate(bars):
        left, y = 0.0, index + (below - 0.5) * (_BAR + 0.04)
        for name, count in bar_parts(by_part).items():
          if count:
            color, alpha = SERIES[PARAMETER_PARTS[name][1]], 0.65 if below else 1.0
            label = None if name in seen else name
            axes.barh(y, count / 1e6, left=left, height=_BAR, color=color, alpha=alpha, label=label)
            seen.add(name)
            left += count / 1e6
        name_point(axes, millions(sum(by_part.values())), (left, y), xytext=(4, 0), fontsize=9)
    axes.set_yticks(range(len(models)), [name for name, *_ in models])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.14 * max(sum(bar.values()) for _, *bars in models for bar in bars) / 1e6)
    axes.grid(False, axis='y')
    axes.set_xlabel('parameters (millions)')
    picture.legend(columns=3, order=list(PARAMETER_PARTS))
  return picture
