"""The scores, tables and plots of docs/replication, from the runs of docs/replication/run.sh.

python -m docs.tools.replication                     draw the page again from docs/replication/scores.csv
python -m docs.tools.replication --collect=SWEEP     first add what a sweep has finished
python -m docs.tools.replication --tuned=SWEEP       add a sweep over learning rates to learning_rates.csv
python -m docs.tools.replication --missing=WHAT      print what run.sh has to run: learning_rates, first or later

A model and a seed of pre-training enter scores.csv together, when all their runs are done. So a study can be continued
on another machine, which has no checkpoints of the runs before.
"""

import argparse
import dataclasses
import io
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from docs.tools.parameters import counted
from docs.tools.rendering import table, with_tables
from rembert import paper
from rembert.plotting import style
from rembert.report import load, scores

FOLDER = pathlib.Path(__file__).parents[1] / 'replication'
SCORES, LEARNING_RATES, PAGE, CLAIMS_PLOT, LAYERS_PLOT = (
  FOLDER / name for name in ('scores.csv', 'learning_rates.csv', 'index.md', 'claims.png', 'layers.png')
)
SCALE = ('gin/scales/micro.gin', 'docs/replication/pretraining.gin')
LANGUAGES = ('af', 'ar', 'bg', 'de', 'el', 'en', 'es', 'et', 'fa', 'fr', 'id', 'it', 'nl', 'pt', 'ru', 'sw')
ALL = 'all'
KEYS = ['model', 'pretrain_seed', 'finetune_seed', 'task', 'metric']
FINETUNE_SEEDS = (0, 1, 2)
LEARNING_RATE_GRID = (1e-3, 2e-3, 4e-3)
SMALLEST_LEARNING_RATE, LARGEST_LEARNING_RATE = 2.5e-4, 1.6e-2
# Every claim has these first; then those of claims that are not decided are trained with LATER_SEEDS.
SEEDS, LATER_SEEDS = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
NO_SEED = -1  # of fine-tuning, in lines of pre-training and analyses

# The directory of gin/experiments that has the gin file of each model.
MODELS = {
  'coupled768': 'table2',
  'in768_out768': 'table2',
  'in128_out768': 'table3',
  'in768_out128': 'table3',
  'in128_out128': 'table4',
  'in128_out3072': 'table4',
  'layers23to12': 'table5',
  'hidden1024': 'table6',
  'layers23': 'table6',
}
# Measures: points, 0 to 100, except the loss (nats).
MEASURES = {
  'loss': 'eval loss',
  'udpos': 'UDPOS',
  'panx': 'PAN-X',
  'probing': 'edge probing',
  'retrieval': 'retrieval, best layer',
  'decline': 'retrieval, last − best layer',
}
TRANSFER = ('udpos', 'panx')


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Contrast:
  """Two models of one of the paper's tables.

  Attributes:
    better: the model that the paper has ahead.
    worse: the other.
    source: table or figure.
    printed: difference of the paper's averages over tasks, points.
  """

  better: str
  worse: str
  source: str
  printed: float

  @property
  def name(self) -> str:
    """For tables and plots."""
    return f'{self.better} − {self.worse}'


def _of_table(number: int, better: str, worse: str) -> Contrast:
  printed = paper.row(number, better).mean - paper.row(number, worse).mean
  return Contrast(better, worse, f'Table {number}', round(printed, 1))


def _decline(model: str) -> float:
  curve = paper.FIGURE_2[model]
  return curve[max(curve)] - max(curve.values())


@dataclasses.dataclass(frozen=True)
class Claim:
  """A claim of the paper, and what decides it.

  It is confirmed if each contrast is significantly positive in one of the measures and significantly negative in none;
  contradicted if a contrast is significantly negative in one and significantly positive in none. With a `margin`, a
  contrast is confirmed if it is above −margin in all measures, and contradicted if it is below −margin in one. The 95 %
  of the intervals are of all measures of a contrast together (Bonferroni).

  Attributes:
    text: the claim.
    contrasts: all of them decide.
    measures: of MEASURES.
    margin: points that count as no loss; None if the contrast has to be positive.
  """

  text: str
  contrasts: tuple[Contrast, ...]
  measures: tuple[str, ...] = TRANSFER
  margin: float | None = None

  @property
  def level(self) -> float:
    """Of each interval."""
    return 1 - 0.05 / len(self.measures)


