"""Questions and contexts to windows of XTREME on one core: this project beside transformers' usual way.

A run makes the windows of some hundred made-up questions: rows of 384, a new window every 128 pieces, labels where the
answer stands. This project's side is what fine-tuning calls (`preprocessors.question_rows` of `tasks.xtreme`), the
other what question-answering scripts of transformers do: a fast tokenizer called on all questions and contexts with
`return_overflowing_tokens` and `return_offsets_mapping`, and a loop over the rows that looks for the first and the last
piece of the answer. Its tokenizer is the vocabulary as `rembert.convert` exports it, its threads are held to one, and
it does not pad, as this project does not.

Contexts are parts of the sample corpus's articles, of 600 to 1,800 characters (100 to 300 words, where there are
words). BERT's stride, and this project's, counts from the beginning of one window to that of the next; the one of
tokenizers is the overlap, so that it depends on the question. Every question therefore has as many pieces: one overlap
then makes the same windows. That everybody made them is to be seen by `windows`, `pieces` (of all rows together),
`answered` (windows that hold the answer) and `mean start` (its position there). This project also gives the place of
each piece in the context, and which window shows most around it, which an evaluation needs.
"""

import dataclasses
import functools
import pathlib
import random
from collections.abc import Callable

from benchmarks import sample_corpus
from benchmarks.tokenizing import ONE_THREAD
from benchmarks.turns import Contestant, Run
from tasks.vocabulary import load_vocabulary
from tasks.xtreme.questions import Answer, Question

Encode = Callable[[str], list[int]]  # a text to its ids

OURS, TRANSFORMERS = 'this project', 'transformers, as in scripts'

LENGTH, STRIDE = 384, 128
QUESTION_PIECES = 16
_ROWS_AT_ONCE = 1024
_CONTEXT_CHARACTERS = (600, 1800)
_ANSWER_CHARACTERS = (3, 40)


@dataclasses.dataclass(frozen=True)
class Setting:
  """How many contexts there are, and how many questions on each; and the vocabulary, which is that of the smoke run."""

  contexts: int
  questions: int
  pieces: int = 5000

  @property
  def description(self) -> str:
    """One line."""
    asked = f'{self.contexts} contexts × {self.questions} question(s)'
    return f'{asked}, rows of {LENGTH}, stride {STRIDE}, V {self.pieces:,}'


# SQuAD asks five questions on a paragraph, TyDiQA one.
SETTINGS = {'squad': Setting(contexts=100, questions=5), 'tydiqa': Setting(contexts=400, questions=1)}


def made_up(setting: Setting, encode: Encode, seed: int = 0) -> list[Question]:
  """Questions in the order of their contexts; what is asked are the beginnings of other words of the same article."""
  draw = random.Random(seed)
  least, most = _CONTEXT_CHARACTERS
  articles = [text for text in sample_corpus.texts() if len(text) > most]
  questions = []
  for _ in range(setting.contexts):
    article = draw.choice(articles)
    length = draw.randint(least, most)
    begin = draw.randint(0, len(article) - length)
    context = article[begin : begin + length]
    for _ in range(setting.questions):
      where = f'made up, {len(questions)}'
      question = Question(where, _asked(article, encode, draw), context, (_answer(context, draw),), where)
      questions.append(question)
  return questions


