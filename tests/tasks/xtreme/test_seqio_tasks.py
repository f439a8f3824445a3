"""SeqIO tasks over XTREME's: the rows are those of the task, whatever they hold, and its metric is the task's score."""

import dataclasses

import numpy as np
import pytest
import seqio

from rembert.errors import UsageError
from tasks.tensorflow_import import tensorflow as tf
from tasks.xtreme import seqio_tasks
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.pairs import PairExample
from tasks.xtreme.seqio_tasks import LanguageRows, read_rows, task_name
from tasks.xtreme.task import Row
from tasks.xtreme.tasks import get_task

CONFIG = XtremeConfig()
TASKS = ('xnli', 'pawsx', 'panx', 'udpos')
LENGTH = 24  # some sentences of the samples are longer


def assert_same_rows(rows, expected):
  assert len(rows) == len(expected) > 0
  for row, other in zip(rows, expected, strict=True):
    assert type(row) is type(other)
    for field in dataclasses.fields(other):
      value, expected_value = getattr(row, field.name), getattr(other, field.name)
      assert type(value) is type(expected_value)
      if isinstance(expected_value, np.ndarray):
        assert value.dtype == expected_value.dtype
        np.testing.assert_array_equal(value, expected_value, strict=True)
      else:
        assert value == expected_value


@pytest.fixture
def source(xtreme_samples, xtreme_pieces):
  def of_task(name, language='de', needs_labels=True):
    return LanguageRows(
      get_task(name),
      xtreme_samples,
      language,
      xtreme_pieces,
      max_length=LENGTH,
      config=CONFIG,
      needs_labels=needs_labels,
    )

  return of_task


@pytest.mark.parametrize('name', TASKS)
@pytest.mark.parametrize(('split', 'language'), [('train', 'en'), ('dev', 'de'), ('test', 'zh')])
def test_rows_are_exactly_the_task_s(xtreme_samples, xtreme_pieces, name, split, language):
  task = get_task(name)
  examples, rows = read_rows(
    task, xtreme_samples, split, language, xtreme_pieces, max_length=LENGTH, config=CONFIG, needs_labels=True
  )
  assert examples == task.examples(xtreme_samples, split, language, needs_labels=True)
  assert_same_rows(rows, task.rows(examples, xtreme_pieces, max_length=LENGTH, config=CONFIG))


def test_more_rows_than_are_read_at_once_keep_their_order(xtreme_samples, xtreme_pieces, monkeypatch):
  monkeypatch.setattr(seqio_tasks, 'ROWS_AT_ONCE', 5)
  task = get_task('xnli')
  examples, rows = read_rows(
    task, xtreme_samples, 'train', 'en', xtreme_pieces, max_length=LENGTH, config=CONFIG, needs_labels=True
  )
  assert len(rows) == 12
  assert_same_rows(rows, task.rows(examples, xtreme_pieces, max_length=LENGTH, config=CONFIG))


def test_of_many_examples_the_same_few_are_drawn_in_their_order(xtreme_samples, xtreme_pieces):
  task = get_task('xnli')
  options = {'max_length': LENGTH, 'config': CONFIG, 'needs_labels': True}
  everything, _ = read_rows(task, xtreme_samples, 'train', 'en', xtreme_pieces, **options)
  few, rows = read_rows(task, xtreme_samples, 'train', 'en', xtreme_pieces, max_examples=5, **options)
  places = [everything.index(example) for example in few]
  assert len(few) == len(rows) == 5
  assert places == sorted(places)
  assert places != list(range(5)), 'files may be sorted: the first are not like the others'
  assert [row.example for row in rows] == list(range(5))
  assert_same_rows(rows, task.rows(few, xtreme_pieces, max_length=LENGTH, config=CONFIG))
  again, _ = read_rows(task, xtreme_samples, 'train', 'en', xtreme_pieces, max_examples=5, **options)
  assert again == few
  for most in (None, len(everything), 1000):
    assert seqio_tasks.drawn(everything, most) == everything


@dataclasses.dataclass(frozen=True)
class WindowRow(Row):
  """As of a task of questions: several fields more, of other ranks and types."""

  offset: int
  places: np.ndarray  # [S, 2]
  is_whole: np.ndarray | None = None


class Windows:
  """A task with two rows for every example, of growing length."""

  name, head, labels = 'windows', 'qa', ()

  def examples(self, folder, split, language, *, needs_labels):
    return [PairExample('', '', None, f'{split}-{language}:{line}') for line in (1, 2, 3)]

  def rows(self, examples, pieces, *, max_length, config):
    return [
      WindowRow(
        example=index // 2,
        input_ids=np.arange(index + 1, dtype=np.int32),
        token_type_ids=np.ones(index + 1, np.int32),
        labels=np.array([index, -1], np.int32),
        offset=10 * index,
        places=np.arange(2 * index + 2, dtype=np.int64).reshape(-1, 2),
      )
      for index in range(2 * len(examples))
    ]


def test_rows_of_a_task_s_own_kind_come_through_with_all_they_hold(xtreme_samples, xtreme_pieces):
  task = Windows()
  _, rows = read_rows(
    task, xtreme_samples, 'dev', 'de', xtreme_pieces, max_length=LENGTH, config=CONFIG, needs_labels=False
  )
  assert [row.example for row in rows] == [0, 0, 1, 1, 2, 2]
  assert_same_rows(rows, task.rows(range(3), None, max_length=LENGTH, config=CONFIG))