CLAIMS = (
  Claim(
    'Decoupling lets the input embedding shrink without loss',
    (_of_table(2, 'in768_out768', 'coupled768'), _of_table(3, 'in128_out768', 'in768_out128')),
    margin=1.0,
  ),
  Claim(
    'A larger output embedding helps transfer, although fine-tuning discards it',
    (_of_table(4, 'in128_out768', 'in128_out128'), _of_table(4, 'in128_out3072', 'in128_out128')),
  ),
  Claim(
    'Saved parameters are better spent on layers, depth before width',
    (
      _of_table(5, 'in128_out768', 'layers23to12'),
      _of_table(6, 'layers23', 'in128_out768'),
      _of_table(6, 'layers23', 'hidden1024'),
    ),
  ),
  Claim(
    'With a larger output embedding the last layers stay more general',
    (Contrast('in128_out3072', 'in128_out128', 'Figure 2', _decline('in128_out3072') - _decline('in128_out128')),),
    measures=('decline',),
  ),
  Claim(
    'The rebalanced model beats the coupled one of the same fine-tuning size',
    (_of_table(6, 'layers23', 'coupled768'),),
  ),
)


# --- scores -----------------------------------------------------------------------------------------------------------


def read_scores(text: str) -> pd.DataFrame:
  """scores.csv: a line per run and metric, a column per language, and `all` for what has no language."""
  return pd.read_csv(io.StringIO(text)).set_index(KEYS).astype(float)


def write_scores(frame: pd.DataFrame) -> str:
  """The reverse, sorted, with four decimals."""
  return frame.sort_index()[[ALL, *LANGUAGES]].to_csv(float_format='%.4f', lineterminator='\n')


def collect(sweep: pathlib.Path) -> pd.DataFrame:
  """Lines of all models and seeds of a sweep whose runs are all done."""
  lines: dict[tuple, Mapping[str, float]] = {}
  for model in load.read([sweep])[0].models:
    for seed in dict.fromkeys(run.pretrain_seed for run in model.pretrained):
      found = dict(_lines(model, seed))
      tasks = {(task, finetune_seed) for _, _, finetune_seed, task, _ in found}
      if tasks >= {('eval', NO_SEED), ('probing', NO_SEED), ('retrieval', NO_SEED)} | {
        (task, each) for task in TRANSFER for each in FINETUNE_SEEDS
      }:
        lines |= found
  index = pd.MultiIndex.from_tuples(lines, names=KEYS)
  return pd.DataFrame(list(lines.values()), index=index, columns=[ALL, *LANGUAGES], dtype=float)


def _lines(model: load.Model, seed: int) -> Iterator[tuple[tuple, Mapping[str, float]]]:
  frame = scores.of(scores.tidy([model]), pretrain_seed=seed)
  kept = frame[(frame['task'] == scores.HELD_OUT) | (frame['task'].isin(TRANSFER) & (frame['metric'] == 'f1'))]
  for (task, finetune_seed, metric), of_run in kept.groupby(['task', 'seed', 'metric']):
    task = 'eval' if task == scores.HELD_OUT else task
    yield (model.name, seed, finetune_seed, task, metric), dict(zip(of_run['language'], of_run['value'], strict=True))
  for run in model.runs(load.ANALYSIS):
    if run.pretrain_seed == seed and run.results:
      for task, metric, values in _analysis_lines(run.task, run.results):
        yield (model.name, seed, NO_SEED, task, metric), values


