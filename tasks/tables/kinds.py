"""What an example of each kind of task is: its columns, labels, predictions, scores and baseline.

Tables of one's own are read by their kind. XTREME's tasks have files of their own form (`tasks.xtreme.files`).

Tagging also reads CoNLL columns (any file that is not JSONL or Parquet): a word and its tag a line, with tabs or with
spaces between columns, a blank line after each sentence. With tabs, cells may hold spaces, and lines without a tab that
begin with # are comments. `-DOCSTART-` lines, and the ranges and empty words of CoNLL-U (`3-4`, `3.1`), are skipped.
Questions also come in SQuAD's JSON; in tables, answers are texts, or objects or lists with `text` and `answer_start`.
"""

import abc
import collections
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rembert.errors import UsageError
from tasks.metrics.labels import accuracy, chunk_scores, correlations, macro_f1
from tasks.metrics.question_answering import LANGUAGES, mlqa, squad
from tasks.tables.config import DatasetConfig
from tasks.tables.files import Example, Row, format_of, open_file, read_lines, read_rows
from tasks.tables.question_answering import (
  Answer,
  answers_with_probabilities,
  beginning,
  entries,
  is_blank,
  parse_questions,
)
from tasks.xtreme.config import XtremeConfig

IGNORED = -1  # the label where nothing is to be predicted

Targets = Sequence[Mapping[str, Any]]  # rows of a split as dicts of features, with the number of their `example`
Prediction = dict[str, Any]  # `prediction`, its `probability`, and for labels the `probabilities` of all


class Kind(abc.ABC):
  """A kind of task.

  Args:
    config: names of columns; without `label` and `answers`, labels are not read.
    labels: of the head; () before they are known, and of heads without names.
    xtreme: how answers are found in windows.

  Attributes:
    head: of the model.
    has_names: whether labels are names that are found in the training file.
  """

  head: ClassVar[str]
  has_names: ClassVar[bool] = False

  def __init__(self, config: DatasetConfig, labels: Sequence[str] = (), xtreme: XtremeConfig | None = None):
    self.config, self.labels, self.xtreme = config, tuple(labels), xtreme or XtremeConfig()
    self._index = {label: index for index, label in enumerate(labels)}

  # --- reading -----------------------------------------------------------------

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Examples of a file, one after the other; UsageError with the line of the first that breaks a rule."""
    for where, row in read_rows(path):
      yield Example(where, self.features(row, where), self.label_of(row, where, needs_labels), row)

  @abc.abstractmethod
  def features(self, row: Row, where: str) -> dict[str, Any]:
    """The texts of a row."""

  def label_of(self, row: Row, where: str, needs_label: bool) -> Any:
    """The label of a row; None if it has none and needs none."""
    column = self.config.label
    value = None if column is None else row.get(column)
    if column is not None and column not in row and needs_label:
      raise _no_column(column, 'label', row, where)
    if (
      value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str | list) and not value)
    ):
      if needs_label:
        raise UsageError('a row without a label', where=where, fix='delete the row, or give it a label')
      return None
    return self.label(value, where)

  def label(self, value: Any, where: str) -> Any:
    """A label as it is counted; UsageError if it is none."""
    if isinstance(value, float) and value.is_integer():
      value = int(value)
    name = str(value).strip()
    if not name or isinstance(value, list | dict):
      raise UsageError(f'not a label: {value!r}', where=where, fix='a name, or a whole number')
    return name

  def names(self, label: Any) -> Sequence[str]:
    """The names in a label, of kinds whose labels have or are some."""
    return (label,)

  def columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """Columns of the SeqIO source."""
    features = {name: [example.features[name] for example in examples] for name in examples[0].features}
    return features | self.label_columns(examples)

  dtype: ClassVar[type] = np.int32

  def label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """Those of `columns` that hold labels, IGNORED where there are none."""
    return {'labels': np.array([[self.number(example.label)] for example in examples], self.dtype)}

  def number(self, label: Any) -> Any:
    """The label of a row of ids."""
    return IGNORED if label is None else self._index[label]

  # --- baseline ----------------------------------------------------------------

  def counts(self, label: Any) -> Mapping[str, float]:
    """What is summed over the labels of training examples."""
    return collections.Counter(self.names(label))

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, Any]:
    """Predictions without reading, from the sums of `counts` over so many training examples."""
    return dict.fromkeys((int(target['example']) for target in targets), most_frequent(counts, self.labels))

  # --- predictions and scores --------------------------------------------------

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The prediction for each example, from the logits of its rows."""
    found = {}
    for target, logits in zip(targets, scores, strict=True):
      best, probabilities = int(np.argmax(logits)), _softmax(logits)
      names: Sequence[Any] = self.labels or range(len(logits))
      of_names = {str(name): float(probability) for name, probability in zip(names, probabilities, strict=True)}
      prediction = {'prediction': names[best], 'probability': float(probabilities[best]), 'probabilities': of_names}
      found[int(target['example'])] = prediction
    return found

  def gold(self, targets: Targets) -> dict[int, Any]:
    """The gold label of each example; UsageError if one has none."""
    found = {int(target['example']): target['labels'][0] for target in targets}
    for target in targets:
      if target['labels'][0] == IGNORED:
        raise no_score(target)
    return {example: self.labels[label] if self.labels else int(label) for example, label in found.items()}

  @abc.abstractmethod
  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """Scores, 0 to 100; checkpoints are chosen by the first."""


