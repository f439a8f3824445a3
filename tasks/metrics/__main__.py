"""Scores of files of predictions in XTREME's layout, from this project or any other program.

python -m tasks.metrics --predictions=DIR --labels=DIR
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.command_line import run_command
from rembert.errors import UsageError
from rembert.storage import write_errors, write_whole
from rembert.training.console import Console
from tasks.metrics import retrieval
from tasks.metrics.accuracy import accuracy
from tasks.metrics.chunks import chunk_scores
from tasks.metrics.mlqa import mlqa
from tasks.metrics.squad import squad
from tasks.xtreme.benchmark import TASKS as LEARNED
from tasks.xtreme.bucc2018 import LANGUAGES as BUCC_LANGUAGES
from tasks.xtreme.layout import Line, read_json
from tasks.xtreme.questions import read_questions
from tasks.xtreme.tatoeba import LANGUAGES as TATOEBA_LANGUAGES
from tasks.xtreme.text_lines import text_lines
from tasks.xtreme.words import read_blocks

LANGUAGES: dict[str, tuple[str, ...]] = {
  **{name: task.languages for name, task in LEARNED.items() if name != 'squad'},
  'tatoeba': TATOEBA_LANGUAGES,
  'bucc2018': BUCC_LANGUAGES,
}
# The groups of XTREME's evaluate.py; each, and all nine tasks, are averaged once all of their tasks are there.
GROUPS = {
  'sentence pairs': ('xnli', 'pawsx'),
  'structured prediction': ('panx', 'udpos'),
  'question answering': ('xquad', 'mlqa', 'tydiqa'),
  'retrieval': ('tatoeba', 'bucc2018'),
  'all tasks': tuple(LANGUAGES),
}

EPILOG = """\
examples
  all tasks of a run of this project that have predictions:
    python -m tasks.metrics --predictions=runs/finetune_xnli/predictions --labels=xtreme/labels
  two tasks, and the figures as a file:
    python -m tasks.metrics --predictions=predictions --labels=labels --task=xnli,xquad --output=scores.json

files
  DIR/TASK/test-LANGUAGE.tsv, of xquad, mlqa and tydiqa .json: the layout of XTREME's evaluate.py, for predictions and
  for labels. xnli, pawsx: a label a line. panx, udpos: a tag a line, a blank line between sentences. tatoeba: the line
  number of the translation, from 0. bucc2018: pairs of ids. Questions: {id: answer}, and labels in the form of SQuAD.

