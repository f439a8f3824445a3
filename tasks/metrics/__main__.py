"""Scores predictions in XTREME's layout: `python -m tasks.metrics --predictions=DIR --labels=DIR`."""

import argparse
import collections
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence

from etils import epath

from rembert.command_line import command_parser, run_command
from rembert.errors import UsageError
from tasks.metrics.labels import accuracy, chunk_scores
from tasks.metrics.question_answering import mlqa, squad
from tasks.tables.files import read_json, read_questions, some_lines
from tasks.xtreme import BENCHMARK
from tasks.xtreme.files import read_blocks

DESCRIPTION = """\
Score predictions of any model with the metrics of XTREME's evaluate.py. Both directories have its layout:

  DIR/xnli/test-de.tsv, pawsx           one label per line
  DIR/panx/test-de.tsv, udpos           one tag per line, a blank line between sentences
  DIR/xquad/test-de.json, mlqa, tydiqa  predictions {"question id": "answer"}; labels in the format of SQuAD v1.1
  DIR/tatoeba/test-de.tsv               0-based line number of the translation
  DIR/bucc2018/test-de.tsv              pairs of ids, separated by a tab

All languages with a prediction file are scored. A question without a prediction scores 0, and is reported."""

EPILOG = """\
examples
  all tasks of a run, with the labels next to the data:
    python -m tasks.metrics --predictions=runs/finetune_xnli/predictions --labels=download/labels
  two tasks, with the scores also as JSON:
    python -m tasks.metrics --predictions=predictions --labels=labels --task=xnli --task=panx --output=scores.json

exit codes
  0 all predictions were scored · 2 a file is missing or not in XTREME's format
"""

_FORMATS = 'the formats are listed by python -m tasks.metrics --help'
TASKS = tuple(task for task in BENCHMARK if task != 'squad')  # which is for training alone

# By task and language: scores by name, 0 to 100.
Scores = dict[str, dict[str, dict[str, float]]]


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  flags = command_parser('tasks.metrics', DESCRIPTION, EPILOG)
  flags.add_argument('--predictions', required=True, metavar='DIR', help='directory of predictions')
  flags.add_argument('--labels', required=True, metavar='DIR', help='directory of gold labels')
  flags.add_argument('--task', action='append', choices=TASKS, help='score this task only; repeatable (default: all)')
  flags.add_argument('--output', metavar='FILE', help='JSON file for the scores (default: none)')
  return flags


# --- one task and language --------------------------------------------------------------------------------------------