def no_score(target: Mapping[str, Any]) -> UsageError:
  """For a row without a label in a file that is to be scored."""
  return UsageError(
    'there are no scores without labels', where=target['where'].decode(), fix='a label in every row of the file'
  )


def most_frequent(counts: Mapping[str, float], labels: Sequence[str]) -> str:
  """The most frequent of the labels that were counted; of several, the first in the order of `labels`."""
  return max(labels, key=lambda label: counts.get(label, 0))


def _softmax(logits: np.ndarray) -> np.ndarray:
  shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
  return shifted / shifted.sum(axis=-1, keepdims=True)


def _no_column(column: str, setting: str, row: Row, where: str) -> UsageError:
  return UsageError(
    f'no column {column!r}',
    where=where,
    fix=[
      f'the columns are {", ".join(map(str, row))}',
      f'name one: --gin.dataset.{setting}=…; in rembert.jobs.predict --{setting}_column=…',
    ],
  )


def text_of(row: Row, column: str, setting: str, where: str) -> str:
  """The text in a column, '' for an empty cell; UsageError if there is no such column, or no text in it."""
  if column not in row:
    raise _no_column(column, setting, row, where)
  return checked_text('' if row[column] is None else row[column], column, where)


def checked_text(value: Any, column: str, where: str) -> str:
  """A text or a number as text; UsageError for anything else."""
  if isinstance(value, list | dict):
    raise UsageError(f'{column!r} has no text: {str(value)[:60]}', where=where, fix='a text')
  try:
    str(value).encode()
  except UnicodeEncodeError:
    raise UsageError(
      f'{column!r} has half a character, a lone surrogate', where=where, fix='write the file again'
    ) from None
  return str(value)


class Classification(Kind):
  """A text, or two, and a label."""

  head = 'classification'
  has_names = True

  def features(self, row: Row, where: str) -> dict[str, Any]:
    """`first`, and of pairs `second`."""
    second = self.config.second_text
    texts = {'first': text_of(row, self.config.text, 'text', where)}
    return texts if second is None else texts | {'second': text_of(row, second, 'second_text', where)}

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`accuracy`, and `macro_f1`: the mean over the labels that occur."""
    return {'accuracy': accuracy(gold, predicted), 'macro_f1': macro_f1(gold, predicted)}


class Regression(Classification):
  """A text, or two, and a number."""

  head = 'regression'
  has_names = False
  dtype = np.float32

  def label(self, value: Any, where: str) -> float:
    """A number."""
    try:
      number = float(value)
    except (TypeError, ValueError):
      number = math.nan
    if not math.isfinite(number):
      raise UsageError(f'not a number: {value!r}', where=where, fix='a finite number, with a point: 3.5')
    return number

  def number(self, label: Any) -> float:
    """NaN for none."""
    return math.nan if label is None else label

  def counts(self, label: Any) -> Mapping[str, float]:
    """Their sum."""
    return {'sum': label}

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, float]:
    """The mean."""
    return dict.fromkeys((int(target['example']) for target in targets), counts['sum'] / examples)

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The numbers."""
    rows = zip(targets, scores, strict=True)
    return {int(target['example']): {'prediction': float(logits[0])} for target, logits in rows}

  def gold(self, targets: Targets) -> dict[int, float]:
    """The number of each example; UsageError if one has none."""
    for target in targets:
      if np.isnan(target['labels'][0]):
        raise no_score(target)
    return {int(target['example']): float(target['labels'][0]) for target in targets}

  def score(self, gold: Sequence[float], predicted: Sequence[float], language: str) -> dict[str, float]:
    """`pearson` and `spearman`, × 100; 0 for a constant, which has none."""
    return correlations(gold, predicted)


