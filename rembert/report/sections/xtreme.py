"""XTREME: the leaderboard's row, a table for every task, language by language, and scores on dev over steps."""

from collections.abc import Mapping, Sequence

from rembert.report import drawing
from rembert.report.page import MISSING, Block, Cell, Group, Picture, Section, Table, rows_table
from rembert.report.reading import Model, Source
from rembert.report.runs import Run
from rembert.report.scores import TaskScores, task_scores, variants, worth
from rembert.report.sections.models import all_models
from rembert.report.xtreme_rows import FAIR
from rembert.report.xtreme_scores import CATEGORIES, QUESTIONS, RETRIEVAL, SCORES, TASKS, Row, Spread, row_of
from rembert.report.xtreme_table import NAMES, remarks


def section(sources: Sequence[Source]) -> Section:
  """Everything that was learned and judged."""
  models = all_models(sources)
  found = scores_by_name(models)
  tasks = dict.fromkeys(task for of_model in found.values() for task in of_model)
  ordered = sorted(tasks, key=lambda task: (*TASKS, *RETRIEVAL, task).index(task))
  blocks: list[Block] = [_leaderboard(found)] if any(task in TASKS for task in ordered) else []
  blocks += [_task_table(task, {name: each[task] for name, each in found.items() if task in each}) for task in ordered]
  return Section('XTREME', [*blocks, *_variants_table(models), *_dev_pictures(models)])


def scores_by_name(models: Sequence[Model]) -> dict[str, dict[str, TaskScores]]:
  """Model to task to scores, of fine-tuning without changes; those that have any."""
  found = {model.name: task_scores(model) for model in models}
  return {name: scores for name, scores in found.items() if scores}


# --- the leaderboard's row --------------------------------------------------------------------------------------------


def _leaderboard(found: Mapping[str, Mapping[str, TaskScores]]) -> Table:
  ours = [_row(name, of_model) for name, of_model in found.items()]
  columns = ['model']
  for category, tasks in CATEGORIES.items():
    columns += [*(NAMES[task] for task in tasks), NAMES[category].removeprefix('= ')]
  columns += ['Avg', 'Avg_task']
  rows: list[list[str | Cell]] = [[row.name, *_leaderboard_cells(row)] for row in ours]
  rows += [[f'{row.name} (paper)', *(Cell(text, kind='paper') for text in _leaderboard_cells(row))] for row in FAIR]
  notes = ['A star marks what is over fewer languages or tasks than the benchmark has: it cannot be compared.']
  if len(ours) == 1:
    notes += remarks(ours[0])
  return rows_table("The leaderboard's row: Tables 7 and 16", columns, rows, notes)


def _row(name: str, of_model: Mapping[str, TaskScores]) -> Row:
  """Means over seeds; of tasks that XTREME has and whose scores are whole."""
  languages = {}
  for task, scores in of_model.items():
    runs = list(scores.by_seed.values())
    if task in SCORES and all(key in entry for run in runs for entry in run.values() for key in SCORES[task]):
      languages[task] = {
        language: {key: sum(run[language][key] for run in runs) / len(runs) for key in SCORES[task]}
        for language in scores.languages
      }
  return row_of(name, languages)


def _leaderboard_cells(row: Row) -> list[str]:
  averages = row.averages()

  def score(task: str) -> str:
    found = row.scores.get(task)
    if found is None:
      return MISSING
    text = f'{found.score:.1f}'
    if task in QUESTIONS:
      text = f'{MISSING if found.exact_match is None else f"{found.exact_match:.1f}"}/{text}'
    return f'{text}*' if found.is_partial else text

  def average(name: str) -> str:
    if name in row.stated:
      return f'{row.stated[name]:.1f}'
    found = averages[name]
    return MISSING if found.value is None else f'{found.value:.1f}' + '*' * found.is_partial

  cells = []
  for category, tasks in CATEGORIES.items():
    cells += [*(score(task) for task in tasks), average(category)]
  return [*cells, average('average'), average('task_mean')]


# --- one task ---------------------------------------------------------------------------------------------------------


def _task_table(task: str, found: Mapping[str, TaskScores]) -> Table:
  summaries = {name: scores.summary() for name, scores in found.items()}
  languages = sorted(dict.fromkeys(language for each in summaries.values() for language in each.languages))
  means = {
    language: [each.languages[language].mean for each in summaries.values() if language in each.languages]
    for language in languages
  }
  languages.sort(key=lambda language: (language != 'en', -sum(means[language]) / len(means[language]), language))
  baseline = next((scores for scores in found.values() if scores.baseline), None)
  known = {language: worth(task, scores) for language, scores in baseline.baseline.items()} if baseline else {}

  def line(name: str, values: Sequence[Spread | None], unread: float | None) -> list[str | Cell]:
    texts = [_spread(value) for value in values]
    cells: list[str | Cell] = [*texts]
    there = [value.mean for value in values if value is not None]
    if len(there) > 1:
      best = max(there)
      cells = [
        Cell(text, kind='best') if value is not None and value.mean == best else text
        for text, value in zip(texts, values, strict=True)
      ]
    return [name, *cells, *([MISSING if unread is None else Cell(f'{unread:.1f}', kind='paper')] if known else [])]

  by_language = [
    line(language, [each.languages.get(language) for each in summaries.values()], known.get(language))
    for language in languages
  ]
  mean_known = sum(known.values()) / len(known) if known else None
  summary: list[list[str | Cell]] = [
    line('mean', [each.mean for each in summaries.values()], mean_known),
    ['zero-shot gap', *(_spread(each.gap) for each in summaries.values()), *([MISSING] if known else [])],
  ]
  columns = ['language', *found, *(['without reading'] if known else [])]
  return Table(
    f'{NAMES.get(task, task)}: {len(languages)} language(s)',
    columns,
    [Group('', by_language), Group('', summary)],
    _task_notes(task, found, bool(known)),
  )


