"""A store of a SeqIO mixture holds the rows of its tasks, and is read with its rates."""

import json
import sys

import numpy as np
import pytest
from etils import epath
from own_tasks import MODULE, write_own_tasks

from rembert.data.config import DataConfig, DataRequest
from rembert.data.packing import pack
from rembert.data.stream_source import SourcePlace
from rembert.data.token_store import TokenStore
from rembert.jobs.pretrain_data import open_data
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console
from tasks.token_store.__main__ import main

FLAGS = (f'--module={MODULE}', '--mixture=law', '--sequence_length=64')


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
  folder = tmp_path_factory.mktemp('own')
  write_own_tasks(folder)
  return folder


@pytest.fixture(scope='module', autouse=True)
def in_directory(directory):
  """The current directory has the module; its tasks name files by relative paths."""
  with pytest.MonkeyPatch.context() as patched:
    patched.chdir(directory)
    patched.setattr(sys, 'path', [str(directory), *sys.path])
    yield
  import seqio

  sys.modules.pop(MODULE, None)
  for name in ('law.high', 'law.low', 'law'):
    seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(name)


@pytest.fixture(scope='module')
def store(in_directory, tmp_path_factory):
  folder = tmp_path_factory.mktemp('made') / 'store'
  assert main([*FLAGS, f'--output={folder}']) == 0
  return TokenStore(folder)


def test_its_languages_are_the_tasks_a_shard_for_each_file_and_its_vocabulary_is_theirs(store, directory):
  assert list(store.languages) == ['law.high', 'law.low']
  assert store.rates == {'law.high': 0.75, 'law.low': 0.25}
  files = sorted(str(path.relative_to(store.folder)) for path in store.folder.glob('law.high/*.array_record'))
  assert files == [
    'law.high/train-00000-of-00002.array_record',
    'law.high/train-00001-of-00002.array_record',
    'law.high/validation-00000-of-00001.array_record',
  ]
  copied = store.folder / 'vocabulary/sentencepiece.model'
  assert copied.read_bytes() == (directory / 'law/sentencepiece.model').read_bytes()


def test_its_rows_are_the_packed_documents_of_the_tasks(store):
  import my_tasks  # noqa: F401
  import seqio

  from tasks.pretraining import TaskDocuments

  for split in ('train', 'validation'):
    task = seqio.TaskRegistry.get('law.low')
    parts = len(task.source.list_shards(split))
    expected = []
    for part in range(parts):
      documents = TaskDocuments(
        {'low': task}, special=SpecialIds(), vocab_size=1500, sequence_length=64, seed=0, shard=(part, parts)
      )
      ids = [ids for ids, _ in documents('low', split, SourcePlace())]
      expected += [row for row, _ in pack(ids, 64, SpecialIds())]
    np.testing.assert_array_equal(store.read('law.low', split, range(store.rows('law.low', split))), expected)
  every = TaskDocuments({'low': task}, special=SpecialIds(), vocab_size=1500, sequence_length=64, seed=0)
  assert store.languages['law.low'].documents['train'] == len(list(every('low', 'train', SourcePlace())))


def test_it_is_read_with_the_rates_of_the_mixture(store, tmp_path, capsys):
  def opened(**data):
    data = DataConfig(source='store', store=str(store.folder), **data)
    request = DataRequest(data, batch_size=4, sequence_length=64, vocab_size=1500, evaluation_rows=2)
    return open_data(request, workdir=epath.Path(tmp_path), console=Console())

  assert opened().batches.rates == {'law.high': 0.75, 'law.low': 0.25}
  assert opened(alpha=0.3).batches.rates == {'law.high': 0.75, 'law.low': 0.25}
  assert 'rates are those of the mixture' in capsys.readouterr().out
  assert opened(languages=('law.low',)).batches.rates == {'law.low': 1.0}
  assert next(opened().batches.batches(0))[0]['input_ids'].shape == (4, 64)


def test_a_single_task_is_a_store_too(tmp_path):
  folder = tmp_path / 'store'
  assert main([f'--module={MODULE}', '--mixture=law.low', '--sequence_length=64', f'--output={folder}']) == 0
  assert TokenStore(folder).rates == {'law.low': 1.0}
  assert json.loads((folder / 'manifest.json').read_text())['recipe']['mixture'] == 'law.low'


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--mixture=lew'], "no SeqIO task or mixture called 'lew'"),
    (['--mixture=law', '--languages=de'], 'does not apply to a mixture'),
    (['--mixture=law', '--held_out=0.1'], 'these options belong to a corpus'),
    (['--mixture=law', '--module=no_such_module'], "there is no module 'no_such_module'"),
  ],
)
def test_what_does_not_fit_is_one_error(flags, message, tmp_path, capsys):
  assert main([f'--module={MODULE}', *flags, f'--output={tmp_path / "store"}']) == 2
  assert message in capsys.readouterr().err


def test_without_a_mixture_a_vocabulary_has_to_be_named(tmp_path, capsys):
  assert main(['--dumps=sample', f'--output={tmp_path / "store"}']) == 2
  assert '--vocabulary is not set' in capsys.readouterr().err
