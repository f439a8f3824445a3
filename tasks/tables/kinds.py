"""What an example of each kind of task is: its columns, labels, predictions, scores and baseline.

Tables of one's own are read by their kind. XTREME's tasks have files of their own form (`tasks.xtreme.files`). Tagging
also reads CoNLL columns (any file that is not JSONL or Parquet). Questions also come in SQuAD's JSON; in tables,
answers are texts, or objects or lists with `text` and `answer_start`.
"""

import abc
import collections
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rembert.errors import UsageError
from tasks.metrics.labels import accuracy, chunk_scores, correlations, macro_f1
from tasks.metrics.question_answering import LANGUAGES, mlqa, squad
from tasks.tables import DatasetConfig
from tasks.tables.files import (
  Example,
  Row,
  answer_in,
  checked_text,
  format_of,
  read_columns,
  read_questions,
  read_rows,
)
from tasks.xtreme import XtremeConfig

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
    dtype: of labels.
  """

  head: ClassVar[str]
  has_names: ClassVar[bool] = False
  dtype: ClassVar[type] = np.int32

  def __init__(self, config: DatasetConfig, labels: Sequence[str] = (), xtreme: XtremeConfig | None = None):
    self.config, self.labels, self.xtreme = config, tuple(labels), xtreme or XtremeConfig()
    self._index = {label: index for index, label in enumerate(labels)}

  # --- reading -----------------------------------------------------------------

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Examples of a file, one after the other; UsageError with the line of the first that breaks a rule."""
    for where, row in read_rows(path):
      yield Example(where, self._features(row, where), self._label_of(row, where, needs_labels), row)

  @abc.abstractmethod
  def _features(self, row: Row, where: str) -> dict[str, Any]:
    """The texts of a row."""

  def _label_of(self, row: Row, where: str, needs_label: bool) -> Any:
    """The label of a row; None if it has none and needs none."""
    column = self.config.label
    value = None if column is None else row.get(column)
    if column is not None and column not in row and needs_label:
      raise _no_column(column, 'label', row, where)
    is_nan = isinstance(value, float) and math.isnan(value)
    if value is None or is_nan or (isinstance(value, str | list) and not value):
      if needs_label:
        raise UsageError('a row without a label', where=where, fix='delete the row, or give it a label')
      return None
    return self._label(value, where)

  def _label(self, value: Any, where: str) -> Any:
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
    return features | self._label_columns(examples)

  def _label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """Those of `columns` that hold labels, IGNORED where there are none."""
    return {'labels': np.array([[self._number(example.label)] for example in examples], self.dtype)}

  def _number(self, label: Any) -> Any:
    """The label of a row of ids."""
    return IGNORED if label is None else self._index[label]

  # --- baseline ----------------------------------------------------------------

  def counts(self, label: Any) -> Mapping[str, float]:
    """What is summed over the labels of training examples."""
    return collections.Counter(self.names(label))

  def baseline(self, counts: Mapping[str, float], examples: int, targets: Targets) -> dict[int, Any]:
    """Predictions without reading, from the sums of `counts` over so many training examples."""
    return _by_example(targets, [self._guess(counts, examples, target) for target in targets])

  def _guess(self, counts: Mapping[str, float], examples: int, target: Mapping[str, Any]) -> Any:
    """The prediction of `baseline` for a row: the most frequent label."""
    return _most_frequent(counts, self.labels)

  # --- predictions and scores --------------------------------------------------

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The prediction for each example, from the logits of its rows."""

    def prediction(logits: np.ndarray) -> Prediction:
      best, probabilities = int(np.argmax(logits)), _softmax(logits)
      names: Sequence[Any] = self.labels or range(len(logits))
      of_names = {str(name): float(probability) for name, probability in zip(names, probabilities, strict=True)}
      return {'prediction': names[best], 'probability': float(probabilities[best]), 'probabilities': of_names}

    return _by_example(targets, map(prediction, scores))

  def gold(self, targets: Targets) -> dict[int, Any]:
    """The gold label of each example; UsageError if one has none."""
    labels = [self._gold_of(target) for target in targets]
    if None in labels:
      where = targets[labels.index(None)]['where'].decode()
      raise UsageError('there are no scores without labels', where=where, fix='a label in every row of the file')
    return _by_example(targets, labels)

  def _gold_of(self, target: Mapping[str, Any]) -> Any:
    """The gold label of a row; None if it has none."""
    label = int(target['labels'][0])
    return None if label == IGNORED else self.labels[label] if self.labels else label

  @abc.abstractmethod
  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """Scores, 0 to 100; checkpoints are chosen by the first."""


def _by_example(targets: Targets, values: Iterable[Any]) -> dict[int, Any]:
  """Values of rows by the number of their example; tuples of several rows of a sentence are joined."""
  found: dict[int, Any] = {}
  for target, value in zip(targets, values, strict=True):
    example = int(target['example'])
    found[example] = found[example] + value if isinstance(value, tuple) and example in found else value
  return found


def _most_frequent(counts: Mapping[str, float], labels: Sequence[str]) -> str:
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


def _text_of(row: Row, column: str, setting: str, where: str) -> str:
  """The text in a column, '' for an empty cell; UsageError if there is no such column, or no text in it."""
  if column not in row:
    raise _no_column(column, setting, row, where)
  return checked_text('' if row[column] is None else row[column], column, where)


class Classification(Kind):
  """A text, or two, and a label."""

  head = 'classification'
  has_names = True

  def _features(self, row: Row, where: str) -> dict[str, Any]:
    second = self.config.second_text
    texts = {'first': _text_of(row, self.config.text, 'text', where)}
    return texts if second is None else texts | {'second': _text_of(row, second, 'second_text', where)}

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`accuracy`, and `macro_f1`: the mean over the labels that occur."""
    return {'accuracy': accuracy(gold, predicted), 'macro_f1': macro_f1(gold, predicted)}


