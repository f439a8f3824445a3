"""Token stores as they are read: whole, or refused; rows as they were packed."""

import json
import shutil

import numpy as np
import pytest

from rembert.data.token_store import TokenStore, row_dtype
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds
from tasks.token_store.__main__ import main

SPECIAL = SpecialIds()


@pytest.fixture
def copy(small_store, tmp_path):
  """A store to spoil."""
  return shutil.copytree(small_store.folder, tmp_path / 'store')


def some_shard(folder):
  return next(folder / shard.file for shard in TokenStore(folder).shards())


def test_rows_are_read_by_number_in_any_order(small_store):
  store = TokenStore(small_store.folder)
  assert set(store.languages) == {'el', 'sw', 'th'}
  count = store.rows('el', 'train')
  every = store.read('el', 'train', range(count))
  assert every.shape == (count, 64)
  assert every.dtype == np.int32
  assert np.all(every[:, 0] == SPECIAL.cls)
  order = np.random.default_rng(0).permutation(count)
  assert np.array_equal(store.read('el', 'train', order), every[order])
  assert len(store.languages['el'].shards['train']) > 1
  assert row_dtype(65_536) == np.uint16  # the smallest type that holds every id
  assert row_dtype(65_537) == row_dtype(250_300) == np.uint32


def test_tokens_and_documents_are_counted_as_they_are(small_store):
  store = TokenStore(small_store.folder)
  for language, part in store.languages.items():
    for split in ('train', 'validation'):
      ids = store.read(language, split, range(store.rows(language, split)))
      is_text = ~np.isin(ids, (SPECIAL.pad, SPECIAL.cls, SPECIAL.sep))
      assert is_text.sum() == part.tokens[split]
    assert part.documents['train'] > part.documents['validation'] > 0
    assert part.sentences > part.documents['train']


def test_a_whole_store_is_verified_and_an_altered_one_named(copy, capsys):
  assert main(['verify', str(copy)]) == 0
  assert 'are valid' in capsys.readouterr().out
  shard = some_shard(copy)
  content = bytearray(shard.read_bytes())
  content[len(content) // 2] ^= 1
  shard.write_bytes(content)
  assert main(['verify', str(copy)]) == 2
  error = capsys.readouterr().err
  assert '1 shards differ' in error
  assert shard.name in error


def test_shards_that_are_missing_or_cut_are_named_at_once(copy):
  shard = some_shard(copy)
  shard.write_bytes(shard.read_bytes()[:-10])
  with pytest.raises(UsageError, match='missing or altered') as caught:
    TokenStore(copy)
  assert f'{shard.name} has' in str(caught.value)
  shard.unlink()
  with pytest.raises(UsageError) as caught:
    TokenStore(copy)
  assert f'{shard.name} is missing' in str(caught.value)


def test_a_damaged_row_is_a_usage_error(copy):
  for shard in TokenStore(copy).shards():
    file = copy / shard.file
    file.write_bytes(bytes(len(file.read_bytes())))
  store = TokenStore(copy)
  with pytest.raises(UsageError, match='cannot be read'):
    store.read('el', 'train', [0, 1])


def test_a_store_of_another_format_is_refused_and_one_without_manifest_is_unfinished_or_none_at_all(copy, tmp_path):
  manifest = copy / 'manifest.json'
  manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {'format': 99}))
  with pytest.raises(UsageError, match='format 99'):
    TokenStore(copy)
  manifest.unlink()
  with pytest.raises(UsageError, match='incomplete: 3 languages are complete'):
    TokenStore(copy)
  with pytest.raises(UsageError, match='no token store'):
    TokenStore(tmp_path / 'nowhere')