def _asked(article: str, encode: Encode, draw: random.Random) -> str:
  """A part of an article that has `QUESTION_PIECES` pieces."""
  while True:
    begin = draw.randrange(len(article))
    for end in range(begin + QUESTION_PIECES // 2, begin + 8 * QUESTION_PIECES):
      if len(encode(article[begin:end])) == QUESTION_PIECES:
        return article[begin:end]


def _answer(context: str, draw: random.Random) -> Answer:
  while True:
    length = draw.randint(*_ANSWER_CHARACTERS)
    start = draw.randrange(len(context) - length)
    text = context[start : start + length]
    if text == text.strip():
      return Answer(text, start)


# --- contestants: each returns a function that makes all windows ------------------------------------------------------


def prepare_ours(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """What fine-tuning calls."""
  from tasks.tensorflow_import import tensorflow as tf

  # isort: split
  from tasks.rows import batches
  from tasks.seqio_vocabulary import RembertVocabulary
  from tasks.xtreme import preprocessors, registry
  from tasks.xtreme.benchmark import TASKS

  squad = TASKS['squad']
  features = registry.output_features(squad, RembertVocabulary(vocabulary))
  questions = made_up(setting, load_vocabulary(vocabulary).encode)

  def run() -> dict[str, float]:
    examples = tf.data.Dataset.from_tensor_slices(registry.example_columns(squad, questions))
    rows = preprocessors.question_rows(
      examples, {'input_ids': LENGTH}, features, doc_stride=STRIDE, max_query_length=QUESTION_PIECES
    )
    tokens, starts = 0, []
    for batch in batches(rows, _ROWS_AT_ONCE):
      tokens += int(batch['input_ids'].flat_values.shape[0])
      starts += batch['labels'][:, 0].numpy().tolist()
    return _facts(tokens, starts)

  return run


def prepare_transformers(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """The tokenizer cuts the windows and says where their pieces stand; a loop looks for the answer among them."""
  import transformers

  from rembert.convert.tokenizer_files import write_tokenizer

  folder = vocabulary.parent / 'exported'
  folder.mkdir(exist_ok=True)
  write_tokenizer(vocabulary, folder, longest=LENGTH)
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  questions = made_up(setting, load_vocabulary(vocabulary).encode)
  overlap = LENGTH - 3 - QUESTION_PIECES - STRIDE

  def run() -> dict[str, float]:
    encoded = tokenizer(
      [question.question for question in questions],
      [question.context for question in questions],
      truncation='only_second',
      max_length=LENGTH,
      stride=overlap,
      return_overflowing_tokens=True,
      return_offsets_mapping=True,
    )
    starts, ends = [], []
    for row, example in enumerate(encoded['overflow_to_sample_mapping']):
      answer = questions[example].answers[0]
      first, last = _answer_positions(
        encoded['offset_mapping'][row], encoded.sequence_ids(row), answer.start, answer.start + len(answer.text)
      )
      starts.append(first)
      ends.append(last)
    return _facts(sum(map(len, encoded['input_ids'])), starts)

  return run


def _answer_positions(
  offsets: list[tuple[int, int]], sequence_ids: list[int | None], begin: int, end: int
) -> tuple[int, int]:
  """Positions of the pieces that hold an answer's first and last character; (0, 0) where not all of it is shown."""
  first = sequence_ids.index(1)
  last = len(sequence_ids) - 1
  while sequence_ids[last] != 1:
    last -= 1
  if offsets[first][0] > begin or offsets[last][1] < end:
    return 0, 0
  while first < len(offsets) and offsets[first][0] <= begin:
    first += 1
  while offsets[last][1] >= end:
    last -= 1
  return first - 1, last + 1


def _facts(pieces: int, starts: list[int]) -> dict[str, float]:
  answered = [start for start in starts if start]
  return {
    'windows': len(starts),
    'pieces': pieces,
    'answered': len(answered),
    'mean start': sum(answered) / max(len(answered), 1),
  }


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  setting, vocabulary = SETTINGS[setting_name], scratch / 'sentencepiece.model'
  sample_corpus.make_vocabulary(setting.pieces, vocabulary)
  questions = made_up(setting, load_vocabulary(vocabulary).encode)
  work = {
    'questions': len(questions),
    'MB': sum(len(question.context.encode()) for question in questions) / 1e6,
  }
  contestant = functools.partial(Contestant, arguments=(setting, vocabulary), work=work, one_core=True)
  return [
    contestant(OURS, prepare_ours),
    contestant(TRANSFORMERS, prepare_transformers, environment=ONE_THREAD),
  ]
