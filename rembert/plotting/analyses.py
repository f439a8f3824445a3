"""Pictures of analyses. Each function takes `results` of `analysis.json` by the model's name: one model, or several."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from rembert.plotting.style import BLUE, FAINT, INK, OCHRE, RED, SERIES, canvas, name_point

Results = Mapping[str, Mapping[str, Any]]
# Of models in one picture, in their order. Red is that of baselines.
_COLOURS = (*(each for each in SERIES if each != RED), '#6e7781', '#0f5f57', '#e377c2', '#5c3d2e', '#8a9a2b')
_NEVER = 0.2  # the place of 0 on a logarithmic axis
_DPI = 100


def _colour(number: int) -> str:
  return _COLOURS[number % len(_COLOURS)]


def plot_masked_accuracy(results: Results) -> bytes:
  """Accuracy by language, sorted by the first model; a dash marks the score of the most frequent token."""
  first = next(iter(results.values()))
  names = sorted(first['languages'], key=lambda name: -first['languages'][name]['accuracy'])
  width = 0.8 / len(results)
  with canvas(width=max(6.0, 2 + 0.3 * len(names)), height=4.5, dpi=_DPI) as picture:
    axes = picture.axes
    for number, (model, found) in enumerate(results.items()):
      places = [place - 0.4 + (number + 0.5) * width for place in range(len(names))]
      values = [found['languages'].get(name, {}).get('accuracy', math.nan) for name in names]
      axes.bar(places, values, width, color=_colour(number), label=f'{model}: {found["all"]["accuracy"]:.1f} in all')
    floor = [first['languages'][name]['most_frequent'] for name in names]
    axes.scatter(range(len(names)), floor, marker='_', s=150, color=RED, zorder=3, label='most frequent piece')
    axes.set(ylabel='accuracy of masked pieces (%)', xlim=(-0.7, len(names) - 0.3))
    axes.grid(visible=False, axis='x')
    axes.set_xticks(range(len(names)), names)
    axes.legend(loc='upper right')
    axes.margins(y=0.15)
  return picture.png()


def plot_layer_retrieval(results: Results) -> bytes:
  """Figure 2: accuracy by layer. Several models have a line each, the mean over pairs; one model one for each pair."""
  with canvas(width=8, height=5, dpi=_DPI) as picture:
    axes = picture.axes
    if len(results) > 1:
      for number, (model, found) in enumerate(results.items()):
        axes.plot(found['layers'], found['mean'], color=_colour(number), marker='o', markersize=4, label=model)
    else:
      [(model, found)] = results.items()
      _plot_pairs(axes, model, found)
    chances = [of_pair['chance'] for found in results.values() for of_pair in found['pairs'].values()]
    axes.axhline(sum(chances) / len(chances), color=RED, linestyle='--', linewidth=1.2, label='chance')
    longest = max((found['layers'] for found in results.values()), key=len)
    axes.set(xlabel='layer (0: embeddings)', ylabel='translations found (%)', ylim=(0, None))
    axes.set_xticks(longest[:: max(1, len(longest) // 16)])
    axes.set_xlim(-0.03 * len(longest), longest[-1] + 0.09 * len(longest))  # room for names of pairs
    axes.legend()
  return picture.png()


def _plot_pairs(axes: Any, model: str, found: Mapping[str, Any]) -> None:
  layers, pairs = found['layers'], found['pairs']
  if len(pairs) == 1:
    [(name, of_pair)] = pairs.items()
    axes.plot(layers, of_pair['accuracy'], color=BLUE, linewidth=2, marker='o', markersize=4, label=name)
    if of_pair['reverse'] is not None:
      axes.plot(layers, of_pair['reverse'], color=OCHRE, marker='o', markersize=4, label=f'{name}, the other way')
    return
  for of_pair in pairs.values():
    axes.plot(layers, of_pair['accuracy'], color=BLUE, linewidth=1, alpha=0.35)
  label = f'{model}: mean of {len(pairs)} pairs'
  axes.plot(layers, found['mean'], color=BLUE, linewidth=2.5, marker='o', markersize=5, label=label)
  best = max(range(len(found['mean'])), key=found['mean'].__getitem__)
  by_score = sorted(pairs, key=lambda name: pairs[name]['accuracy'][best])
  for name in {by_score[0], by_score[-1]}:
    name_point(axes, name, (layers[-1], pairs[name]['accuracy'][-1]))


def plot_word_similarity(results: Results) -> bytes:
  """Table 8: ρ of input and output embedding on each set, with intervals; models next to each other."""
  names = list(dict.fromkeys(name for found in results.values() for name in found['sets']))
  series = [
    (model, table, found['sets'])
    for model, found in results.items()
    for table in ('input', 'output')
    if any(of_set[table] for of_set in found['sets'].values())
  ]
  models = list(dict.fromkeys(model for model, _, _ in series))
  width = 0.8 / max(1, len(series))
  figure_width = max(5.0, 2 + 0.9 * len(names) * max(1, len(series) / 2))
  with canvas(width=figure_width, height=4, dpi=_DPI) as picture:
    axes = picture.axes
    for number, (model, table, sets) in enumerate(series):
      drawn = [(place, sets[name][table]) for place, name in enumerate(names) if sets.get(name, {}).get(table)]
      drawn = [(place, found) for place, found in drawn if found['rho'] is not None]
      places = [place - 0.4 + (number + 0.5) * width for place, _ in drawn]
      rhos = [found['rho'] for _, found in drawn]
      errors = [
        [found['rho'] - (found['low'] if found['low'] is not None else found['rho']) for _, found in drawn],
        [(found['high'] if found['high'] is not None else found['rho']) - found['rho'] for _, found in drawn],
      ]
      label = f'{model}, {table}' if len(results) > 1 else f'{table} embedding'
      alpha = 1.0 if table == 'input' else 0.45
      axes.bar(places, rhos, width * 0.94, color=_colour(models.index(model)), alpha=alpha, label=label)
      axes.errorbar(places, rhos, errors, fmt='none', ecolor=INK, elinewidth=1, capsize=3)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.margins(y=0.2)
    axes.set(ylabel="Spearman's ρ × 100", xlim=(-0.8, len(names) - 0.2))
    axes.grid(visible=False, axis='x')
    counted = next(iter(results.values()))['sets']
    labels = [f'{name}\n{counted[name]["covered"]:,} pairs' if name in counted else name for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.legend()
  return picture.png()


def plot_edge_probing(results: Results) -> bytes:
  """The weight of each layer in the mix, and the scores, with those of a random encoder."""
  first = next(iter(results.values()))
  names = list(first['encoders']['model']['tests'])
  names.sort(key=lambda name: -first['encoders']['model']['tests'][name]['micro_f1'])
  width = 0.8 / len(results)
  with canvas(1, 2, width=11, height=4.5, dpi=_DPI, width_ratios=[1, 1.4]) as picture:
    mix, scores = picture.axes
    points = {'linestyle': 'none', 'marker': 'o', 'markersize': 5}
    for number, (model, found) in enumerate(results.items()):
      encoder, color = found['encoders']['model'], _colour(number)
      places = [layer - 0.4 + (number + 0.5) * width for layer in found['layers']]
      mix.bar(places, encoder['mix'], width, color=color, alpha=0.85)
      centre = encoder['expected_layer']
      mix.axvline(centre, color=color, linestyle='--', label=f'centre {centre:.2f}')
      values = [encoder['tests'].get(name, {}).get('micro_f1', math.nan) for name in names]
      scores.plot(names, values, color=color, label=model, **points)
    control = first['encoders'].get('random')
    if control:
      values = [control['tests'][name]['micro_f1'] for name in names]
      scores.plot(names, values, color=FAINT, label='random encoder', **points | {'marker': 's', 'markersize': 4})
    floor = [first['most_frequent'][name] for name in names]
    scores.plot(names, floor, color=RED, label='most frequent label', **points | {'marker': '_', 'markersize': 9})
    mix.set(xlabel='layer (0: embeddings)', ylabel='weight in the mix')
    mix.set_xticks(first['layers'][:: max(1, len(first['layers']) // 12)])
    scores.set(ylabel=f'{first["task"]}, micro-F1 (%)', ylim=(0, 100))
    scores.tick_params(axis='x', labelrotation=90 if max(map(len, names)) > 3 else 0, labelsize=8)
    for axes in mix, scores:
      axes.legend(fontsize=9)
  return picture.png()


def plot_spectra(results: Results) -> bytes:
  """Singular values of both embeddings, and norms by frequency of a token (if tokens were counted)."""
  is_alone = len(results) == 1
  series = [
    (
      f'{name} embedding' if is_alone else f'{model}, {name}',
      {
        'color': (BLUE if name == 'input' else OCHRE) if is_alone else _colour(number),
        'linestyle': '-' if name == 'input' or is_alone else '--',
      },
      table,
    )
    for number, (model, found) in enumerate(results.items())
    for name, table in found['tables'].items()
    if table
  ]
  has_counts = any(table['norms_by_frequency'] for *_, table in series)
  columns, width = (2, 11) if has_counts else (1, 7)
  with canvas(1, columns, width=width, height=4.5, dpi=_DPI, squeeze=False) as picture:
    values, *norms = picture.axes[0]
    for label, look, table in series:
      share = [(number + 1) / table['width'] for number in range(len(table['singular_values']))]
      scaled = [value * table['width'] for value in table['singular_values']]
      note = f'{label}: effective rank {table["effective_rank"]:.0f} of {table["width"]}'
      values.plot(share, scaled, linewidth=1.8, label=note, **look)
      for panel in norms:
        classes = table['norms_by_frequency'] or ()
        begins = [_NEVER if row['begin'] == 0 else row['begin'] for row in classes]
        panel.plot(begins, [row['norm'] for row in classes], marker='o', markersize=4, label=label, **look)
    values.axhline(1, color=FAINT, linewidth=0.8)
    values.set(xlabel='direction, as a share of the width', ylabel='singular value / mean', yscale='log')
    values.legend(fontsize=9)
    for panel in norms:
      panel.set(xlabel='how often a piece occurs', ylabel='mean norm', ylim=(0, None), xscale='log')
      last = max(row['begin'] for *_, table in series for row in table['norms_by_frequency'] or ())
      ticks = [10**power for power in range(len(str(last)))]
      panel.set_xticks([_NEVER, *ticks], ['never', *(f'{tick:,}' for tick in ticks)])
      panel.minorticks_off()
      panel.legend(fontsize=9)
  return picture.png()


def plot_fertility(results: Results) -> bytes:
  """Tokens per word against score, or, without scores, tokens per character by language; of the first model."""
  found = next(iter(results.values()))
  languages = found['languages']
  has_scores = any(of['score'] is not None for of in languages.values())
  colours = {script: _colour(number) for number, script in enumerate(found['scripts'])}
  columns, width = (2, 11.0) if has_scores else (1, max(6.0, 2 + 0.25 * len(languages)))
  with canvas(1, columns, width=width, height=4.5, dpi=_DPI, sharey=True, squeeze=False) as picture:
    panels = picture.axes[0]
    if has_scores:
      for panel, unit in zip(panels, ('word', 'character'), strict=True):
        _plot_scores(panel, found, unit, colours)
      panels[0].set_ylabel(f'{found["task"]} score')
    else:
      axes, names = panels[0], sorted(languages, key=lambda name: languages[name]['pieces_per_character'])
      heights = [languages[name]['pieces_per_character'] for name in names]
      axes.bar(range(len(names)), heights, color=[colours[languages[name]['script']] for name in names])
      axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
      axes.set_ylabel('pieces per character')
      axes.grid(visible=False, axis='x')
    for script, color in colours.items():
      panels[-1].scatter([], [], color=color, label=script.lower(), s=22)
    panels[-1].legend(fontsize=8, ncols=2)
  return picture.png()


def _plot_scores(axes: Any, found: Mapping[str, Any], unit: str, colours: Mapping[str, str]) -> None:
  for language, row in found['languages'].items():
    if row['score'] is not None and row[f'pieces_per_{unit}'] is not None:
      point = (row[f'pieces_per_{unit}'], row['score'])
      axes.scatter(*point, color=colours[row['script']], s=22)
      name_point(axes, language, point, xytext=(4, 3), va='baseline')
  axes.set_xlabel(f'pieces per {unit}')
  axes.margins(0.08)
  rho = found['correlation'] and found['correlation'][unit]
  if rho and rho['rho'] is not None:
    text = f'ρ = {rho["rho"]:.0f} ({rho["low"]:.0f} to {rho["high"]:.0f}), {rho["languages"]} languages'
    axes.set_title(text, fontsize=10)


def plot_scaling(results: Results) -> bytes:
  """Runs, their means, and both laws with the band of the bootstrap; models or scores in colours of their own."""
  with canvas(width=8, height=5, dpi=_DPI) as picture:
    axes = picture.axes
    for number, (model, found) in enumerate(results.items()):
      points, color = found['points'], _colour(number)
      runs = [(row['x'], score) for row in points for score in row['scores']]
      axes.scatter([x for x, _ in runs], [score for _, score in runs], color=color, s=18, alpha=0.5)
      means = [row['mean'] for row in points]
      axes.plot([row['x'] for row in points], means, 'o', color=color, markersize=7, label=model)
      for law, style in (('logarithmic', '-'), ('saturating', '--')):
        fit = found['laws'].get(law)
        if not fit:
          continue
        curve = fit['curve']
        x, y = [row['x'] for row in curve], [row['score'] for row in curve]
        axes.plot(x, y, style, color=color, linewidth=1.5, label=_law(law, fit))
        if curve[0]['low'] is not None:
          band = [row['low'] for row in curve], [row['high'] for row in curve]
          axes.fill_between(x, *band, color=color, alpha=0.12, linewidth=0)
    axes.set_xscale('log', base=2)
    ticks = sorted({row['x'] for found in results.values() for row in found['points']})
    axes.set(xlabel='size (E_out)', ylabel='score')
    axes.set_xticks(ticks, [f'{tick:,.0f}' for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=9)
  return picture.png()


def _law(law: str, fit: Mapping[str, Any]) -> str:
  value = {letter: found['value'] for letter, found in fit['parameters'].items()}
  if law == 'logarithmic':
    error = fit['parameters']['b']['error']
    return f'{value["a"]:.1f} + {value["b"]:.2f}{"" if error is None else f" ± {error:.2f}"} · log₂ x'
  return f'{value["a"]:.1f} − {value["b"]:.3g} · x^−{value["c"]:.2f}'


PLOTS: dict[str, Callable[[Results], bytes]] = {
  'masked_accuracy': plot_masked_accuracy,
  'layer_retrieval': plot_layer_retrieval,
  'word_similarity': plot_word_similarity,
  'edge_probing': plot_edge_probing,
  'spectra': plot_spectra,
  'fertility': plot_fertility,
  'scaling': plot_scaling,
}
