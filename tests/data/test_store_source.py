"""Batches from a store: a function of (seed, step, row), the same for any number of readers, each row once an epoch."""

import subprocess
import sys

import numpy as np
import pytest
from batch_checks import assert_same, unmasked

from rembert.data.config import DataConfig, DataRequest
from rembert.data.packing import PackingConfig
from rembert.data.store_source import StoredBatches
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.jobs.pretrain_data import open_data
from rembert.tracking.console import Console

B = 12
REQUEST = {'batch_size': B, 'sequence_length': 64, 'vocab_size': 1500, 'evaluation_rows': 7}


@pytest.fixture(scope='module')
def store(small_store):
  return TokenStore(small_store.folder)


@pytest.fixture
def source(store):
  """Batches of a process, by default the only one."""

  def make(process=(0, 1), seed=0, **options):
    rates = {'el': 0.5, 'sw': 0.3, 'th': 0.2}
    return StoredBatches(
      store=store, rates=rates, batch_size=B, vocab_size=1500, seed=seed, process=process, evaluation_rows=7, **options
    )

  return make


@pytest.mark.parametrize('processes', [1, 2, 4])
@pytest.mark.parametrize('step', [0, 7, 1_000_000])
def test_any_number_of_processes_reads_the_same_batch(source, processes, step):
  whole = source().batch(step)
  parts = [source(process=(index, processes)).batch(step) for index in range(processes)]
  assert_same({name: np.concatenate([part[name] for part in parts]) for name in whole}, whole)


def test_the_iterator_gives_the_batches_of_its_steps_from_wherever_it_begins(source):
  for start in 0, 1_000_000:
    for threads in 1, 3:
      stream = source(read_threads=threads).batches(start)
      for step, (batch, state) in zip(range(start, start + 4), stream, strict=False):
        assert_same(batch, source().batch(step))
        assert state == {}


def test_every_row_comes_once_an_epoch_in_an_order_of_its_own(source, store):
  languages, indices = map(np.concatenate, zip(*(source().rows_of(step) for step in range(200)), strict=True))
  for number, language in enumerate(('el', 'sw', 'th')):
    drawn = indices[languages == number]
    count = store.rows(language, 'train')
    epochs = [drawn[start : start + count] for start in range(0, len(drawn) - count, count)]
    assert epochs, 'too few steps to see an epoch'
    for epoch in epochs:
      assert np.array_equal(np.sort(epoch), np.arange(count))
    assert not np.array_equal(epochs[0], np.arange(count))
    assert len(epochs) < 2 or not np.array_equal(epochs[0], epochs[1])


def test_seeds_and_steps_draw_other_rows_and_masks(source):
  first = source().batch(0)
  for other in source(seed=1).batch(0), source().batch(1):
    assert not np.array_equal(other['input_ids'], first['input_ids'])


def test_rows_are_whole_rows_of_their_language(source, store):
  batch = source().batch(3)
  ids = unmasked(batch)
  for row, language in enumerate(batch['language']):
    every = store.read(('el', 'sw', 'th')[language], 'train', range(store.rows(('el', 'sw', 'th')[language], 'train')))
    assert np.any(np.all(every == ids[row], axis=1))


def test_held_out_rows_are_the_first_of_each_language_and_padding_weighs_nothing(source, store):
  batches = list(source().evaluation_batches())
  ids = np.concatenate([unmasked(batch) for batch in batches])
  expected = [store.read(language, 'validation', range(7)) for language in ('el', 'sw', 'th')]
  assert np.array_equal(ids[:21], np.concatenate(expected))
  assert not np.any(ids[21:])
  assert not any(np.any(batch['weights'][9:]) for batch in batches[1:])
  halves = [list(source(process=(index, 2)).evaluation_batches()) for index in range(2)]
  for whole, *parts in zip(batches, *halves, strict=True):
    assert_same({name: np.concatenate([part[name] for part in parts]) for name in whole}, whole)


# --- opened by the job ------------------------------------------------------------------------------------------------


@pytest.fixture
def open_it(small_store, tmp_path):
  def open_it(data=None, **request):
    config = DataConfig(source='store', store=str(small_store.folder), **data or {})
    return open_data(DataRequest(config, **REQUEST | request), workdir=tmp_path, console=Console(is_quiet=True))

  return open_it


def test_rates_come_from_the_sentences_of_the_store(open_it, small_store, store):
  opened = open_it({'alpha': 0.5})
  weights = np.sqrt([store.languages[language].sentences for language in ('el', 'sw', 'th')])
  assert list(opened.batches.rates) == ['el', 'sw', 'th']
  np.testing.assert_allclose(list(opened.batches.rates.values()), weights / weights.sum())
  assert opened.identity['store'] == store.manifest_hash
  assert opened.vocabulary.read_bytes() == small_store.vocabulary.read_bytes()


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'sequence_length': 128}, 'sequence length mismatch: 64 in the token store, 128'),
    ({'vocab_size': 1000}, 'vocabulary size mismatch: 1,500 in the token store, 1,000'),
    ({'data': {'languages': ('el', 'de')}}, 'no text in de'),
    ({'packing': PackingConfig(short_rows=0.1)}, 'already packed'),
  ],
)
def test_a_store_of_another_model_is_refused(open_it, options, words):
  with pytest.raises(UsageError, match=words):
    open_it(**options)


# --- a process of its own ---------------------------------------------------------------------------------------------

_READER = """
import dataclasses, sys
import numpy as np
from etils import epath
from rembert.data.config import DataConfig, DataRequest
from rembert.jobs.pretrain_data import open_data
from rembert.tracking.console import Console

store, workdir, first = sys.argv[1:]
request = DataRequest(DataConfig(source='store', store=store), 12, 64, 1500, 7)
opened = open_data(request, workdir=epath.Path(workdir), console=Console(is_quiet=True))
source = dataclasses.replace(opened.batches, process=(1, 2))
np.savez(f'{workdir}/batch.npz', **next(source.batches(int(first)))[0])
too_much = {'tensorflow', 'seqio', 't5', 'apache_beam'} & set(sys.modules)
assert not too_much, too_much
"""


def test_a_process_that_starts_at_a_step_reads_its_part_of_the_batch_and_imports_no_tensorflow(
  open_it, small_store, tmp_path
):
  arguments = [str(small_store.folder), str(tmp_path), '1000000']
  subprocess.run([sys.executable, '-c', _READER, *arguments], check=True, timeout=120)
  part, whole = np.load(tmp_path / 'batch.npz'), open_it().batches.batch(1_000_000)
  assert_same(dict(part), {name: array[B // 2 :] for name, array in whole.items()})