class Regression(Classification):
  """A text, or two, and a number; NaN in a row of ids for none."""

  head = 'regression'
  has_names = False
  dtype = np.float32

  def _label(self, value: Any, where: str) -> float:
    try:
      number = float(value)
    except (TypeError, ValueError):
      number = math.nan
    if not math.isfinite(number):
      raise UsageError(f'not a number: {value!r}', where=where, fix='a finite number, with a point: 3.5')
    return number

  def _number(self, label: Any) -> float:
    return math.nan if label is None else label

  def counts(self, label: Any) -> Mapping[str, float]:
    """Their sum."""
    return {'sum': label}

  def _guess(self, counts: Mapping[str, float], examples: int, target: Mapping[str, Any]) -> float:
    return counts['sum'] / examples

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The numbers."""
    return _by_example(targets, [{'prediction': float(logits[0])} for logits in scores])

  def _gold_of(self, target: Mapping[str, Any]) -> float | None:
    number = float(target['labels'][0])
    return None if math.isnan(number) else number

  def score(self, gold: Sequence[float], predicted: Sequence[float], language: str) -> dict[str, float]:
    """`pearson` and `spearman`, × 100; 0 for a constant, which has none."""
    return correlations(gold, predicted)


class MultipleChoice(Kind):
  """A text, what may continue or answer it, and the number of the right one, from 0, or its column or text."""

  head = 'multiple_choice'
  choices = 0  # of the examples that were read so far

  def _features(self, row: Row, where: str) -> dict[str, Any]:
    """`first`, and `choices`, all behind the second text if there is one."""
    second = self.config.second_text
    choices = self._choices(row, where)
    if not isinstance(choices, list) or len(choices) < 2:
      fix = "a column of lists, or dataset.choices = ('a', 'b', …)"
      raise UsageError(f'not choices: {str(choices)[:60]}', where=where, fix=fix)
    self.choices = self.choices or len(choices)
    if len(choices) != self.choices:
      raise UsageError(f'{len(choices)} choices, and {self.choices} before', where=where, fix='as many in every row')
    before = '' if second is None else _text_of(row, second, 'second_text', where) + ' '
    choices = [before + checked_text(choice, 'choices', where) for choice in choices]
    return {'first': _text_of(row, self.config.text, 'text', where), 'choices': choices}

  def _label_of(self, row: Row, where: str, needs_label: bool) -> int | None:
    label, names = super()._label_of(row, where, needs_label), self.config.choices
    if label is None:
      return None
    texts = [str(choice).strip() for choice in self._choices(row, where)]
    for options in ([*map(str, range(self.choices))], names if len(names) > 1 else (), texts):
      if label in options:
        return list(options).index(label)
    fix = f'0 to {self.choices - 1}, or its text'
    raise UsageError(f'not one of the {self.choices} choices: {label!r}', where=where, fix=fix)

  def _choices(self, row: Row, where: str) -> Any:
    """What the row has for choices, of several columns a list."""
    names = self.config.choices
    if missing := [name for name in names if name not in row]:
      raise _no_column(missing[0], 'choices', row, where)
    return row[names[0]] if len(names) == 1 else [row[name] for name in names]

  def names(self, label: Any) -> Sequence[str]:
    """Its number."""
    return (str(label),)

  def _number(self, label: Any) -> int:
    return IGNORED if label is None else label

  def _guess(self, counts: Mapping[str, float], examples: int, target: Mapping[str, Any]) -> int:
    return int(_most_frequent(counts, sorted(counts)))

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`accuracy`."""
    return {'accuracy': accuracy(gold, predicted)}


