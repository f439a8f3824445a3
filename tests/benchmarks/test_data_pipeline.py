import numpy as np
import pytest

from benchmarks import data_pipeline
from rembert.data.store_source import StoredBatches
from rembert.data.token_store import TokenStore

TINY = data_pipeline.BatchSetting(rows=4, length=64, batches=3, vocab_size=1500)


@pytest.mark.slow
def test_the_store_has_the_shape_of_the_setting(tmp_path):
  opened = TokenStore(data_pipeline.make_store(data_pipeline.READING.settings['rows64'], tmp_path))
  assert (opened.sequence_length, opened.vocab_size, len(opened.languages)) == (64, 5000, 12)


@pytest.mark.slow  # makes a store
def test_every_run_continues_after_the_previous_one(small_store, monkeypatch):
  begun, batches = [], StoredBatches.batches

  def noted(self, step):
    begun.append(step)
    return batches(self, step)

  monkeypatch.setattr(StoredBatches, 'batches', noted)
  run = data_pipeline.prepare_reading(TINY, small_store.folder)
  facts = [run()['masked per sequence'] for _ in range(3)]
  assert begun == [0, 3, 6]
  assert all(0 < predictions <= 10 for predictions in facts)


@pytest.mark.slow  # makes a store
def test_hosts_read_their_parts_of_the_same_batches(small_store, monkeypatch):
  read = []
  monkeypatch.setattr(data_pipeline, 'last', lambda batches: read.extend(batches) or read[-1])
  for hosts in (1, 4):
    run = data_pipeline.prepare_reading(TINY, small_store.folder, hosts)
    run()
    run()
  whole, parts = read[:6], read[6:]
  for (batch, _), (part, _) in zip(whole, parts, strict=True):
    np.testing.assert_array_equal(batch['input_ids'][:1], part['input_ids'])


@pytest.mark.slow
@pytest.mark.parametrize(
  ('prepare', 'folder'), [(data_pipeline.prepare_trainer, 'for-trainer'), (data_pipeline.prepare_arrays, 'for-arrays')]
)
def test_datasets_has_the_same_rows(small_store, prepare, folder):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  datasets = pytest.importorskip('datasets', reason='`make bench` installs datasets')
  assert prepare(TINY, small_store.folder)()['masked per sequence'] > 0
  opened = TokenStore(small_store.folder)
  ids = datasets.load_from_disk(small_store.folder.parent / folder)['input_ids'][:]
  stored = [opened.read(language, 'train', range(opened.rows(language, 'train'))) for language in opened.languages]
  assert ids == [row for rows in stored for row in rows.tolist()]


def test_training_is_that_of_the_smoke_run():
  training = data_pipeline.smoke_training()
  assert (training.rows, training.length, training.slots) == (32, 64, 10)
  assert (training.config.vocab_size, training.config.hidden_size) == (
    data_pipeline.READING.settings['rows64'].vocab_size,
    128,
  )