class MultipleChoice(Kind):
  """A text, what may continue or answer it, and the number of the right one, from 0, or its column or text."""

  head = 'multiple_choice'
  choices = 0  # of the examples that were read so far

  def features(self, row: Row, where: str) -> dict[str, Any]:
    """`first`, and `choices`, all behind the second text if there is one."""
    names, second = self.config.choices, self.config.second_text
    for name in names:
      if name not in row:
        raise _no_column(name, 'choices', row, where)
    choices = _choices(row, names)
    if not isinstance(choices, list) or len(choices) < 2:
      raise UsageError(
        f'not choices: {str(choices)[:60]}', where=where, fix="a column of lists, or dataset.choices = ('a', 'b', …)"
      )
    self.choices = self.choices or len(choices)
    if len(choices) != self.choices:
      raise UsageError(f'{len(choices)} choices, and {self.choices} before', where=where, fix='as many in every row')
    before = '' if second is None else text_of(row, second, 'second_text', where) + ' '
    choices = [before + checked_text(choice, 'choices', where) for choice in choices]
    return {'first': text_of(row, self.config.text, 'text', where), 'choices': choices}

  def label_of(self, row: Row, where: str, needs_label: bool) -> int | None:
    """The number of the right choice."""
    label, names = super().label_of(row, where, needs_label), self.config.choices
    if label is None:
      return None
    texts = [str(choice).strip() for choice in _choices(row, names)]
    options = [*map(str, range(self.choices))], names if len(names) > 1 else (), texts
    for option in options:
      if label in option:
        return list(option).index(label)
    raise UsageError(
      f'not one of the {self.choices} choices: {label!r}', where=where, fix=f'0 to {self.choices - 1}, or its text'
    )

  def names(self, label: Any) -> Sequence[str]:
    """Its number."""
    return (str(label),)

  def number(self, label: Any) -> int:
    """The number itself."""
    return IGNORED if label is None else label

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, int]:
    """The number that is most frequent."""
    return dict.fromkeys((int(target['example']) for target in targets), int(most_frequent(counts, sorted(counts))))

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`accuracy`."""
    return {'accuracy': accuracy(gold, predicted)}


def _choices(row: Row, names: Sequence[str]) -> Any:
  return row[names[0]] if len(names) == 1 else [row[name] for name in names]


class Tagging(Kind):
  """Words with a tag each."""

  head = 'tagging'
  has_names = True

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Sentences of a file of CoNLL columns, or rows with a list of words and a list of tags."""
    if format_of(path) in ('.jsonl', '.ndjson', '.parquet'):
      yield from super().read(path, needs_labels=needs_labels)
      return
    for where, lines in _conll_sentences(path):
      words = [cells[_column(self.config.text, cells, 0, where)] for cells, where in lines]
      # A single column of words alone has no tags.
      has_tags = self.config.label is not None and (needs_labels or len(lines[0][0]) > 1)
      if needs_labels and len(lines[0][0]) == 1:
        raise UsageError('a word without a tag', where=where, fix='a word and its tag a line, with a tab between them')
      tags = (
        [cells[_column(self.config.label, cells, -1, where)].strip() for cells, where in lines] if has_tags else None
      )
      yield Example(where, {'words': words}, tags, {'words': words})

  def features(self, row: Row, where: str) -> dict[str, Any]:
    """`words`."""
    column = self.config.text
    if column not in row:
      raise _no_column(column, 'text', row, where)
    words = row[column]
    if not isinstance(words, list):
      raise UsageError(f'{column!r} has no list of words', where=where, fix='["a", "list", "of", "words"]')
    return {'words': [checked_text(word, column, where) for word in words]}

  def label_of(self, row: Row, where: str, needs_label: bool) -> Any:
    """A tag for each word."""
    tags = super().label_of(row, where, needs_label and bool(row.get(self.config.text)))
    words = row[self.config.text]
    if tags is not None and len(tags) != len(words):
      raise UsageError(f'{len(tags)} tags for {len(words)} words', where=where, fix='a tag for each word')
    return tags

  def label(self, value: Any, where: str) -> list[str]:
    """Names of tags."""
    if not isinstance(value, list):
      raise UsageError(f'not a list of tags: {value!r}', where=where, fix='["O", "B-DATE", …]')
    return [super(Tagging, self).label(tag, where) for tag in value]

  def names(self, label: Any) -> Sequence[str]:
    """The tags."""
    return label

  def label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """`tags`, of which each example has as many as there are words."""
    tags = lambda example: example.label and [self._index[tag] for tag in example.label]
    return {'tags': [tags(each) or [IGNORED] * len(each.features['words']) for each in examples]}

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, Any]:
    """The most frequent tag for every word."""
    tag = self.labels.index(most_frequent(counts, self.labels))
    return self._sentences(targets, [[tag] * len(target['first_tokens']) for target in targets])

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """A tag for each word, by the logits at its first token, with its probability."""
    probabilities = [_softmax(logits[target['first_tokens']]) for target, logits in zip(targets, scores, strict=True)]
    tags = self._sentences(targets, [np.argmax(each, axis=-1) for each in probabilities])
    found = {example: {'prediction': list(of_example), 'probability': []} for example, of_example in tags.items()}
    for target, of_words in zip(targets, probabilities, strict=True):
      found[int(target['example'])]['probability'] += of_words.max(axis=-1).tolist()
    return found

  def gold(self, targets: Targets) -> dict[int, Any]:
    """The tags of each sentence that has words; UsageError if one has none."""
    tags = [target['labels'][target['first_tokens']] for target in targets]
    for target, found in zip(targets, tags, strict=True):
      if IGNORED in found:
        raise no_score(target)
    return self._sentences(targets, tags)

  def _sentences(self, targets: Targets, tags_of_rows: Iterable[Sequence[int]]) -> dict[int, tuple[str, ...]]:
    """Names of the tags of rows, by example: a long sentence has several rows, one after the other."""
    found = collections.defaultdict(tuple)
    for target, tags in zip(targets, tags_of_rows, strict=True):
      found[int(target['example'])] += tuple(self.labels[tag] for tag in tags)
    return dict(found)

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`f1`, `precision` and `recall` over spans, as seqeval defines them."""
    return chunk_scores(gold, predicted)


def _column(name: str | None, cells: Sequence[str], default: int, where: str) -> int:
  """Index of a column that is named by its number, from 1; otherwise the default."""
  number = int(name) if name and name.isdecimal() else None
  if number is not None and not 0 < number <= len(cells):
    raise UsageError(f'no column {number}', where=where, fix=f'the line has {len(cells)}')
  return default if number is None else number - 1


def _conll_sentences(path: str) -> Iterator[tuple[str, list[tuple[list[str], str]]]]:
  """Sentences of a file of columns: where each begins, and the cells of its lines with their places."""
  sentence: list[tuple[list[str], str]] = []
  texts = (line for _, line in read_lines(path) if line.strip() and not line.startswith('#'))
  has_tabs, width = '\t' in next(texts, ''), 0
  for where, line in read_lines(path):
    line = line.rstrip('\r\n')
    if not line.strip(' \t'):
      if sentence:
        yield sentence[0][1], sentence
      sentence = []
      continue
    cells = line.split('\t') if has_tabs else line.split()
    is_comment = has_tabs and len(cells) == 1 and line.startswith('#')
    is_no_word = cells[0] == '-DOCSTART-' or (len(cells) == 10 and re.fullmatch(r'\d+[-.]\d+', cells[0]))
    if is_comment or is_no_word:
      continue
    width = width or len(cells)
    if len(cells) != width or not cells[-1].strip():
      raise UsageError(
        f'a line of {len(cells)} columns, and {width} before' if len(cells) != width else 'an empty cell',
        where=where,
        fix='write each line as a word, a tab, its tag',
      )
    sentence.append((cells, where))
  if sentence:
    yield sentence[0][1], sentence


class QuestionAnswering(Kind):
  """A question, a context, and answers that stand in it."""

  head = 'qa'

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Questions of a table, or of SQuAD's JSON, which is read as a whole."""
    if format_of(path) != '.json':
      yield from super().read(path, needs_labels=needs_labels)
      return
    with open_file(path) as file:
      content = file.read()
    published, questions = parse_questions(content, os.fspath(path), needs_answers=False)
    has_answers = needs_labels or not all(is_blank(answers) for _, answers in entries(published, os.fspath(path)))
    if has_answers and self.config.label is not None:
      _, questions = parse_questions(content, os.fspath(path), needs_answers=True)
    for question in questions:
      texts = {name: question.features[name] for name in ('id', 'question', 'context')}
      row = {'id': texts.pop('id'), 'question': texts['question']}
      yield question._replace(features=texts, row=row)

  def features(self, row: Row, where: str) -> dict[str, Any]:
    """`question` and `context`."""
    return {name: text_of(row, getattr(self.config, name), name, where) for name in ('question', 'context')}

  def label_of(self, row: Row, where: str, needs_label: bool) -> Any:
    """Answers, each with its first character."""
    column = self.config.answers
    if self.config.label is None:
      return None
    if column not in row and needs_label:
      raise _no_column(column, 'answers', row, where)
    value = row.get(column)
    if isinstance(value, dict) and isinstance(value.get('text'), list):  # as the library `datasets` has them
      starts = value.get('answer_start') or [None] * len(value['text'])
      value = [{'text': text, 'answer_start': start} for text, start in zip(value['text'], starts, strict=False)]
    found = value if isinstance(value, list) else [value]
    answers = [_answer(each, row[self.config.context] or '', where) for each in found if each not in (None, '')]
    if not answers and needs_label:
      raise UsageError('a question without an answer', where=where, fix='delete the row, or give it an answer')
    return answers or None

  def label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """`answers` and `starts`, of which a question has as many as answers."""
    return {
      'answers': [[text for text, _ in example.label or ()] for example in examples],
      'starts': [[start for _, start in example.label or ()] for example in examples],
    }

  def counts(self, label: Any) -> Mapping[str, float]:
    """Words and characters of the first answer."""
    text, _ = label[0]
    return {'words': len(text.split()), 'characters': len(text.strip())}

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, str]:
    """The first words of each context, as many as answers have on average; characters in scripts without spaces."""
    words, characters = (max(1, round(counts[name] / examples)) for name in ('words', 'characters'))
    return {
      int(target['example']): beginning(target['context'].decode().strip(), words, characters) for target in targets
    }

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The most likely part of each context."""
    limits = {'n_best': self.xtreme.n_best, 'max_answer_length': self.xtreme.max_answer_length}
    found = answers_with_probabilities(targets, scores, **limits)
    return {example: {'prediction': text, 'probability': chance} for example, (text, chance) in found.items()}

  def gold(self, targets: Targets) -> dict[int, Any]:
    """The answers to each question; UsageError if one has none."""
    for target in targets:
      if not len(target['answers']):
        raise no_score(target)
    return {int(target['example']): [answer.decode() for answer in target['answers']] for target in targets}

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`f1` and `exact_match`: MLQA's rules for its languages but English, SQuAD's for all others."""
    if language in LANGUAGES and language != 'en':
      return mlqa(gold, predicted, language)
    return squad(gold, predicted)


def _answer(value: Any, context: str, where: str) -> Answer:
  """An answer and its first character; without a place, its first occurrence."""
  text, start = (value.get('text'), value.get('answer_start')) if isinstance(value, dict) else (value, None)
  text = checked_text(text, 'answers', where)
  if start is None:
    start = context.find(text)
  if not text.strip() or isinstance(start, bool) or not isinstance(start, int) or start < 0:
    raise UsageError(f'the answer {text!r} is not in the context', where=where, fix='a part of the context, as it is')
  if context[start : start + len(text)] != text:
    raise UsageError(
      f'the answer {text!r} is not at {start:,} of the context',
      where=where,
      fix='answer_start counts characters (code points) of the context, from 0',
    )
  return Answer(text, start)


KINDS: dict[str, type[Kind]] = {
  'classification': Classification,
  'pair_classification': Classification,
  'regression': Regression,
  'tagging': Tagging,
  'question_answering': QuestionAnswering,
  'multiple_choice': MultipleChoice,
}
