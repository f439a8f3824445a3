"""Plots of analyses. Each function takes a model's name and the `results` of `analysis.json`, and returns a PNG."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rembert.plotting.style import BLUE, FAINT, INK, OCHRE, RED, canvas, name_point

Results = Mapping[str, Any]
_DPI = 100


def _name_bars(axes: Any, names: Sequence[str], **options: Any) -> None:
  axes.set_xticks(range(len(names)), names, **options)
  axes.set_xlim(-0.8, len(names) - 0.2)
  axes.grid(visible=False, axis='x')


def _every(layers: Sequence[int], most: int) -> Sequence[int]:
  return layers[:: max(1, len(layers) // most)]


def plot_masked_accuracy(model: str, results: Results) -> bytes:
  """Accuracy by language, highest first; a dash marks the score of the most frequent token."""
  languages = sorted(results['languages'].items(), key=lambda item: -item[1]['accuracy'])
  with canvas(width=max(6.0, 2 + 0.3 * len(languages)), height=4.5, dpi=_DPI) as picture:
    axes, places = picture.axes, range(len(languages))
    accuracies, floor = ([found[name] for _, found in languages] for name in ('accuracy', 'most_frequent'))
    axes.bar(places, accuracies, color=BLUE, label=f'{model}: {results["all"]["accuracy"]:.1f} overall')
    axes.scatter(places, floor, marker='_', s=150, color=RED, zorder=3, label='most frequent token')
    axes.set_ylabel('masked-token accuracy (%)')
    _name_bars(axes, [name for name, _ in languages])
    axes.legend(loc='upper right')
    axes.margins(y=0.15)
  return picture.png()


def plot_layer_retrieval(model: str, results: Results) -> bytes:
  """Figure 2: accuracy by layer, for one pair of languages, or for several and their average."""
  layers, pairs, mean = results['layers'], results['pairs'], results['mean']
  with canvas(width=8, height=5, dpi=_DPI) as picture:
    axes = picture.axes
    if len(pairs) == 1:
      [(name, pair)] = pairs.items()
      axes.plot(layers, pair['accuracy'], color=BLUE, linewidth=2, marker='o', markersize=4, label=name)
    else:
      for pair in pairs.values():
        axes.plot(layers, pair['accuracy'], color=BLUE, linewidth=1, alpha=0.35)
      label = f'{model}: average ({len(pairs)} pairs)'
      axes.plot(layers, mean, color=BLUE, linewidth=2.5, marker='o', markersize=5, label=label)
      best = mean.index(max(mean))
      worst_pair, *_, best_pair = sorted(pairs, key=lambda name: pairs[name]['accuracy'][best])
      for name in (worst_pair, best_pair):
        name_point(axes, name, (layers[-1], pairs[name]['accuracy'][-1]))
    chance = sum(pair['chance'] for pair in pairs.values()) / len(pairs)
    axes.axhline(chance, color=RED, linestyle='--', linewidth=1.2, label='chance')
    axes.set(xlabel='layer (0: embeddings)', ylabel='retrieval accuracy (%)', ylim=(0, None))
    axes.set_xticks(_every(layers, 16))
    axes.set_xlim(-0.03 * len(layers), layers[-1] + 0.09 * len(layers))  # room for names of pairs
    axes.legend()
  return picture.png()


def plot_word_similarity(model: str, results: Results) -> bytes:
  """Table 8: ρ of the input and the output embedding on each set, with intervals."""
  sets = results['sets']
  tables = [name for name in ('input', 'output') if any(found[name] for found in sets.values())]
  with canvas(width=max(5.0, 2 + 0.9 * len(sets)), height=4, dpi=_DPI) as picture:
    axes, width = picture.axes, 0.8 / max(1, len(tables))
    for number, (table, color) in enumerate(zip(tables, (BLUE, OCHRE), strict=False)):
      for place, correlation in enumerate(found[table] for found in sets.values()):
        if correlation and correlation['rho'] is not None:
          rho, ends = correlation['rho'], [correlation[end] for end in ('low', 'high')]
          x = place - 0.4 + (number + 0.5) * width
          errors = [[0.0 if end is None else abs(end - rho)] for end in ends]
          axes.bar(x, rho, width * 0.94, color=color)
          axes.errorbar(x, rho, errors, fmt='none', ecolor=INK, elinewidth=1, capsize=3)
      axes.scatter([], [], color=color, marker='s', s=80, label=f'{table} embedding')
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.margins(y=0.2)
    axes.set_ylabel("Spearman's ρ × 100")
    _name_bars(axes, [f'{name}\n{found["covered"]:,} pairs' for name, found in sets.items()])
    axes.legend(title=model)
  return picture.png()


def plot_edge_probing(model: str, results: Results) -> bytes:
  """The weight of each layer in the mix, and the scores, with those of a randomly initialised encoder."""
  encoder, control = results['encoders']['model'], results['encoders']['random']
  names = sorted(encoder['tests'], key=lambda name: -encoder['tests'][name]['micro_f1'])
  with canvas(1, 2, width=11, height=4.5, dpi=_DPI, width_ratios=[1, 1.4]) as picture:
    mix, scores = picture.axes
    mix.bar(results['layers'], encoder['mix'], color=BLUE, alpha=0.85)
    centre = encoder['expected_layer']
    mix.axvline(centre, color=BLUE, linestyle='--', label=f'centre {centre:.2f}')
    mix.set(xlabel='layer (0: embeddings)', ylabel='weight in the mix')
    mix.set_xticks(_every(results['layers'], 12))
    floor = [results['most_frequent'][name] for name in names]
    scores.plot(names, [encoder['tests'][name]['micro_f1'] for name in names], 'o', color=BLUE, label=model)
    if control:
      values = [control['tests'][name]['micro_f1'] for name in names]
      scores.plot(names, values, 's', color=FAINT, markersize=4, label='random encoder')
    scores.plot(names, floor, '_', color=RED, markersize=9, label='most frequent label')
    scores.set(ylabel=f'{results["task"]}, micro-F1 (%)', ylim=(0, 100))
    scores.tick_params(axis='x', labelrotation=90 if max(map(len, names)) > 3 else 0, labelsize=8)
    for axes in mix, scores:
      axes.legend(fontsize=9)
  return picture.png()


def plot_fertility(model: str, results: Results) -> bytes:
  """Tokens per character by language."""
  found = {language: each['pieces_per_character'] for language, each in results['languages'].items()}
  names = sorted(found, key=found.__getitem__)
  with canvas(width=max(6.0, 2 + 0.25 * len(names)), height=4.5, dpi=_DPI) as picture:
    axes = picture.axes
    axes.bar(range(len(names)), [found[name] for name in names], color=BLUE)
    _name_bars(axes, names, rotation=90, fontsize=8)
    axes.set(ylabel='tokens per character', title=model)
  return picture.png()


PLOTS: dict[str, Callable[[str, Results], bytes]] = {
  'masked_accuracy': plot_masked_accuracy,
  'layer_retrieval': plot_layer_retrieval,
  'word_similarity': plot_word_similarity,
  'edge_probing': plot_edge_probing,
  'fertility': plot_fertility,
}