def _analysis_lines(analysis: str, results: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, float]]]:
  if analysis == 'edge_probing':
    encoder = results['encoders']['model']
    yield 'probing', 'f1', {name: test['micro_f1'] for name, test in encoder['tests'].items()}
    yield 'probing', 'expected layer', {ALL: encoder['expected_layer']}
  if analysis == 'layer_retrieval':
    for index, layer in enumerate(results['layers']):
      accuracies = {pair.removesuffix('-en'): found['accuracy'][index] for pair, found in results['pairs'].items()}
      yield 'retrieval', f'layer {layer}', accuracies


def with_new(old: Any, new: Any, levels: int) -> Any:
  """The lines of two tables; `new` replaces those of `old` that are equal in the first levels of the index."""
  key = lambda frame: frame.index.droplevel([*range(levels, frame.index.nlevels)])
  is_replaced = key(old).isin(key(new))
  return pd.concat([old[~is_replaced], new]).sort_index()


def tuned(sweep: pathlib.Path) -> pd.Series:
  """The eval loss of each learning rate of a sweep over `LEARNING_RATE`, by model and learning rate."""
  found = {}
  for model in load.read([sweep])[0].models:
    name, _, rate = model.name.partition('-LEARNING_RATE=')
    for run in model.pretrained:
      found[name, float(rate)] = run.last('eval/loss')
  return pd.Series(found, name='eval_loss', dtype=float).rename_axis(['model', 'learning_rate'])


def read_learning_rates() -> pd.Series:
  """learning_rates.csv, as `tuned`."""
  return pd.read_csv(LEARNING_RATES).set_index(['model', 'learning_rate'])['eval_loss']


def best_learning_rates(losses: pd.Series) -> dict[str, float]:
  """The learning rate of each model with the lowest eval loss."""
  return {model: of_model.droplevel('model').idxmin() for model, of_model in losses.groupby('model')}


def missing(what: str, frame: pd.DataFrame, losses: pd.Series) -> list[str]:
  """What has no results yet, as arguments of a function of run.sh: gin file, learning rate or rates, and a seed.

  `learning_rates` has the grid; if the best is at an end of those tried, the next beyond it. `later` is empty until all
  `first` are there; then it has the models of claims that are not decided. Models of the smallest claims come first.
  """
  files = {name: f'gin/experiments/{folder}/{name}.gin' for name, folder in MODELS.items()}
  rates, done = best_learning_rates(losses), set(frame.index.droplevel([2, 3, 4]))
  if what == 'learning_rates':
    grids = {name: LEARNING_RATE_GRID for name in models_of(CLAIMS) if name not in rates}
    tried = {name: losses[name].index for name in rates}
    grids |= {name: (2 * rate,) for name, rate in rates.items() if rate == tried[name].max() < LARGEST_LEARNING_RATE}
    grids |= {name: (rate / 2,) for name, rate in rates.items() if rate == tried[name].min() > SMALLEST_LEARNING_RATE}
    return [f'{files[name]} {",".join(map(str, grids[name]))}' for name in models_of(CLAIMS) if name in grids]
  needed, seeds = models_of(CLAIMS), SEEDS
  if what == 'later':
    needed = models_of([claim for claim in CLAIMS if verdict(frame, claim, SEEDS) == NOT_DECIDED])
    seeds = LATER_SEEDS if done >= {(name, seed) for name in MODELS for seed in SEEDS} else ()
  units = [(name, seed) for name in needed for seed in seeds if (name, seed) not in done]
  return [f'{files[name]} {rates[name]:g} {seed}' for name, seed in units]


def models_of(claims: Sequence[Claim]) -> list[str]:
  """The models that decide these claims, those of claims with the fewest models first."""
  by_claim = [[name for each in claim.contrasts for name in (each.better, each.worse)] for claim in claims]
  return list(dict.fromkeys(itertools.chain(*sorted(by_claim, key=lambda names: len(set(names))))))


# --- measures ---------------------------------------------------------------------------------------------------------


