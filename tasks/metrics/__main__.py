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
from tasks.xtreme.files import read_json, read_lines, read_questions

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

QUESTIONS = ('xquad', 'mlqa', 'tydiqa')
_FORMATS = 'the formats are listed by python -m tasks.metrics --help'

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


def _labels(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  gold, predicted = _lines(labels), _lines(predictions)
  _refuse_other_length(gold, predicted, 'lines', predictions, labels)
  return {'accuracy': accuracy(gold, predicted)}


def _tags(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  gold, predicted = _sentences(labels), _sentences(predictions)
  _refuse_other_length(gold, predicted, 'sentences', predictions, labels)
  for number, (left, right) in enumerate(zip(gold, predicted, strict=True), 1):
    _refuse_other_length(left, right, f'tags in sentence {number}', predictions, labels)
  return chunk_scores(gold, predicted)


def _answers(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  questions = read_questions(labels, needs_answers=True, unique_ids=True)
  found = read_json(predictions)
  if not isinstance(found, dict) or not all(isinstance(answer, str) for answer in found.values()):
    raise UsageError('predictions must be one JSON object {"id": "answer"}', where=str(predictions), fix=_FORMATS)
  unknown = sorted(found.keys() - {question.features['id'] for question in questions})
  if unknown:
    raise UsageError(
      f'{len(unknown)} predicted ids are not in the gold questions, for example {unknown[0]!r}',
      where=str(predictions),
      fix=f'use predictions for the questions of {labels}',
    )
  # The official scripts give a question without a prediction 0 for both metrics, like an empty answer.
  answers = [found.get(question.features['id'], '') for question in questions]
  gold = [[answer.text for answer in question.label] for question in questions]
  language = labels.stem.removeprefix('test-')
  scores = mlqa(gold, answers, language) if labels.parent.name == 'mlqa' else squad(gold, answers)
  missing = sum(question.features['id'] not in found for question in questions)
  return scores | ({'unanswered': missing} if missing else {})


def _translations(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  for file in (predictions, labels):
    for number, line in enumerate(_lines(file), 1):
      if not (line.isascii() and line.isdigit()):
        raise UsageError(f'{line!r} is not a line number', where=f'{file}:{number}', fix=_FORMATS)
  return _labels(predictions, labels)


def _pairs(predictions: epath.Path, labels: epath.Path) -> dict[str, float]:
  from tasks.metrics.retrieval import score_pairs

  pairs = {}
  for file in (predictions, labels):
    pairs[file] = {tuple(line.split('\t')) for line in _lines(file)}
    if wrong := next((pair for pair in pairs[file] if len(pair) != 2), None):
      raise UsageError(f'{"TAB".join(wrong)!r} is not a pair of ids', where=str(file), fix=_FORMATS)
  return score_pairs(pairs[predictions], pairs[labels])


_SCORERS: Mapping[str, Callable[[epath.Path, epath.Path], dict[str, float]]] = {
  **dict.fromkeys(('xnli', 'pawsx'), _labels),
  **dict.fromkeys(('panx', 'udpos'), _tags),
  **dict.fromkeys(QUESTIONS, _answers),
  'tatoeba': _translations,
  'bucc2018': _pairs,
}
TASKS = tuple(_SCORERS)


def _lines(file: epath.Path) -> list[str]:
  lines = [line.text.strip() for line in read_lines(file)]
  if not lines:
    raise UsageError('the file is empty', where=str(file), fix=_FORMATS)
  return lines


def _sentences(file: epath.Path) -> list[list[str]]:
  """Tags of each sentence. A blank line ends a sentence, so two enclose an empty one, as in XTREME's evaluate.py."""
  sentences: list[list[str]] = [[]]
  for line in _lines(file):
    if line:
      sentences[-1].append(line)
    else:
      sentences.append([])
  return sentences if sentences[-1] else sentences[:-1]


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
    suffix = 'json' if task in QUESTIONS else 'tsv'
    for file in sorted((epath.Path(predictions) / task).glob(f'test-*.{suffix}')):
      gold = epath.Path(labels) / task / file.name
      if not gold.is_file():
        raise UsageError(
          'gold labels are missing',
          where=str(gold),
          fix=[f'add the labels for {file}', 'or choose other tasks: --task'],
        )
      found[task][file.stem.removeprefix('test-')] = _SCORERS[task](file, gold)
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