def _task_notes(task: str, found: Mapping[str, TaskScores], has_baseline: bool) -> list[str]:
  what = 'mean of exact match and F1' if task in (*QUESTIONS, 'squad') else ' '.join(SCORES.get(task, ('score',)))
  notes = [
    f'{what}, 0 to 100; mean ± standard deviation over seeds. The gap is English less the mean of the other languages.'
  ]
  if has_baseline:
    notes.append(
      'Without reading: what somebody scores who knows how frequent the labels are, and has not read the text.'
    )
  counts = {(len(scores.by_seed), scores.planned) for scores in found.values()}
  if len(counts) == 1:
    ((done, planned),) = counts
    notes.append(f'{done} of {planned} seed(s){" of every model" if len(found) > 1 else ""}.')
  for name, scores in found.items():
    has_more = scores.learning_rate is not None or scores.left_out
    if len(counts) == 1 and not has_more:
      continue
    words = f'{name}: {len(scores.by_seed)} of {scores.planned} seed(s)'
    if scores.learning_rate is not None:
      words += f', learning rate {scores.learning_rate:g}, the best on dev'
    if scores.left_out:
      words += f'; not judged in every seed yet: {", ".join(scores.left_out)}'
    notes.append(f'{words}.')
  return notes


def _spread(found: Spread | None) -> str:
  if found is None:
    return MISSING
  return f'{found.mean:.1f}' + ('' if found.deviation is None else f' ± {found.deviation:.1f}')


def _variants_table(models: Sequence[Model]) -> list[Table]:
  """Fine-tunings in which something was changed (layers dropped, embeddings frozen), beside those without changes."""
  found = {
    model.name: {variant: scores for variant in variants(model) if (scores := task_scores(model, variant))}
    for model in models
  }
  found = {name: of_model for name, of_model in found.items() if any(of_model)}
  tasks = dict.fromkeys(task for of_model in found.values() for scores in of_model.values() for task in scores)
  ordered = sorted(tasks, key=lambda task: (*TASKS, *RETRIEVAL, task).index(task))
  cell = lambda scores, task: _spread(scores[task].summary().mean) if task in scores else MISSING
  groups = [
    Group(
      name, [[variant or 'as it is', *(cell(scores, task) for task in ordered)] for variant, scores in of_model.items()]
    )
    for name, of_model in found.items()
  ]
  columns = ['model', 'fine-tuning with', *(NAMES.get(task, task) for task in ordered)]
  notes = ['Means over languages, ± standard deviation over seeds; questions count the mean of exact match and F1.']
  return [Table('Changes in fine-tuning', columns, groups, notes)] if groups else []


# --- dev over steps ---------------------------------------------------------------------------------------------------


def _dev_pictures(models: Sequence[Model]) -> list[Picture]:
  by_task: dict[str, list[tuple[int, str, Run]]] = {}
  for index, model in enumerate(models):
    for each in model.learned:
      if each.run is not None and each.variant == '' and each.run.parts_of('eval/dev'):
        by_task.setdefault(each.task, []).append((index, model.name, each.run))
  pictures = []
  for task, runs in by_task.items():
    score = _main_score(task, runs[0][2])
    name = NAMES.get(task, task)
    key = f'eval/dev/{score}'
    with drawing.canvas(f'dev-{task}', alt=f'{name}: {score} on dev over steps, {len(runs)} run(s)') as canvas:
      seen = set()
      for index, model, run in runs:
        steps, values = run.curve(key)
        if steps:
          look = drawing.style(index) | {'markersize': 3.5, 'linewidth': 1.4, 'alpha': 0.85}
          label = None if model in seen else drawing.label(model)
          seen.add(model)
          canvas.axes.plot(*drawing.thinned(steps, values), label=label, **look)
      canvas.axes.set_ylabel(f'{score.replace("_", " ")} on dev')
      canvas.axes.set_title(name, loc='left')
      drawing.step_axis(canvas.axes)
      canvas.legend()
    caption = f'{name}: {score.replace("_", " ")} on the dev set of the language learned from; a line for each run.'
    pictures.append(Picture(f'{name} on dev', caption, canvas.drawing))
  return pictures


def _main_score(task: str, run: Run) -> str:
  there = run.parts_of('eval/dev')
  wanted = ('f1',) if task == 'squad' else SCORES.get(task, ())
  return next((name for name in reversed(wanted) if name in there), there[0])
