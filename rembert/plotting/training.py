"""Plots of training: losses over steps, and parameters by part."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rembert.plotting.style import BLUE, FAINT, SERIES, Canvas, canvas, label, name_point, plot_lines, step_axis

# Parts of the parameter bars, from the left: the counts that they add up, and their index among the colours.
PARAMETER_PARTS: dict[str, tuple[tuple[str, ...], int]] = {
  'input embedding': (('word embedding', 'position and type embeddings'), 0),
  'input projection': (('embedding projection',), 6),
  'layers': (('Transformer layers',), 3),
  'pooler': (('pooler',), 4),
  'MLM transform': (('MLM transform',), 5),
  'output embedding': (('output embedding', 'output bias'), 1),
}
_BAR = 0.36
_LEGEND_RIGHT: dict[str, Any] = {'loc': 'center left', 'bbox_to_anchor': (1.01, 0.5), 'fontsize': 8.5}


def plot_loss(rows: Sequence[Mapping[str, float]]) -> bytes:
  """Plots training loss, eval loss and the unigram baseline over steps, from rows of metrics.jsonl.

  Eval losses of languages are thin lines in the background; the best and the worst are labelled.
  """
  evaluations = [row for row in rows if 'eval/loss' in row]
  last = evaluations[-1] if evaluations else {}
  languages = sorted({name for row in evaluations for name in row if name.startswith('eval/loss/')})
  of_all = f'eval, {len(languages)} languages' if languages else 'dev'
  looks: dict[str, dict[str, Any]] = {
    'loss': {'color': FAINT, 'linewidth': 1, 'label': 'training'},
    **{key: {'color': BLUE, 'linewidth': 0.6, 'alpha': 0.25} for key in languages},
    'eval/loss': {'color': BLUE, 'linewidth': 2, 'marker': 'o', 'markersize': 4, 'label': of_all},
  }
  curves = {key: [(row['step'], row[key]) for row in rows if key in row] for key in looks}
  lines = [([step for step, _ in curve], [loss for _, loss in curve], looks[key]) for key, curve in curves.items()]
  by_loss = sorted((last[key], key.rpartition('/')[2]) for key in languages if key in last)
  named = [by_loss[0], by_loss[-1]] if len(by_loss) > 1 else []
  named += [(last['eval/loss'], f'{last["eval/loss"]:.2f}')] if last else []
  names = [(name, (last['step'], loss)) for loss, name in named]
  baseline = ('unigram baseline', last.get('eval/unigram_entropy'))
  return plot_lines(lines, 'loss (nats)', starts_at_zero=True, baseline=baseline, names=names).png()


def plot_schedule(
  steps: np.ndarray,
  *,
  rates: Mapping[str, np.ndarray],
  masking: np.ndarray,
  learning_rate: np.ndarray,
) -> bytes:
  """Sampling rates by language, mask rate and learning rate over steps, all float [steps], one above the other; PNG.

  Languages are areas, the first ones with names.
  """
  with canvas(3, height=6.5, sharex=True, gridspec_kw={'height_ratios': [2, 1, 1]}) as picture:
    of_languages, of_masks, of_learning = picture.axes
    named = list(rates)[: len(SERIES)]
    shown = {label(language, 12): rates[language] for language in named}
    if others := list(rates)[len(named) :]:
      shown[f'{len(others)} others'] = np.sum([rates[language] for language in others], axis=0)
    if shown:
      shares = 100 * np.stack(list(shown.values()))
      of_languages.stackplot(steps, shares, labels=list(shown), colors=[*SERIES[: len(named)], FAINT], alpha=0.8)
      of_languages.legend(*(part[::-1] for part in of_languages.get_legend_handles_labels()), **_LEGEND_RIGHT)
    else:
      of_languages.text(0.5, 0.5, 'not known before the corpus is made', ha='center', transform=of_languages.transAxes)
    of_masks.plot(steps, 100 * masking, color=BLUE, linewidth=1.6)
    of_learning.plot(steps, learning_rate, color=BLUE, linewidth=1.6)
    ylabels = ('sequences by language (%)', 'masked tokens (%)', 'learning rate')
    for axes, ylabel in zip(picture.axes, ylabels, strict=True):
      axes.set_ylabel(ylabel)
      axes.set_ylim(bottom=0)
    step_axis(of_learning)
  return picture.png()


def bar_parts(by_part: Mapping[str, int]) -> dict[str, int]:
  """Parameters by part of a bar, in order, including empty parts."""
  return {name: sum(by_part.get(part, 0) for part in parts) for name, (parts, _) in PARAMETER_PARTS.items()}


def millions(count: float) -> str:
  """Formats 1234567 as `1.23M`; from 100M on without decimals, as in the paper."""
  count /= 1_000_000
  return f'{count:,.0f}M' if count >= 99.5 else f'{count:#.3g}M'


def plot_parameters(models: Sequence[tuple[str, Mapping[str, int], Mapping[str, int]]]) -> Canvas:
  """Plots two bars per model (name, parameters by part in pre-training, and in fine-tuning): pre-training above."""
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