class Tagging(Kind):
  """Words with a tag each. A long sentence has several rows, one after the other."""

  head = 'tagging'
  has_names = True

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Sentences of a file of CoNLL columns, or rows with a list of words and a list of tags."""
    if format_of(path) in ('.jsonl', '.ndjson', '.parquet'):
      yield from super().read(path, needs_labels=needs_labels)
      return
    for lines in read_columns(path):
      (cells, where), label = lines[0], self.config.label
      if needs_labels and len(cells) == 1:
        raise UsageError('a word without a tag', where=where, fix='a word and its tag a line, with a tab between them')
      words = [_cell(self.config.text, cells, 0, where) for cells, where in lines]
      # A single column of words alone has no tags.
      has_tags = label is not None and (needs_labels or len(cells) > 1)
      tags = [_cell(label, cells, -1, where).strip() for cells, where in lines] if has_tags else None
      yield Example(where, {'words': words}, tags, {'words': words})

  def _features(self, row: Row, where: str) -> dict[str, Any]:
    column = self.config.text
    if column not in row:
      raise _no_column(column, 'text', row, where)
    words = row[column]
    if not isinstance(words, list):
      raise UsageError(f'{column!r} has no list of words', where=where, fix='["a", "list", "of", "words"]')
    return {'words': [checked_text(word, column, where) for word in words]}

  def _label_of(self, row: Row, where: str, needs_label: bool) -> Any:
    words = row[self.config.text]
    tags = super()._label_of(row, where, needs_label and bool(words))
    if tags is not None and len(tags) != len(words):
      raise UsageError(f'{len(tags)} tags for {len(words)} words', where=where, fix='a tag for each word')
    return tags

  def _label(self, value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
      raise UsageError(f'not a list of tags: {value!r}', where=where, fix='["O", "B-DATE", …]')
    return [super(Tagging, self)._label(tag, where) for tag in value]

  def names(self, label: Any) -> Sequence[str]:
    """The tags."""
    return label

  def _label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """`tags`, of which each example has as many as there are words."""
    tags = lambda example: example.label and [self._index[tag] for tag in example.label]
    return {'tags': [tags(each) or [IGNORED] * len(each.features['words']) for each in examples]}

  def _guess(self, counts: Mapping[str, float], examples: int, target: Mapping[str, Any]) -> tuple[str, ...]:
    return (_most_frequent(counts, self.labels),) * len(target['first_tokens'])

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """A tag for each word, by the logits at its first token, with its probability."""
    probabilities = [_softmax(logits[target['first_tokens']]) for target, logits in zip(targets, scores, strict=True)]
    tags = _by_example(targets, [self._tags(np.argmax(each, axis=-1)) for each in probabilities])
    chances = _by_example(targets, [tuple(each.max(axis=-1).tolist()) for each in probabilities])
    return {example: {'prediction': list(tags[example]), 'probability': list(chances[example])} for example in tags}

  def _gold_of(self, target: Mapping[str, Any]) -> tuple[str, ...] | None:
    tags = target['labels'][target['first_tokens']]
    return None if IGNORED in tags else self._tags(tags)

  def _tags(self, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(self.labels[number] for number in numbers)

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`f1`, `precision` and `recall` over spans, as seqeval defines them."""
    return chunk_scores(gold, predicted)


