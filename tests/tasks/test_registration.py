"""Registration replaces what is ours and nothing else."""

import pytest
import seqio

from rembert.errors import UsageError
from tasks import registration


def task_arguments(text):
  from tasks.tensorflow_import import tensorflow as tf

  return {
    'source': seqio.FunctionDataSource(lambda split, shuffle_files: tf.data.Dataset.from_tensors(text), ('train',)),
    'preprocessors': [],
    'output_features': {},
  }


@pytest.fixture
def names():
  """Names that are free before and after."""
  mine = ['registration_test.ours', 'registration_test.theirs', 'registration_test']
  yield mine
  for name in mine:
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)


def test_a_task_of_ours_is_replaced(names):
  first = registration.add_task(names[0], **task_arguments('a'))
  second = registration.add_task(names[0], **task_arguments('b'))
  assert first is not second
  assert registration.find(names[0]) is second


def test_a_task_of_another_module_is_not_replaced(names):
  theirs = seqio.TaskRegistry.add(names[1], **task_arguments('a'))
  for add in (
    lambda: registration.add_task(names[1], **task_arguments('b')),
    lambda: registration.add_mixture(names[1], {}),
  ):
    with pytest.raises(UsageError, match='registered already, by another module'):
      add()
  assert seqio.TaskRegistry.get(names[1]) is theirs


def test_an_unknown_name_is_one_error_with_the_nearest(names):
  registration.add_task(names[0], **task_arguments('a'))
  with pytest.raises(UsageError, match='no SeqIO task or mixture') as error:
    registration.find('registration_test.our')
  assert names[0] in str(error.value)
  assert '--module=' in str(error.value)


def test_names_have_no_hyphens():
  assert registration.valid_name('wikipedia', 'zh-min-nan') == 'wikipedia.zh_min_nan'
