"""Pictures of analyses. Each function takes `results` of `analysis.json` by the model's name: one model, or several."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

from rembert.report.figures import BLUE, GREY, OCHRE, RED, colour, new_figure, save, tidy

Results = Mapping[str, Mapping[str, Any]]
_NEVER = 0.2  # where 0 stands on a logarithmic axis


def plot_masked_accuracy(results: Results, picture: epath.PathLike) -> None:
  """Accuracy by language, sorted by the first model; what the most frequent piece would give as a dash."""
  first = next(iter(results.values()))
  names = sorted(first['languages'], key=lambda name: -first['languages'][name]['accuracy'])
  figure, axes = new_figure(width=max(6.0, 2 + 0.3 * len(names)), height=4.5)
  width = 0.8 / len(results)
  for number, (model, found) in enumerate(results.items()):
    places = [place - 0.4 + (number + 0.5) * width for place in range(len(names))]
    values = [found['languages'].get(name, {}).get('accuracy', math.nan) for name in names]
    axes.bar(places, values, width, color=colour(number), label=f'{model}: {found["all"]["accuracy"]:.1f} in all')
  floor = [first['languages'][name]['most_frequent'] for name in names]
  axes.scatter(range(len(names)), floor, marker='_', s=150, color=RED, zorder=3, label='most frequent piece')
  tidy(axes, ylabel='accuracy of masked pieces (%)', xlim=(-0.7, len(names) - 0.3))
  axes.grid(visible=False, axis='x')
  axes.set_xticks(range(len(names)), names)
  axes.legend(frameon=False, loc='upper right')
  axes.margins(y=0.15)
  save(figure, picture)


def plot_layer_retrieval(results: Results, picture: epath.PathLike) -> None:
  """Figure 2: accuracy by layer. Several models have a line each, the mean over pairs; one model one for each pair."""
  figure, axes = new_figure(width=8)
  if len(results) > 1:
    for number, (model, found) in enumerate(results.items()):
      axes.plot(found['layers'], found['mean'], color=colour(number), marker='o', markersize=4, label=model)
  else:
    [(model, found)] = results.items()
    pairs = found['pairs']
    is_one = len(pairs) == 1
    for name, of_pair in pairs.items():
      style = {'linewidth': 1, 'alpha': 0.35} if not is_one else {'linewidth': 2, 'marker': 'o', 'markersize': 4}
      axes.plot(found['layers'], of_pair['accuracy'], color=BLUE, label=name if is_one else None, **style)
      if is_one and of_pair['reverse'] is not None:
        axes.plot(
          found['layers'], of_pair['reverse'], color=OCHRE, marker='o', markersize=4, label=f'{name}, the other way'
        )
    if not is_one:
      label = f'{model}: mean of {len(pairs)} pairs'
      axes.plot(found['layers'], found['mean'], color=BLUE, linewidth=2.5, marker='o', markersize=5, label=label)
      best = max(range(len(found['mean'])), key=found['mean'].__getitem__)
      by_score = sorted(pairs, key=lambda name: pairs[name]['accuracy'][best])
      for name in {by_score[0], by_score[-1]}:
        axes.annotate(
          name,
          (found['layers'][-1], pairs[name]['accuracy'][-1]),
          xytext=(5, 0),
          textcoords='offset points',
          va='center',
          fontsize=8,
        )
  chances = [of_pair['chance'] for found in results.values() for of_pair in found['pairs'].values()]
  axes.axhline(sum(chances) / len(chances), color=RED, linestyle='--', linewidth=1.2, label='chance')
  longest = max((found['layers'] for found in results.values()), key=len)
  tidy(axes, xlabel='layer (0: embeddings)', ylabel='translations found (%)', ylim=(0, None))
  axes.set_xticks(longest[:: max(1, len(longest) // 16)])
  axes.set_xlim(-0.03 * len(longest), longest[-1] + 0.09 * len(longest))  # room for names of pairs
  axes.legend(frameon=False)
  save(figure, picture)


def plot_word_similarity(results: Results, picture: epath.PathLike) -> None:
  """Table 8: ρ of input and output embedding on each set, with intervals; models beside each other."""
  names = list(dict.fromkeys(name for found in results.values() for name in found['sets']))
  series = [
    (model, table, found['sets'])
    for model, found in results.items()
    for table in ('input', 'output')
    if any(of_set[table] for of_set in found['sets'].values())
  ]
  figure, axes = new_figure(width=max(5.0, 2 + 0.9 * len(names) * max(1, len(series) / 2)), height=4)
  width = 0.8 / max(1, len(series))
  tables = list(dict.fromkeys(model for model, _, _ in series))
  for number, (model, table, sets) in enumerate(series):
    drawn = [(place, sets[name][table]) for place, name in enumerate(names) if sets.get(name, {}).get(table)]
    drawn = [(place, found) for place, found in drawn if found['rho'] is not None]
    places = [place - 0.4 + (number + 0.5) * width for place, _ in drawn]
    rhos = [found['rho'] for _, found in drawn]
    errors = [
      [found['rho'] - (found['low'] if found['low'] is not None else found['rho']) for _, found in drawn],
      [(found['high'] if found['high'] is not None else found['rho']) - found['rho'] for _, found in drawn],
    ]
    axes.bar(
      places,
      rhos,
      width * 0.94,
      color=colour(tables.index(model)),
      alpha=1.0 if table == 'input' else 0.45,
      label=f'{model}, {table}' if len(results) > 1 else f'{table} embedding',
    )
    axes.errorbar(places, rhos, errors, fmt='none', ecolor='#24292f', elinewidth=1, capsize=3)
  axes.axhline(0, color=GREY, linewidth=0.8)
  axes.margins(y=0.2)
  tidy(axes, ylabel="Spearman's ρ × 100", xlim=(-0.8, len(names) - 0.2))
  axes.grid(visible=False, axis='x')
  counted = next(iter(results.values()))['sets']
  axes.set_xticks(
    range(len(names)), [f'{name}\n{counted[name]["covered"]:,} pairs' if name in counted else name for name in names]
  )
  axes.legend(frameon=False)
  save(figure, picture)


def plot_edge_probing(results: Results, picture: epath.PathLike) -> None:
  """The weight of each layer in the mix, and the scores, beside those of a random encoder."""
  figure, (mix, scores) = new_figure(1, 2, width=11, height=4.5, width_ratios=[1, 1.4])
  first = next(iter(results.values()))
  names = list(first['encoders']['model']['tests'])
  names.sort(key=lambda name: -first['encoders']['model']['tests'][name]['micro_f1'])
  width = 0.8 / len(results)
  for number, (model, found) in enumerate(results.items()):
    encoder = found['encoders']['model']
    places = [layer - 0.4 + (number + 0.5) * width for layer in found['layers']]
    mix.bar(places, encoder['mix'], width, color=colour(number), alpha=0.85)
    mix.axvline(
      encoder['expected_layer'], color=colour(number), linestyle='--', label=f'centre {encoder["expected_layer"]:.2f}'
    )
    values = [encoder['tests'].get(name, {}).get('micro_f1', math.nan) for name in names]
    scores.plot(names, values, color=colour(number), marker='o', linestyle='none', markersize=5, label=model)
  control = first['encoders'].get('random')
  if control:
    values = [control['tests'][name]['micro_f1'] for name in names]
    scores.plot(names, values, color=GREY, marker='s', linestyle='none', markersize=4, label='random encoder')
  floor = [first['most_frequent'][name] for name in names]
  scores.plot(names, floor, color=RED, marker='_', linestyle='none', markersize=9, label='most frequent label')
  tidy(mix, xlabel='layer (0: embeddings)', ylabel='weight in the mix')
  mix.set_xticks(first['layers'][:: max(1, len(first['layers']) // 12)])
  tidy(scores, ylabel=f'{first["task"]}, micro-F1 (%)', ylim=(0, 100))
  scores.tick_params(axis='x', labelrotation=90 if max(map(len, names)) > 3 else 0, labelsize=8)
  for axes in mix, scores:
    axes.legend(frameon=False, fontsize=9)
  save(figure, picture)


def plot_spectra(results: Results, picture: epath.PathLike) -> None:
  """Singular values of both tables, and norms by how often a piece occurs (where pieces were counted)."""
  series = [
    (f'{model}, {name}' if len(results) > 1 else f'{name} embedding', colour(number), name, table)
    for number, (model, found) in enumerate(results.items())
    for name, table in found['tables'].items()
    if table
  ]
  if len(results) == 1:
    series = [(label, BLUE if name == 'input' else OCHRE, name, table) for label, _, name, table in series]
  has_counts = any(table['norms_by_frequency'] for *_, table in series)
  figure, axes = new_figure(1, 2 if has_counts else 1, width=11 if has_counts else 7, height=4.5, squeeze=False)
  values, *norms = axes[0]
  for label, shade, name, table in series:
    line = '-' if name == 'input' or len(results) == 1 else '--'
    share = [(number + 1) / table['width'] for number in range(len(table['singular_values']))]
    scaled = [value * table['width'] for value in table['singular_values']]
    note = f'{label}: effective rank {table["effective_rank"]:.0f} of {table["width"]}'
    values.plot(share, scaled, color=shade, linestyle=line, linewidth=1.8, label=note)
    for panel in norms:
      classes = table['norms_by_frequency'] or ()
      panel.plot(
        [_NEVER if row['begin'] == 0 else row['begin'] for row in classes],
        [row['norm'] for row in classes],
        color=shade,
        linestyle=line,
        marker='o',
        markersize=4,
        label=label,
      )
  values.axhline(1, color=GREY, linewidth=0.8)
  tidy(values, xlabel='direction, as a share of the width', ylabel='singular value / mean', yscale='log')
  values.legend(frameon=False, fontsize=9)
  for panel in norms:
    tidy(panel, xlabel='how often a piece occurs', ylabel='mean norm', ylim=(0, None))
    panel.set_xscale('log')
    last = max(row['begin'] for *_, table in series for row in table['norms_by_frequency'] or ())
    ticks = [10**power for power in range(len(str(last)))]
    panel.set_xticks([_NEVER, *ticks], ['never', *(f'{tick:,}' for tick in ticks)])
    panel.minorticks_off()
    panel.legend(frameon=False, fontsize=9)
  save(figure, picture)


def plot_fertility(results: Results, picture: epath.PathLike) -> None:
  """Pieces per word against score, or, without scores, pieces per word by language; of the first model."""
  found = next(iter(results.values()))
  languages = found['languages']
  has_scores = any(of['score'] is not None for of in languages.values())
  scripts = list(found['scripts'])
  shade = {script: colour(number) for number, script in enumerate(scripts)}
  if has_scores:
    figure, panels = new_figure(1, 2, width=11, height=4.5, sharey=True)
    for panel, of, label in zip(
      panels, ('word', 'character'), ('pieces per word', 'pieces per character'), strict=True
    ):
      for language, row in languages.items():
        if row['score'] is not None and row[f'pieces_per_{of}'] is not None:
          point = (row[f'pieces_per_{of}'], row['score'])
          panel.scatter(*point, color=shade[row['script']], s=22)
          panel.annotate(language, point, xytext=(4, 3), textcoords='offset points', fontsize=8)
      tidy(panel, xlabel=label)
      panel.margins(0.08)
      rho = found['correlation'] and found['correlation'][of]
      if rho and rho['rho'] is not None:
        text = f'ρ = {rho["rho"]:.0f} ({rho["low"]:.0f} to {rho["high"]:.0f}), {rho["languages"]} languages'
        panel.set_title(text, fontsize=10)
    panels[0].set_ylabel(f'{found["task"]} score')
    legend_on = panels[1]
  else:
    figure, legend_on = new_figure(width=max(6.0, 2 + 0.25 * len(languages)), height=4.5)
    names = sorted(languages, key=lambda name: languages[name]['pieces_per_character'])
    for place, name in enumerate(names):
      legend_on.bar(place, languages[name]['pieces_per_character'], color=shade[languages[name]['script']])
    legend_on.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    tidy(legend_on, ylabel='pieces per character')
    legend_on.grid(visible=False, axis='x')
  for script in scripts:
    legend_on.scatter([], [], color=shade[script], label=script.lower(), s=22)
  legend_on.legend(frameon=False, fontsize=8, ncols=2)
  save(figure, picture)


def plot_scaling(results: Results, picture: epath.PathLike) -> None:
  """Runs, their means, and both laws with the band of the bootstrap; models or scores beside each other in colour."""
  figure, axes = new_figure(width=8)
  for number, (model, found) in enumerate(results.items()):
    shade = colour(number)
    points = found['points']
    axes.scatter(
      [row['x'] for row in points for _ in row['scores']],
      [score for row in points for score in row['scores']],
      color=shade,
      s=18,
      alpha=0.5,
    )
    axes.plot(
      [row['x'] for row in points], [row['mean'] for row in points], 'o', color=shade, markersize=7, label=model
    )
    for law, style in (('logarithmic', '-'), ('saturating', '--')):
      fit = found['laws'].get(law)
      if not fit:
        continue
      x = [row['x'] for row in fit['curve']]
      axes.plot(
        x, [row['score'] for row in fit['curve']], style, color=shade, linewidth=1.5, label=_law_in_words(law, fit)
      )
      if fit['curve'][0]['low'] is not None:
        band = [row['low'] for row in fit['curve']], [row['high'] for row in fit['curve']]
        axes.fill_between(x, *band, color=shade, alpha=0.12, linewidth=0)
  axes.set_xscale('log', base=2)
  ticks = sorted({row['x'] for found in results.values() for row in found['points']})
  tidy(axes, xlabel='size (E_out)', ylabel='score')
  axes.set_xticks(ticks, [f'{tick:,.0f}' for tick in ticks])
  axes.minorticks_off()
  axes.legend(frameon=False, fontsize=9)
  save(figure, picture)


def _law_in_words(law: str, fit: Mapping[str, Any]) -> str:
  value = {letter: found['value'] for letter, found in fit['parameters'].items()}
  if law == 'logarithmic':
    error = fit['parameters']['b']['error']
    return f'{value["a"]:.1f} + {value["b"]:.2f}{"" if error is None else f" ± {error:.2f}"} · log₂ x'
  return f'{value["a"]:.1f} − {value["b"]:.3g} · x^−{value["c"]:.2f}'


PLOTS: dict[str, Callable[[Results, epath.PathLike], None]] = {
  'masked_accuracy': plot_masked_accuracy,
  'layer_retrieval': plot_layer_retrieval,
  'word_similarity': plot_word_similarity,
  'edge_probing': plot_edge_probing,
  'spectra': plot_spectra,
  'fertility': plot_fertility,
  'scaling': plot_scaling,
}
