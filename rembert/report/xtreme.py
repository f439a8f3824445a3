"""XTREME sections of a report: leaderboard row, table per task and language, variants of fine-tuning, all scores."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from rembert.report.html import MISSING, Block, Section, Table, table_frame
from rembert.report.load import Model
from rembert.report.scores import SEEDS, Results, TaskProgress, of
from tasks.xtreme.leaderboard import (
  COLUMNS,
  FAIR,
  NAMES,
  QUESTIONS,
  RETRIEVAL,
  SCORES,
  TASKS,
  LeaderboardRow,
  Spread,
  cell,
  leaderboard_row,
  remarks,
  spread,
  summarise,
)


def xtreme(results: Results) -> Section:
  """All results of fine-tuning and evaluation."""
  models = [model for model in results.models if results.tasks(model)]
  tasks = in_order(task for model in models for task in results.tasks(model))
  blocks: list[Block] = [_leaderboard(results, models)] if any(task in TASKS for task in tasks) else []
  blocks += [_task_table(results, task, [model for model in models if task in results.tasks(model)]) for task in tasks]
  return Section('XTREME', [*blocks, *_variants_table(results)])


def in_order(tasks: Iterable[str]) -> list[str]:
  """Sorts tasks: those of the leaderboard in its order, then retrieval, then others."""
  return sorted(dict.fromkeys(tasks), key=lambda task: (*TASKS, *RETRIEVAL, task).index(task))


# --- the leaderboard row ----------------------------------------------------------------------------------------------


def _leaderboard(results: Results, models: Sequence[Model]) -> Table:
  ours = [row_of(results, model) for model in models]
  rows = {row.name: row for row in ours} | {f'{row.name} (paper)': row for row in FAIR}
  cells = {name: {NAMES[column]: cell(row, column, MISSING) for column in COLUMNS} for name, row in rows.items()}
  notes = ['A star marks averages over fewer languages or tasks than the benchmark has, which are not comparable.']
  if len(ours) == 1:
    notes += remarks(ours[0])
  look = lambda row, column: 'paper' if rows[row] in FAIR else ''
  return Table("The leaderboard's row: Tables 7 and 16", table_frame(cells.items(), 'model'), notes, look)


def row_of(results: Results, model: Model) -> LeaderboardRow:
  """Means over seeds, for XTREME tasks with complete scores."""
  by_task = {}
  for task in results.tasks(model):
    found = of(results.scores, model=model.name, variant='', task=task)
    by_language = found.pivot_table(index=[*SEEDS, 'language'], columns='metric', values='value', sort=False)
    if task in SCORES and set(SCORES[task]) <= set(by_language) and by_language[[*SCORES[task]]].notna().all(axis=None):
      runs = by_language[[*SCORES[task]]].groupby(SEEDS, sort=False)
      by_task[task] = [run.droplevel(SEEDS).to_dict('index') for _, run in runs]
  return leaderboard_row(model.name, by_task)


# --- one task ---------------------------------------------------------------------------------------------------------


def _task_table(results: Results, task: str, models: Sequence[Model]) -> Table:
  summaries = {model.name: summarise(results.by_seed(model, task).to_dict('records')) for model in models}
  spreads = pd.DataFrame({name: {_GAP: None, **each} for name, each in summaries.items()}, dtype=object)
  values = spreads.map(lambda each: each.mean if isinstance(each, Spread) else math.nan).astype(float)
  by_mean = values.drop(index=['mean', _GAP]).mean(axis='columns')
  languages = sorted(by_mean.index, key=lambda language: (language != 'en', -by_mean[language], language))
  values = values.loc[[*languages, 'mean', _GAP]]
  best = values.eq(values.max(axis='columns'), axis='index') & (len(models) > 1)
  frame = spreads.loc[values.index].map(lambda each: str(each) if isinstance(each, Spread) else MISSING)
  baseline = of(results.worths, task=task, variant='').dropna(subset='baseline').groupby('language')['baseline'].first()
  if len(baseline):
    known = pd.concat([baseline, pd.Series({'mean': baseline.mean()})]).map('{:.1f}'.format)
    frame[_BASELINE] = known.reindex(frame.index, fill_value=MISSING)

  def look(row: str, column: str) -> str:
    if column == _BASELINE:
      return 'paper'
    return 'best' if row != _GAP and best.at[row, column] and values.loc[row].count() > 1 else ''

  progress = {model.name: results.progress[model.name, '', task] for model in models}
  title = f'{NAMES.get(task, task)}: {len(languages)} language(s)'
  notes = _task_notes(task, progress, bool(len(baseline)))
  return Table(title, frame.rename_axis('language'), notes, look, footer=2)


_GAP, _BASELINE = 'transfer gap', 'baseline'


def _task_notes(task: str, progress: Mapping[str, TaskProgress], has_baseline: bool) -> list[str]:
  what = 'mean of exact match and F1' if task in (*QUESTIONS, 'squad') else ' '.join(SCORES.get(task, ('score',)))
  notes = [f'{what}, 0 to 100; mean ± standard deviation over seeds. Transfer gap: English − mean of the others.']
  if has_baseline:
    notes.append('Baseline: the majority label; for question answering, the first words of the context.')
  counts = {(each.done, each.planned) for each in progress.values()}
  if len(counts) == 1:
    ((done, planned),) = counts
    notes.append(f'{done} of {planned} seed(s){" of every model" if len(progress) > 1 else ""}.')
  for name, each in progress.items():
    words = f'{name}: {each.done} of {each.planned} seed(s)'
    if each.learning_rate:
      words += f', learning rate {each.learning_rate}, the best on dev'
    if each.left_out:
      words += f'; not evaluated for every seed yet: {", ".join(each.left_out)}'
    if len(counts) > 1 or each.learning_rate or each.left_out:
      notes.append(f'{words}.')
  return notes


def _variants_table(results: Results) -> list[Table]:
  """Fine-tuning with a variant (layers dropped, embeddings frozen), next to fine-tuning without changes."""
  changed = {model for model, variant, _ in results.progress if variant}
  found = results.worths[results.worths['model'].isin(changed)]
  if found.empty:
    return []
  means = found.groupby(['model', 'variant', 'task', *SEEDS], sort=False)['value'].mean()
  spreads = means.groupby(['model', 'variant', 'task'], sort=False).agg(lambda values: str(spread(values.tolist())))
  frame = spreads.unstack('task', fill_value=MISSING).loc[spreads.index.droplevel('task').unique()]
  frame = frame[in_order(frame)].rename(columns=lambda task: NAMES.get(task, task))
  frame = frame.rename(index={'': 'as it is'}, level='variant').rename_axis(['model', 'fine-tuning with'])
  notes = ['Means over languages, ± standard deviation over seeds; QA counts the mean of exact match and F1.']
  return [Table('Changes in fine-tuning', frame, notes)]


# --- every score ------------------------------------------------------------------------------------------------------


def every_score(results: Results) -> Section:
  """A file of the tidy table, for further computations."""
  scores = results.scores
  number = lambda value: '' if pd.isna(value) else f'{value:.4f}'
  frame = pd.DataFrame(
    {
      'pre-training': scores['pretrain_seed'].astype(str),
      'fine-tuning': scores['seed'].astype(str).replace('-1', ''),
      **{name: scores[name] for name in ('variant', 'task', 'language')},
      'measure': scores['metric'],
      'score': scores['value'].map(number),
      _BASELINE: scores['baseline'].map(number),
    }
  ).set_index(pd.Index(scores['model'], name='model'))
  caption = (
    f'{len(frame):,} scores without averaging: by model and seed (with the best learning rate on dev), language and '
    'metric, with the trivial baseline. The first rows are the last evaluation of each pre-training run: loss in nats, '
    'accuracy in percent.'
  )
  return Section('Every score', [Table('every score', frame, [caption], is_shown=False)] if len(frame) else [])