A task is worth its mean over languages: of accuracy, of F1, or for questions of the mean of F1 and exact match.
Languages without predictions are left out of a mean, and named.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; errors that a user can put right are told without a traceback."""
  options = _parser().parse_args(argv)
  return run_command('tasks.metrics', lambda: run(options, Console()), show_traceback=options.traceback)


def _parser() -> argparse.ArgumentParser:
  flags = argparse.ArgumentParser(
    prog='python -m tasks.metrics',
    description="Score predictions on XTREME's nine tasks.",
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  flags.add_argument('--predictions', required=True, metavar='DIR', help='predictions, a folder for each task')
  flags.add_argument('--labels', required=True, metavar='DIR', help='gold labels, a folder for each task')
  flags.add_argument(
    '--task', metavar='A,B', help=f'some of {" ".join(LANGUAGES)} (default: those with a folder of predictions)'
  )
  flags.add_argument('--output', metavar='FILE', help='also write all figures as JSON')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
  """Scores what the flags name, prints tables, and returns what `--output` holds.

  Returns:
    `tasks`: for each task its `languages` (scores by name), `mean` (of each score), `score` (what the task is worth)
    and `missing` languages; `mean`: of each of `GROUPS` whose tasks are all there.

  Raises:
    UsageError: no predictions; labels that are missing; files that are broken or do not fit together.
  """
  predictions, labels = epath.Path(options.predictions), epath.Path(options.labels)
  results: dict[str, Any] = {'tasks': {}, 'mean': {}}
  for task in _chosen(options.task, predictions):
    with console.task(task) as progress:
      scores = _score_languages(task, predictions / task, labels / task, progress)
    results['tasks'][task] = _summary(task, scores)
  for group, members in GROUPS.items():
    if all(task in results['tasks'] for task in members):
      results['mean'][group] = statistics.fmean(results['tasks'][task]['score'] for task in members)
  _show(console, results)
  if options.output:
    with write_errors('the scores', epath.Path(options.output)):
      write_whole(epath.Path(options.output), json.dumps(results, indent=1, ensure_ascii=False) + '\n')
  return results


def _chosen(names: str | None, predictions: epath.Path) -> list[str]:
  if names is not None:
    chosen = [name.strip() for name in names.split(',') if name.strip()]
    for name in chosen:
      if name not in LANGUAGES:
        raise UsageError(f'unknown task {name!r}', where='--task', fix=f'one of {", ".join(LANGUAGES)}')
  else:
    chosen = [name for name in LANGUAGES if (predictions / name).is_dir()]
  if not chosen:
    raise UsageError(
      'there are no predictions',
      where=f'--predictions={predictions}',
      fix='a folder for each task: TASK/test-LANGUAGE.tsv, or .json for questions',
    )
  return list(dict.fromkeys(chosen))


def _score_languages(task: str, predictions: epath.Path, labels: epath.Path, progress) -> dict[str, dict[str, float]]:
  """Scores of every language that has predictions."""
  suffix = LEARNED[task].suffix if task in LEARNED else 'tsv'
  there = [language for language in LANGUAGES[task] if (predictions / f'test-{language}.{suffix}').is_file()]
  if not there:
    raise UsageError(
      f'there are no predictions for {task}',
      where=f'{predictions}/test-LANGUAGE.{suffix}',
      fix=f'a file for each of {", ".join(LANGUAGES[task])}, or other tasks: --task=…',
    )
  found = {}
  for number, language in enumerate(there):
    progress(number / len(there), language)
    name = f'test-{language}.{suffix}'
    if not (labels / name).is_file():
      raise UsageError(
        f'gold labels of {task} in {language} are missing', where=str(labels / name), fix='--labels=DIR, see --help'
      )
    found[language] = _SCORERS[task](predictions / name, labels / name, language)
  return found


def _summary(task: str, scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
  names = next(iter(scores.values()))
  mean = {name: statistics.fmean(of_language[name] for of_language in scores.values()) for name in names}
  counted = ('f1', 'exact_match') if 'exact_match' in mean else ('accuracy',) if 'accuracy' in mean else ('f1',)
  return {
    'languages': dict(scores),
    'mean': mean,
    'score': statistics.fmean(mean[name] for name in counted),
    'missing': [language for language in LANGUAGES[task] if language not in scores],
  }


def _show(console: Console, results: Mapping[str, Any]) -> None:
  for task, summary in results['tasks'].items():
    names, count, of = list(summary['mean']), len(summary['languages']), len(LANGUAGES[task])
    in_order = lambda scores, names=names: [f'{scores[name]:.1f}' for name in names]
    rows = [[language, *in_order(scores)] for language, scores in summary['languages'].items()]
    rows.append([f'mean of {count}' if count == of else f'mean of {count} of {of}', *in_order(summary['mean'])])
    console.table(task, ['', *names], rows)
    if summary['missing']:
      console.say(f'{task}: no predictions for {", ".join(summary["missing"])}')
  rows = [[task, f'{summary["score"]:.1f}'] for task, summary in results['tasks'].items()]
  rows += [[f'mean of {group}', f'{score:.1f}'] for group, score in results['mean'].items()]
  console.table('XTREME', ['', 'score'], rows)


# --- one file ---------------------------------------------------------------------------------------------------------


def _labels(predictions: epath.Path, labels: epath.Path, language: str) -> dict[str, float]:
  del language
  gold, predicted = (_stripped_lines(path) for path in (labels, predictions))
  _check_counts(len(gold), len(predicted), labels, predictions)
  return {'accuracy': accuracy(gold, predicted)}


def _tags(predictions: epath.Path, labels: epath.Path, language: str) -> dict[str, float]:
  del language
  gold, predicted = (read_blocks(path) for path in (labels, predictions))
  for wanted, found in zip(gold, predicted, strict=False):
    if len(wanted.lines) != len(found.lines):
      raise UsageError(
        f'{len(found.lines)} tags are predicted for a sentence of {len(wanted.lines)} words',
        where=f'{found.where}, for {wanted.where}',
        fix='a tag for each word, and blank lines at the same places',
      )
  _check_counts(len(gold), len(predicted), labels, predictions)
  tags = lambda blocks: [[line.text.strip() for line in block.lines] for block in blocks]
  return chunk_scores(tags(gold), tags(predicted))


def _answers(metric: Callable[..., dict[str, float]]) -> Callable[[epath.Path, epath.Path, str], dict[str, float]]:
  def score(predictions: epath.Path, labels: epath.Path, language: str) -> dict[str, float]:
    predicted = read_json(predictions)
    if not isinstance(predicted, dict) or not all(isinstance(answer, str) for answer in predicted.values()):
      raise UsageError('answers are an object {id: answer}', where=str(predictions), fix='write it as JSON')
    questions = read_questions(labels, needs_answers=True, unique_ids=True)
    answered = [question for question in questions if question.id in predicted]
    if not answered:
      raise UsageError('none of the questions is answered', where=str(predictions), fix=f'ids of {labels}')
    gold = [[answer.text for answer in question.answers] for question in answered]
    scores = metric(gold, [predicted[question.id] for question in answered], language)
    # As in the official scripts, a question without an answer is worth nothing.
    return {name: value * len(answered) / len(questions) for name, value in scores.items()}

  return score


def _translations(predictions: epath.Path, labels: epath.Path, language: str) -> dict[str, float]:
  del language
  gold, predicted = (
    np.array([_line_number(line) for line in text_lines(path)], np.int64) for path in (labels, predictions)
  )
  _check_counts(len(gold), len(predicted), labels, predictions)
  return {'accuracy': retrieval.accuracy(predicted, gold)}


def _pairs(predictions: epath.Path, labels: epath.Path, language: str) -> dict[str, float]:
  del language
  # A model may find no pairs at all.
  predicted = {_pair(line) for line in text_lines(predictions)} if predictions.stat().length else set()
  return retrieval.score_pairs(predicted, {_pair(line) for line in text_lines(labels)})._asdict()


def _stripped_lines(path: epath.Path) -> list[str]:
  return [line.text.strip() for line in text_lines(path)]


def _line_number(line: Line) -> int:
  text = line.text.strip()
  if not (text.isascii() and text.isdigit()):
    raise UsageError(f'{text!r} is not the number of a line', where=line.where, fix='a whole number from 0')
  return int(text)


def _pair(line: Line) -> tuple[str, ...]:
  pair = tuple(part.strip() for part in line.text.split('\t'))
  if len(pair) != 2:
    raise UsageError('a line is two ids with a tab between them', where=line.where, fix='ID TAB ID')
  return pair


def _check_counts(gold: int, predicted: int, labels: epath.Path, predictions: epath.Path) -> None:
  if gold != predicted:
    raise UsageError(
      f'{predicted} predictions for {gold} labels',
      where=f'{predictions}, {labels}',
      fix='as many of one as of the other',
    )


_SCORERS: dict[str, Callable[[epath.Path, epath.Path, str], dict[str, float]]] = {
  'xnli': _labels,
  'pawsx': _labels,
  'panx': _tags,
  'udpos': _tags,
  'xquad': _answers(lambda gold, predicted, language: squad(gold, predicted)),
  'mlqa': _answers(mlqa),
  'tydiqa': _answers(lambda gold, predicted, language: squad(gold, predicted)),
  'tatoeba': _translations,
  'bucc2018': _pairs,
}

if __name__ == '__main__':
  sys.exit(main())