def test_tasks_are_in_seqio_s_registry_one_for_a_language(source, xtreme_pieces):
  for name in TASKS:
    task = seqio_tasks.register(source(name), len(xtreme_pieces))
    assert seqio.get_mixture_or_task(f'xtreme_{name}.de') is task
    assert task.name == task_name(name, 'de')
    assert set(task.splits) == {'train', 'dev', 'test'}
    assert task.output_features['input_ids'].vocabulary.vocab_size == len(xtreme_pieces)
  again = seqio_tasks.register(source('xnli'), len(xtreme_pieces))
  assert seqio.TaskRegistry.get('xtreme_xnli.de') is again


@pytest.mark.parametrize('name', TASKS)
def test_what_seqio_gives_are_its_output_features_and_where_they_are_from(source, xtreme_pieces, name):
  task = seqio_tasks.register(source(name), len(xtreme_pieces))
  dataset = task.get_dataset(sequence_length=None, split='test', shuffle=False)
  spec = dataset.element_spec
  assert {'input_ids', 'token_type_ids', 'labels', 'example', 'split'} <= set(spec)
  for feature in ('input_ids', 'token_type_ids', 'labels'):
    assert spec[feature].dtype == tf.int32
    assert spec[feature].shape.rank == task.output_features[feature].rank
  assert {example['split'] for example in dataset.as_numpy_iterator()} == {b'test'}


def test_an_iterator_can_be_let_go_before_its_end(source, xtreme_pieces):
  task = seqio_tasks.register(source('xnli'), len(xtreme_pieces))
  for _ in range(5):
    next(iter(task.get_dataset(sequence_length=None, split='test', shuffle=False)))


def test_a_split_without_a_file_is_an_error_when_it_is_read(source, xtreme_pieces):
  task = seqio_tasks.register(source('xnli'), len(xtreme_pieces))
  with pytest.raises(UsageError, match='missing') as error:
    task.get_dataset(sequence_length=None, split='train', shuffle=False)
  assert error.value.where.endswith('train-de.tsv')


def evaluate(task, split, outputs):
  """As SeqIO's evaluator goes about it: targets and predictions by the postprocessor, then every metric."""
  elements = list(task.get_dataset(sequence_length=None, split=split, shuffle=False).as_numpy_iterator())
  targets = [task.postprocess_fn(None, example=element, is_target=True) for element in elements]
  predictions = [
    task.postprocess_fn(output, example=element, is_target=False)
    for element, output in zip(elements, outputs, strict=True)
  ]
  (metric,) = task.predict_metric_fns
  return metric(targets, predictions)


@pytest.mark.parametrize('name', TASKS)
def test_the_metric_of_seqio_is_the_task_s_score(source, xtreme_pieces, name):
  rows_of = source(name)
  task = seqio_tasks.register(rows_of, len(xtreme_pieces))
  plain = get_task(name)
  examples = rows_of.examples('test')
  rows = plain.rows(examples, xtreme_pieces, max_length=LENGTH, config=CONFIG)
  rng = np.random.default_rng(0)
  outputs = [rng.normal(size=(*row.labels.shape, len(plain.labels))).astype(np.float32) for row in rows]
  predictions = plain.predictions(examples, rows, outputs, config=CONFIG)
  scores = evaluate(task, 'test', outputs)
  assert scores == plain.score(examples, predictions, 'de')
  assert tuple(scores) == plain.scores


def test_unlabelled_rows_are_read_and_never_scored(xtreme_samples, xtreme_pieces, source, tmp_path):
  folder = XtremeFolder(xtreme_samples.root, tmp_path)  # where there are no gold labels
  task = get_task('panx')
  arguments = {'max_length': LENGTH, 'config': CONFIG}
  _, rows = read_rows(task, folder, 'test', 'de', xtreme_pieces, **arguments, needs_labels=False)
  assert {int(label) for row in rows for label in row.labels} == {-1}
  with pytest.raises(UsageError, match='no gold labels'):
    read_rows(task, folder, 'test', 'de', xtreme_pieces, **arguments, needs_labels=True)
  unlabelled = LanguageRows(task, folder, 'de', xtreme_pieces, **arguments, needs_labels=False)
  outputs = [np.zeros((len(row.input_ids), len(task.labels)), np.float32) for row in rows]
  with pytest.raises(UsageError, match='no score without gold labels'):
    evaluate(seqio_tasks.language_task(unlabelled, len(xtreme_pieces)), 'test', outputs)


@pytest.mark.parametrize(('name', 'language'), [('pawsx', 'de'), ('panx', 'sw'), ('udpos', 'ta')])
def test_real_rows_are_exactly_the_task_s(shared_data, xtreme_pieces, name, language):
  task, folder = get_task(name), XtremeFolder(shared_data / 'xtreme')
  examples, rows = read_rows(
    task, folder, 'test', language, xtreme_pieces, max_length=128, config=CONFIG, needs_labels=True
  )
  assert_same_rows(rows, task.rows(examples, xtreme_pieces, max_length=128, config=CONFIG))
