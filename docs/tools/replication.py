"""The tables and the plot of docs/replication, from the report on the runs of docs/replication/run.sh.

python -m docs.tools.replication runs/replication/sweep/report      copy its scores, and render
python -m docs.tools.replication                                    render from docs/replication/scores.csv alone
"""

import argparse
import csv
import dataclasses
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence

import pandas as pd

from docs.tools.parameters import counted
from docs.tools.rendering import table, with_tables
from rembert import paper
from rembert.plotting import style
from rembert.report.scores import HELD_OUT
from rembert.report.statistics import Comparison, compare, holm
from tasks.xtreme.leaderboard import value

FOLDER = pathlib.Path(__file__).parents[1] / 'replication'
SCORES, PAGE, PICTURE = (FOLDER / name for name in ('scores.csv', 'index.md', 'differences.png'))
SCALE = 'gin/scales/micro.gin'
TASKS = {'udpos': 'UDPOS', 'panx': 'PAN-X', 'xnli': 'XNLI', 'xquad': 'XQuAD'}

# (seed of pre-training, seed of fine-tuning) to language to what it is worth.
Runs = dict[tuple[int, int], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Claim:
  """That one model transfers better than another.

  Attributes:
    table: of the paper.
    better: the model that is to be ahead, a row of the table.
    worse: likewise.
  """

  table: int
  better: str
  worse: str


CLAIMS = (
  Claim(2, 'in768_out768', 'coupled768'),
  Claim(3, 'in128_out768', 'in768_out128'),
  Claim(4, 'in128_out768', 'in128_out128'),
  Claim(4, 'in128_out3072', 'in128_out768'),
  Claim(6, 'hidden1024', 'coupled768'),
  Claim(6, 'layers23', 'coupled768'),
  Claim(6, 'layers23', 'in128_out768'),
)


@dataclasses.dataclass(frozen=True)
class Scores:
  """What is in the CSV.

  Attributes:
    models: in its order.
    losses: model to seed of pre-training to the loss on held-out text, nats.
    tasks: model to task to its runs.
    measures: model to task to measure to the mean over languages and runs.
  """

  models: tuple[str, ...]
  losses: Mapping[str, Mapping[int, float]]
  tasks: Mapping[str, Mapping[str, Runs]]
  measures: Mapping[str, Mapping[str, Mapping[str, float]]]


def read_scores(text: str) -> Scores:
  """Of `every-score.csv` (`rembert.report.xtreme.every_score`)."""
  losses: dict[str, dict[int, float]] = {}
  raw: dict[str, dict[str, dict[tuple[int, int], dict[str, dict[str, float]]]]] = {}
  for row in csv.DictReader(text.removeprefix('\ufeff').splitlines()):
    model, task, language, score = row['model'], row['task'], row['language'], float(row['score'])
    raw.setdefault(model, {})
    if task == HELD_OUT:
      if (language, row['measure']) == ('all', 'loss'):
        losses.setdefault(model, {})[int(row['pre-training'])] = score
      continue
    seeds = int(row['pre-training']), int(row['fine-tuning'])
    raw[model].setdefault(task, {}).setdefault(seeds, {}).setdefault(language, {})[row['measure']] = score
  tasks, measures = {}, {}
  for model, by_task in raw.items():
    tasks[model] = {
      task: {seeds: {code: value(task, each) for code, each in run.items()} for seeds, run in runs.items()}
      for task, runs in by_task.items()
    }
    measures[model] = {task: _means(runs) for task, runs in by_task.items()}
  return Scores(tuple(raw), losses, tasks, measures)


def _means(runs: Mapping[tuple[int, int], Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
  each = [measures for run in runs.values() for measures in run.values()]
  return {measure: statistics.fmean(measures[measure] for measures in each) for measure in each[0]}


# --- tables -----------------------------------------------------------------------------------------------------------


def models_table(scores: Scores) -> str:
  """Every model: its size, its loss by seed, and its mean over languages and seeds on each task."""
  rows = []
  for model, count in zip(scores.models, counted(scores.models, SCALE), strict=True):
    losses = ' · '.join(f'{loss:.3f}' for _, loss in sorted(scores.losses[model].items()))
    sizes = [f'{number / 1e6:.2f}M' for number in (count.pre_training, count.fine_tuning)]
    rows.append([f'`{model}`', *sizes, losses, *(_score(scores, model, task) for task in TASKS)])
  return table(['model', 'pre-training', 'fine-tuning', 'eval loss, by seed', *TASKS.values()], rows)


def _score(scores: Scores, model: str, task: str) -> str:
  measures = scores.measures[model].get(task)
  if measures is None:
    return '—'
  by_run = [statistics.fmean(run.values()) for run in scores.tasks[model][task].values()]
  names = ('exact_match', 'f1') if task == 'xquad' else ('accuracy',) if task == 'xnli' else ('f1',)
  mean = '/'.join(f'{measures[name]:.1f}' for name in names)
  return mean if len(by_run) == 1 else f'{mean} ({" · ".join(f"{each:.1f}" for each in by_run)})'


def asked(scores: Scores) -> list[Claim]:
  """Claims whose two models are there."""
  return [claim for claim in CLAIMS if {claim.better, claim.worse} <= set(scores.models)]


def comparisons(scores: Scores) -> dict[tuple[Claim, str], tuple[Comparison, float | None]]:
  """Each claim on each task, and its p over languages after Holm's correction over all of them."""
  found = {}
  for claim in asked(scores):
    for task in TASKS:
      ours, theirs = (scores.tasks[model].get(task) for model in (claim.better, claim.worse))
      if ours and theirs and (comparison := compare(*(pd.DataFrame(runs).T for runs in (ours, theirs)))):
        found[claim, task] = comparison
  corrected = holm([comparison.p_languages for comparison in found.values()])
  return {key: (comparison, p) for (key, comparison), p in zip(found.items(), corrected, strict=True)}


def claims_table(scores: Scores) -> str:
  """Each claim: what the paper has, and the differences here, task by task."""
  found, rows = comparisons(scores), []
  for claim in asked(scores):
    printed = paper.row(claim.table, claim.better).mean - paper.row(claim.table, claim.worse).mean
    seeds = sorted(scores.losses[claim.better].keys() & scores.losses[claim.worse].keys())
    losses = [scores.losses[claim.better][seed] - scores.losses[claim.worse][seed] for seed in seeds]
    cells = [_difference(*found[claim, task]) if (claim, task) in found else '—' for task in TASKS]
    rows.append(
      [
        f'`{claim.better}` − `{claim.worse}` (Table {claim.table})',
        f'{printed:+.1f}',
        ' · '.join(f'{loss:+.3f}' for loss in losses),
        *cells,
      ]
    )
  return table(['claim', 'paper, average', 'eval loss, by seed', *TASKS.values()], rows)


def _difference(comparison: Comparison, p: float | None) -> str:
  difference = f'{comparison.difference:+.2f}'
  if p is not None and p < 0.05:
    difference = f'**{difference}**'
  return difference + ('' if p is None else f' ({p:.2g})')


def page_tables(scores: Scores) -> dict[str, str]:
  """By their names on the page."""
  return {'models': models_table(scores), 'claims': claims_table(scores)}


# --- picture ----------------------------------------------------------------------------------------------------------


def picture(scores: Scores) -> bytes:
  """Differences in points with what is drawn again of languages and seeds, a group of lines for each claim."""
  found, claims = comparisons(scores), asked(scores)
  with style.canvas(width=8, height=1 + 0.72 * len(claims)) as canvas:
    axes = canvas.axes
    for place, claim in enumerate(claims):
      for index, (task, name) in enumerate(TASKS.items()):
        if (claim, task) not in found:
          continue
        comparison, _ = found[claim, task]
        y = place + 0.17 * (index - 1.5)
        axes.plot([comparison.low, comparison.high], [y, y], color=style.SERIES[index], linewidth=1.6)
        axes.plot(
          comparison.difference,
          y,
          color=style.SERIES[index],
          marker=style.MARKERS[index],
          linestyle='',
          markersize=5,
          label=name if place == 0 else None,
        )
    axes.axvline(0, color=style.INK, linewidth=1)
    axes.set_yticks(range(len(claims)), [f'{each.better}\n− {each.worse}' for each in claims], fontsize=9)
    axes.invert_yaxis()
    axes.grid(False, axis='y')
    axes.set_xlabel('points; right of 0, the first model is better')
    axes.legend(loc='upper center', bbox_to_anchor=(0.4, 1.1), ncols=len(TASKS))
  return canvas.png()


def main(arguments: Sequence[str] | None = None) -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    prog='python -m docs.tools.replication', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  flags.add_argument('report', nargs='?', type=pathlib.Path, help='folder of a report; default: none')
  options = flags.parse_args(arguments)
  if options.report:
    shutil.copyfile(options.report / 'every-score.csv', SCORES)
  scores = read_scores(SCORES.read_text())
  PAGE.write_text(with_tables(PAGE.read_text(), page_tables(scores)))
  PICTURE.write_bytes(picture(scores))


if __name__ == '__main__':
  main()