def _cell(name: str | None, cells: Sequence[str], default: int, where: str) -> str:
  """The cell of a column that is named by its number, from 1; otherwise that of the default index."""
  number = int(name) if name and name.isdecimal() else None
  if number is not None and not 0 < number <= len(cells):
    raise UsageError(f'no column {number}', where=where, fix=f'the line has {len(cells)}')
  return cells[default if number is None else number - 1]


class QuestionAnswering(Kind):
  """A question, a context, and answers that stand in it.

  An answer is chosen as BERT's `run_squad.py` does with SQuAD v1.1: in each window the `n_best` likeliest first and
  last positions are paired, and the pair with the greatest sum of logits over all windows is the answer. A question
  always has one: v1.1 knows no unanswerable ones, so [CLS] is no candidate. Two things are different: positions outside
  the context take no places among the `n_best`, and where no pair is possible all positions are tried, where BERT
  answers `empty`. The text is cut from the context by the places of characters; nothing is put together from tokens,
  whose normalised text may differ.
  """

  head = 'qa'

  def read(self, path: str, *, needs_labels: bool) -> Iterator[Example]:
    """Questions of a table, or of SQuAD's JSON, which is read as a whole."""
    if format_of(path) != '.json':
      yield from super().read(path, needs_labels=needs_labels)
      return
    for question in read_questions(path):
      if needs_labels and question.label is None:
        raise UsageError('a question without an answer', where=question.where, fix='a file with answers')
      texts = {name: question.features[name] for name in ('question', 'context')}
      row = {'id': question.features['id'], 'question': texts['question']}
      yield Example(question.where, texts, None if self.config.label is None else question.label, row)

  def _features(self, row: Row, where: str) -> dict[str, Any]:
    return {name: _text_of(row, getattr(self.config, name), name, where) for name in ('question', 'context')}

  def _label_of(self, row: Row, where: str, needs_label: bool) -> Any:
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
    answers = [answer_in(row[self.config.context] or '', each, where) for each in found if each not in (None, '')]
    if not answers and needs_label:
      raise UsageError('a question without an answer', where=where, fix='delete the row, or give it an answer')
    return answers or None

  def _label_columns(self, examples: Sequence[Example]) -> dict[str, Any]:
    """`answers` and `starts`, of which a question has as many as answers."""
    return {
      'answers': [[text for text, _ in example.label or ()] for example in examples],
      'starts': [[start for _, start in example.label or ()] for example in examples],
    }

  def counts(self, label: Any) -> Mapping[str, float]:
    """Words and characters of the first answer."""
    text, _ = label[0]
    return {'words': len(text.split()), 'characters': len(text.strip())}

  def _guess(self, counts: Mapping[str, float], examples: int, target: Mapping[str, Any]) -> str:
    """The first words of the context, as many as answers have on average; characters in scripts without spaces."""
    context = target['context'].decode().strip()
    words, characters = (max(1, round(counts[name] / examples)) for name in ('words', 'characters'))
    if 2 * len(_WITHOUT_SPACES.findall(context)) > sum(character.isalnum() for character in context):
      return context[:characters].strip()
    return ''.join(re.findall(r'\s*\S+', context)[:words])

  def predict(self, targets: Targets, scores: Sequence[np.ndarray]) -> dict[int, Prediction]:
    """The best answer to each question, without white space around it; '' only for white space.

    Its probability is among the spans that were looked at, in all windows. ValueError if rows and scores do not fit
    together, or if a logit is not a number.

    Args:
      targets: all windows of the questions, rows of `tasks.xtreme.preprocessors.question_rows`.
      scores: of each row float32 logits [S, 2], of the first position and of the last. Padding may follow.
    """
    windows = collections.defaultdict(list)
    for row, logits_Sx2 in zip(targets, scores, strict=True):
      if logits_Sx2.ndim != 2 or logits_Sx2.shape[1] != 2 or len(logits_Sx2) < len(row['input_ids']):
        raise ValueError(f'logits of {logits_Sx2.shape} for a row of {len(row["input_ids"])} ids')
      logits_Wx2 = logits_Sx2[row['offset'] : row['offset'] + len(row['begin'])]
      if np.isnan(logits_Wx2).any():
        raise ValueError(f'logits are not numbers: row of {row["where"].decode()}')
      windows[int(row['example'])].append((row, logits_Wx2))
    limits = self.xtreme.n_best, self.xtreme.max_answer_length
    return {example: _best_answer(of_example, *limits) for example, of_example in windows.items()}

  def _gold_of(self, target: Mapping[str, Any]) -> list[str] | None:
    return [answer.decode() for answer in target['answers']] or None

  def score(self, gold: Sequence[Any], predicted: Sequence[Any], language: str) -> dict[str, float]:
    """`f1` and `exact_match`: MLQA's rules for its languages but English, SQuAD's for all others."""
    if language in LANGUAGES and language != 'en':
      return mlqa(gold, predicted, language)
    return squad(gold, predicted)


