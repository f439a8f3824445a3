import dataclasses

import numpy as np
import pytest

from benchmarks import encode
from benchmarks.settings import SMALL, write_random_model
from rembert.inference.model import load

TINY = encode.Setting(
  dataclasses.replace(
    SMALL,
    vocab_size=400,
    input_embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    intermediate_size=32,
    max_position_embeddings=64,
  ),
  sentences=6,
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('encoder') / 'model'
  write_random_model(folder, TINY.config)
  return folder


@pytest.fixture(scope='module')
def reference_norm(folder) -> float:
  """Sentence by sentence, without padding and packing, float32."""
  model = load(folder)
  states = [model(ids_S[None]).last_hidden_state[0].mean(0) for ids_S in encode.sentences(TINY)]
  return np.linalg.norm(np.mean(states, axis=0))


@pytest.mark.parametrize(('dtype', 'tolerance'), [('float32', 1e-5), ('bfloat16', 1e-2)])
def test_our_embeddings_are_means_of_the_last_layer(folder, reference_norm, dtype, tolerance):
  run = encode.prepare_ours(dataclasses.replace(TINY, dtype=dtype), folder)
  assert run()['norm of mean'] == pytest.approx(reference_norm, rel=tolerance)


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize(('is_sorted', 'dtype'), [(False, 'float32'), (True, 'float32'), (True, 'bfloat16')])
def test_torch_has_the_same_embeddings(folder, reference_norm, is_sorted, dtype):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  run = encode.prepare_torch(dataclasses.replace(TINY, dtype=dtype), folder, is_sorted)
  assert run()['norm of mean'] == pytest.approx(reference_norm, rel=1e-2 if dtype == 'bfloat16' else 1e-5)


@pytest.mark.slow
def test_sorted_by_length_is_what_sentence_transformers_does(folder):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  pytest.importorskip('sentence_transformers', reason='`make bench` installs sentence-transformers')
  theirs = encode.prepare_sentence_transformers(TINY, folder)()
  assert theirs == pytest.approx(encode.prepare_torch(TINY, folder, True)(), rel=1e-5)


def test_sentences_are_as_long_as_sentences_are():
  rows = encode.sentences(encode.SETTINGS['small'])
  lengths = [len(row) for row in rows]
  assert np.median(lengths) == pytest.approx(22, abs=1)
  assert np.mean(lengths) == pytest.approx(26, abs=1)
  assert np.percentile(lengths, 99) == pytest.approx(88, rel=0.1)
  assert min(lengths) > 0
  assert min(row.min() for row in rows) > encode.SETTINGS['small'].config.eos_token_id


def test_all_candidates_embed_the_same_sentences_with_one_model(tmp_path):
  first, *others, _, _ = encode.candidates(encode.SETTINGS['small'], tmp_path)  # the last two only multiply
  assert first.work['sentences'] == 1000
  assert all(other.arguments[:2] == first.arguments for other in others)