def _score_labels(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  gold, predicted = _lines(labels), _lines(predictions)
  _refuse_other_length(gold, predicted, 'lines', predictions, labels)
  return {'accuracy': accuracy(gold, predicted)}


def _score_tags(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  gold, predicted = (
    [[tag.text.strip() for tag in tags] for tags, _ in read_blocks(file)] for file in (labels, predictions)
  )
  _refuse_other_length(gold, predicted, 'sentences', predictions, labels)
  for number, (left, right) in enumerate(zip(gold, predicted, strict=True), 1):
    _refuse_other_length(left, right, f'tags in sentence {number}', predictions, labels)
  return chunk_scores(gold, predicted)


def _score_answers(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  questions, found = read_questions(labels), read_json(predictions)
  if questions[0].label is None:
    raise UsageError('the questions have no gold answers', where=str(labels), fix='the file before XTREME blanked it')
  if not isinstance(found, dict) or not all(isinstance(answer, str) for answer in found.values()):
    raise UsageError('predictions must be one JSON object {"id": "answer"}', where=str(predictions), fix=_FORMATS)
  ids = [question.features['id'] for question in questions]
  if unknown := sorted(found.keys() - set(ids)):
    raise UsageError(
      f'{len(unknown)} predicted ids are not in the gold questions, for example {unknown[0]!r}',
      where=str(predictions),
      fix=f'use predictions for the questions of {labels}',
    )
  # The official scripts give a question without a prediction 0 for both metrics, like an empty answer.
  answers = [found.get(name, '') for name in ids]
  gold = [[answer.text for answer in question.label] for question in questions]
  language = labels.stem.removeprefix('test-')
  scores = mlqa(gold, answers, language) if labels.parent.name == 'mlqa' else squad(gold, answers)
  missing = sum(name not in found for name in ids)
  return scores | ({'unanswered': missing} if missing else {})


def _score_translations(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  for file in (predictions, labels):
    for number, line in enumerate(_lines(file), 1):
      if not (line.isascii() and line.isdigit()):
        raise UsageError(f'{line!r} is not a line number', where=f'{file}:{number}', fix=_FORMATS)
  return _score_labels(predictions, labels)


def _score_pairs(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  from tasks.metrics.retrieval import score_pairs

  pairs = {}
  for file in (predictions, labels):
    pairs[file] = {tuple(line.split('\t')) for line in _lines(file)}
    if wrong := next((pair for pair in pairs[file] if len(pair) != 2), None):
      raise UsageError(f'{"TAB".join(wrong)!r} is not a pair of ids', where=str(file), fix=_FORMATS)
  return score_pairs(pairs[predictions], pairs[labels])


# By kind of `benchmark.json`, or by task.
_SCORERS: Mapping[str, Callable[[epath.Path, epath.Path], dict[str, float]]] = {
  'pairs': _score_labels,
  'tagging': _score_tags,
  'questions': _score_answers,
  'tatoeba': _score_translations,
  'bucc2018': _score_pairs,
}


def _lines(file: epath.Path) -> list[str]:
  return [line.text.strip() for line in some_lines(file)]


def _refuse_other_length(gold: Sequence, predicted: Sequence, of_what: str, predictions, labels) -> None:
  if len(gold) != len(predicted):
    raise UsageError(
      f'{len(predicted):,} {of_what} are predicted, but there are {len(gold):,}',
      where=f'{predictions}, {labels}',
      fix='use predictions and labels of the same test file, in its order',
    )


# --- all tasks and languages ------------------------------------------------------------------------------------------


def score(predictions: epath.PathLike, labels: epath.PathLike, tasks: Sequence[str] = TASKS) -> Scores:
  """Scores all prediction files, `TASK/test-LANGUAGE.tsv` (or `.json`), against labels of the same name.

  `unanswered`, if any, counts questions without a prediction. UsageError if there are no predictions, labels are
  missing, or a file has another format.
  """
  found: Scores = collections.defaultdict(dict)
  for task in tasks:
    kind = BENCHMARK[task]['kind']
    scorer, suffix = _SCORERS[kind if kind in _SCORERS else task], 'json' if kind == 'questions' else 'tsv'
    for file in sorted((epath.Path(predictions) / task).glob(f'test-*.{suffix}')):
      gold = epath.Path(labels) / task / file.name
      if not gold.is_file():
        raise UsageError(
          'gold labels are missing',
          where=str(gold),
          fix=[f'add the labels for {file}', 'or choose other tasks: --task'],
        )
      found[task][file.stem.removeprefix('test-')] = scorer(file, gold)
  if not found:
    raise UsageError(
      f'no predictions found for {", ".join(tasks)}',
      where=f'--predictions={predictions}',
      fix='files are named TASK/test-LANGUAGE.tsv (or .json): python -m tasks.metrics --help',
    )
  return dict(found)


def averages(scores: Scores) -> dict[str, dict[str, float]]:
  """The mean of each score over languages, by task; counts are summed."""
  means: dict[str, dict[str, float]] = {}
  for task, by_language in scores.items():
    names = dict.fromkeys(name for values in by_language.values() for name in values)
    of = lambda name, by_language=by_language: [values[name] for values in by_language.values() if name in values]
    means[task] = {name: sum(of(name)) if name == 'unanswered' else statistics.fmean(of(name)) for name in names}
  return means


def run(options: argparse.Namespace) -> None:
  """Scores, prints a table per task, and writes the JSON file."""
  from rembert.files import check_output, write_whole
  from rembert.tracking.console import Console

  if options.output:
    check_output(options.output, '--output')
  scores = score(options.predictions, options.labels, options.task or TASKS)
  means, console = averages(scores), Console()
  for task, by_language in scores.items():
    names = list(means[task])
    form = lambda name, value: '' if value is None else f'{value:,}' if name == 'unanswered' else f'{value:.2f}'
    cells = lambda values, names=names, form=form: [form(name, values.get(name)) for name in names]
    rows = [[language, *cells(values)] for language, values in by_language.items()]
    if len(rows) > 1:
      rows.append([f'average ({len(rows)} languages)', *cells(means[task])])
    console.table(task, ['', *names], rows)
  if options.output:
    content = {'tasks': scores, 'mean': means}
    write_whole(epath.Path(options.output), json.dumps(content, indent=1) + '\n')
    console.say(f'scores: {options.output}')


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command."""
  options = parser().parse_args(argv)
  return run_command('tasks.metrics', lambda: run(options))


if __name__ == '__main__':
  sys.exit(main())