def measured(frame: pd.DataFrame, model: str, measure: str) -> pd.DataFrame:
  """A row per seed of pre-training, a column per language; fine-tuning is averaged over its seeds."""
  task, metric = {'loss': ('eval', 'loss'), 'probing': ('probing', 'f1')}.get(measure, (measure, 'f1'))
  of_model = frame[frame.index.get_level_values('model') == model].droplevel('model')[[*LANGUAGES]]
  if measure in ('retrieval', 'decline'):
    best, last = zip(
      *(_best_and_last(of_seed) for _, of_seed in layers(of_model).groupby('pretrain_seed')), strict=True
    )
    found = pd.concat(best if measure == 'retrieval' else [a - b for a, b in zip(last, best, strict=True)], axis=1).T
    found.index = of_model.index.unique('pretrain_seed').sort_values()
    return found.dropna(axis='columns', how='all')
  chosen = of_model.xs((task, metric), level=('task', 'metric'))
  return chosen.groupby('pretrain_seed').mean().dropna(axis='columns', how='all')


def layers(of_model: pd.DataFrame) -> pd.DataFrame:
  """Accuracy of retrieval without the embeddings, a row per seed and layer, a column per language."""
  found = of_model.xs('retrieval', level='task').droplevel('finetune_seed')
  numbers = found.index.get_level_values('metric').str.removeprefix('layer ').astype(int)
  found.index = pd.MultiIndex.from_arrays([found.index.get_level_values(0), numbers], names=['pretrain_seed', 'layer'])
  return found[numbers > 0].sort_index()