# Scripts that put no space between words: Thai to Tibetan, Burmese, Khmer, kana and Han with their extensions.
_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)


def _best_answer(
  windows: Sequence[tuple[Mapping[str, Any], np.ndarray]], n_best: int, max_length: int
) -> dict[str, Any]:
  context = windows[0][0]['context'].decode()
  everything = max(len(logits) for _, logits in windows)
  for most in (n_best, everything):
    candidates = [np.zeros((5, 0))]
    for row, logits in windows:
      first, last, sums = _spans(logits, row['has_most_context'], n_best=most, max_length=max_length)
      # Where windows overlap, the same span is at other positions of each: tokens are counted in the context.
      candidates.append(
        np.stack([sums, row['first'] + first, row['first'] + last, row['begin'][first], row['end'][last]])
      )
    sums, first, last, begin, end = np.concatenate(candidates, axis=1)
    for best in np.lexsort((last, first, -sums)):  # of equal ones the first in the text, then the shortest
      if text := context[int(begin[best]) : int(end[best])].strip():
        return {'prediction': text, 'probability': float(np.exp(sums[best] - np.logaddexp.reduce(sums)))}
  return {'prediction': '', 'probability': 0.0}


def _spans(
  logits_Wx2: np.ndarray, may_begin: np.ndarray, *, n_best: int, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Spans of a window that could be an answer: first and last index, int, and sum of logits, float64.

  Args:
    logits_Wx2: of the first and of the last position.
    may_begin: [W] bool, where a span may begin.
    n_best: of the first, and of the last positions, so many are looked at; the earlier where logits are equal.
    max_length: of a span.
  """
  length = len(logits_Wx2)
  by_start, by_end = np.argsort(-logits_Wx2, axis=0, kind='stable').T
  first_Kx1 = by_start[may_begin[by_start]][:n_best, None]
  is_last = np.zeros(length + 1, bool)  # one more, for what is behind the window
  is_last[by_end[:n_best]] = True
  last_KxL = np.minimum(first_Kx1 + np.arange(min(max_length, length)), length)
  start, steps = np.nonzero(is_last[last_KxL])
  first, last = first_Kx1[start, 0], last_KxL[start, steps]
  return first, last, logits_Wx2[first, 0].astype(np.float64) + logits_Wx2[last, 1]


KINDS: dict[str, type[Kind]] = {
  'classification': Classification,
  'pair_classification': Classification,
  'regression': Regression,
  'tagging': Tagging,
  'question_answering': QuestionAnswering,
  'multiple_choice': MultipleChoice,
}