def _best_and_last(of_seed: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
  """The layer with the highest mean over languages (the first of equal ones), and the last."""
  by_layer = of_seed.droplevel('pretrain_seed')
  return by_layer.loc[by_layer.mean(axis='columns').idxmax()], by_layer.iloc[-1]


# --- intervals --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Interval:
  """A mean difference.

  Attributes:
    mean: over seeds and languages.
    low, high: confidence limits.
    seeds, languages: how many.
    seeds_needed: seeds with which a difference as large as the paper's is found with a probability of 80 %; infinite if
      languages differ too much, NaN without an effect.
  """

  mean: float
  low: float
  high: float
  seeds: int
  languages: int
  seeds_needed: float


def interval(differences: np.ndarray, level: float, effect: float = math.nan) -> Interval:
  """Mean of paired differences [seeds, languages], at least 2 of each, with both as crossed random effects.

  So the interval is for other seeds and other languages than these. Mean squares of the two-way table without
  replication; the variance of the mean is (MS_seeds + MS_languages − MS_residual) / (seeds · languages), with
  Satterthwaite's degrees of freedom (Searle, Casella and McCulloch 1992, chapter 4). A negative component of variance
  counts as zero.
  """
  s, n = differences.shape
  mean = differences.mean()
  by_seed, by_language = differences.mean(1), differences.mean(0)
  residual = ((differences - by_seed[:, None] - by_language + mean) ** 2).sum() / ((s - 1) * (n - 1))
  of_seeds, of_languages = n * by_seed.var(ddof=1), s * by_language.var(ddof=1)
  of_seeds, of_languages = max(of_seeds, residual), max(of_languages, residual)
  total = of_seeds + of_languages - residual
  half = 0.0
  if total:
    freedom = total**2 / (of_seeds**2 / (s - 1) + of_languages**2 / (n - 1) + residual**2 / ((s - 1) * (n - 1)))
    half = stats.t.ppf((1 + level) / 2, freedom) * math.sqrt(total / (s * n))
  components = (of_seeds - residual) / n, (of_languages - residual) / s, residual
  needed = math.nan if math.isnan(effect) else _seeds_needed(abs(effect), level, n, *components)
  return Interval(mean, mean - half, mean + half, s, n, needed)


def _seeds_needed(
  effect: float, level: float, languages: int, of_seeds: float, of_languages: float, residual: float
) -> float:
  seeds = np.arange(2, 1001)
  error = np.sqrt(of_seeds / seeds + of_languages / languages + residual / (seeds * languages))
  detectable = (stats.t.ppf((1 + level) / 2, seeds - 1) + stats.t.ppf(0.8, seeds - 1)) * error
  enough = np.flatnonzero(detectable <= effect)
  return float(seeds[enough[0]]) if len(enough) else math.inf


def compare(
  frame: pd.DataFrame, contrast: Contrast, measure: str, level: float, seeds: Sequence[int] | None = None
) -> Interval | None:
  """The difference of two models over the seeds that both have; None for fewer than two."""
  models = set(frame.index.get_level_values('model'))
  if not {contrast.better, contrast.worse} <= models:
    return None
  difference = measured(frame, contrast.better, measure) - measured(frame, contrast.worse, measure)
  difference = difference.dropna()
  if seeds is not None:
    difference = difference[difference.index.isin(seeds)]
  return interval(difference.to_numpy(), level, contrast.printed) if len(difference) > 1 else None


CONFIRMED, CONTRADICTED, NOT_DECIDED = 'confirmed', 'contradicted', 'not decided'


def verdict(frame: pd.DataFrame, claim: Claim, seeds: Sequence[int] | None = None) -> str:
  """What the rule of `Claim` says; not decided before all SEEDS are there."""
  verdicts = []
  for contrast in claim.contrasts:
    found = [compare(frame, contrast, measure, claim.level, seeds) for measure in claim.measures]
    if any(each is None or each.seeds < len(SEEDS) for each in found):
      return NOT_DECIDED
    verdicts.append(_decide(found, claim.margin))
  if CONTRADICTED in verdicts:
    return CONTRADICTED
  return NOT_DECIDED if NOT_DECIDED in verdicts else CONFIRMED


def _decide(found: Sequence[Interval], margin: float | None) -> str:
  if margin is not None:
    if any(each.high < -margin for each in found):
      return CONTRADICTED
    return CONFIRMED if all(each.low > -margin for each in found) else NOT_DECIDED
  is_better, is_worse = any(each.low > 0 for each in found), any(each.high < 0 for each in found)
  return NOT_DECIDED if is_better == is_worse else CONFIRMED if is_better else CONTRADICTED


# --- tables -----------------------------------------------------------------------------------------------------------


def claims_table(frame: pd.DataFrame) -> str:
  """Each claim and contrast: the paper's difference, ours with intervals, the verdict, and what would decide it."""
  rows = []
  for number, claim in enumerate(CLAIMS, 1):
    for index, contrast in enumerate(claim.contrasts):
      cells, needed = [], []
      for measure in claim.measures:
        if found := compare(frame, contrast, measure, claim.level):
          cells.append(f'{MEASURES[measure]} {found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})')
          needed.append(f'{found.seeds_needed:.0f}' if math.isfinite(found.seeds_needed) else '> 1,000')
      text = f'**{number}. {claim.text}**: {verdict(frame, claim)}' if index == 0 else ''
      what = f'`{contrast.better}` − `{contrast.worse}` ({contrast.source})'
      rows.append([text, what, f'{contrast.printed:+.1f}', '<br>'.join(cells) or '—', '<br>'.join(needed) or '—'])
  return table(['claim', 'difference', 'paper', 'here (95 %)', 'seeds for 80 % power'], rows)


def models_table(frame: pd.DataFrame) -> str:
  """Each model: its size, its seeds, and mean ± standard deviation over seeds of each measure."""
  there = [model for model in MODELS if model in frame.index.get_level_values('model')]
  rows = []
  for model, count in zip(there, counted(there, *SCALE), strict=True):
    sizes = [f'{number / 1e6:.2f}M' for number in (count.pre_training, count.fine_tuning)]
    by_seed = [measured(frame, model, measure).mean(axis='columns') for measure in MEASURES]
    rows.append([f'`{model}`', *sizes, str(len(by_seed[0])), *map(_spread, MEASURES, by_seed)])
  return table(['model', 'pre-training', 'fine-tuning', 'seeds', *MEASURES.values()], rows)


def _spread(measure: str, values: pd.Series) -> str:
  digits = 3 if measure == 'loss' else 2
  return f'{values.mean():.{digits}f}' + (f' ± {values.std():.{digits}f}' if len(values) > 1 else '')


def page_tables(frame: pd.DataFrame) -> dict[str, str]:
  """By their names on the page."""
  return {'claims': claims_table(frame), 'models': models_table(frame)}


# --- plots ------------------------------------------------------------------------------------------------------------


def plot_claims(frame: pd.DataFrame) -> bytes:
  """Differences with their intervals, and the paper's averages."""
  rows = [(claim, contrast) for claim in CLAIMS for contrast in claim.contrasts]
  with style.canvas(width=8, height=1.2 + 0.62 * len(rows)) as canvas:
    axes = canvas.axes
    for place, (claim, contrast) in enumerate(rows):
      axes.plot(contrast.printed, place, marker='|', markersize=18, color=style.INK, linestyle='')
      for index, measure in enumerate(claim.measures):
        if found := compare(frame, contrast, measure, claim.level):
          look = style.line_style([*MEASURES].index(measure)) | {'linestyle': '-'}
          y = place + 0.24 * (index - (len(claim.measures) - 1) / 2)
          axes.plot([found.low, found.high], [y, y], **(look | {'marker': ''}))
          axes.plot(found.mean, y, **look, label=MEASURES[measure])
    axes.axvline(0, color=style.INK, linewidth=1)
    numbers = [CLAIMS.index(claim) + 1 for claim, _ in rows]
    names = [f'{number}: {each.better}\n− {each.worse}' for number, (_, each) in zip(numbers, rows, strict=True)]
    axes.set_yticks(range(len(rows)), names, fontsize=9)
    axes.invert_yaxis()
    axes.grid(False, axis='y')
    axes.set_xlabel('points; right of 0, the first model is better; black: the paper')
    legend = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(legend.values(), legend.keys(), loc='upper center', bbox_to_anchor=(0.4, 1.12), ncols=len(legend))
  return canvas.png()


def plot_layers(frame: pd.DataFrame) -> bytes:
  """Accuracy of retrieval by layer (Figure 2): mean over languages, with the range over seeds."""
  with style.canvas(width=7, height=4) as canvas:
    for index, model in enumerate(('in128_out128', 'in128_out768', 'in128_out3072')):
      of_model = frame[frame.index.get_level_values('model') == model].droplevel('model')
      if len(of_model):
        by_seed = layers(of_model).mean(axis='columns').unstack('layer')
        canvas.axes.plot(by_seed.columns, by_seed.mean(), **style.line_style(index), label=model)
        canvas.axes.fill_between(
          by_seed.columns, by_seed.min(), by_seed.max(), color=style.SERIES[index], alpha=0.2, linewidth=0
        )
        canvas.axes.set_xticks(by_seed.columns)
    canvas.axes.set_xlabel('layer')
    canvas.axes.set_ylabel('translations found, %')
    if canvas.axes.lines:
      canvas.axes.legend()
  return canvas.png()


def main(arguments: Sequence[str] | None = None) -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    prog='python -m docs.tools.replication', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  what = flags.add_mutually_exclusive_group()
  what.add_argument('--collect', type=pathlib.Path, metavar='SWEEP', help='directory of a sweep')
  what.add_argument('--tuned', type=pathlib.Path, metavar='SWEEP', help='directory of a sweep over LEARNING_RATE')
  what.add_argument('--missing', choices=('learning_rates', 'first', 'later'))
  options = flags.parse_args(arguments)
  frame, losses = read_scores(SCORES.read_text()), read_learning_rates()
  if options.missing:
    print('\n'.join(missing(options.missing, frame, losses)))
    return
  if options.tuned:
    LEARNING_RATES.write_text(with_new(losses, tuned(options.tuned), 2).to_csv(float_format='%.5g'))
    return
  if options.collect:
    frame = with_new(frame, collect(options.collect), 2)
    SCORES.write_text(write_scores(frame))
  PAGE.write_text(with_tables(PAGE.read_text(), page_tables(frame)))
  CLAIMS_PLOT.write_bytes(plot_claims(frame))
  LAYERS_PLOT.write_bytes(plot_layers(frame))


if __name__ == '__main__':
  main()
