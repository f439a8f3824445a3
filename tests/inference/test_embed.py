"""Packed sentences have the vectors that they have alone."""

import threading

import jax
import numpy as np
import pytest

import rembert
from rembert.errors import UsageError
from rembert.inference import embed as module
from rembert.inference.embed import sentence_vectors
from rembert.model.config import Execution

TOLERANCE = 1e-5
CLS, SEP = 312, 313


@pytest.fixture(scope='module')
def sentences():
  random = np.random.default_rng(0)
  lengths = [*random.choice([1, 2, 7, 20, 33], 60), 38, 0, 1]  # more than one batch, and what has no pieces at all
  return [[CLS, *random.integers(0, 312, length).tolist(), SEP] for length in lengths]


@pytest.fixture
def model(random_encoder):
  return random_encoder


@pytest.fixture(scope='module')
def means_LxNxH(random_encoder, sentences):
  """Means over the tokens of each sentence, each in a row of its own, for every layer."""
  ids = np.zeros((len(sentences), max(map(len, sentences))), int)
  mask = np.zeros_like(ids)
  for row, sentence in enumerate(sentences):
    ids[row, : len(sentence)], mask[row, : len(sentence)] = sentence, 1
  states = np.stack(random_encoder(ids, attention_mask=mask, output_hidden_states=True).hidden_states)
  of = lambda row, length: states[:, row, 1 : length - 1].mean(1) if length > 2 else np.zeros_like(states[:, 0, 0])
  return np.stack([of(row, len(sentence)) for row, sentence in enumerate(sentences)], axis=1)


def assert_close(found, expected):
  np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize('layer', [None, 0, 2])
def test_vectors_of_packed_sentences_are_those_of_rows_of_one_sentence(model, sentences, means_LxNxH, layer):
  progress = []
  found = sentence_vectors(
    model, sentences, layer=layer, batch_size=3, on_progress=lambda fraction, note: progress.append((fraction, note))
  )
  assert_close(found, means_LxNxH[-1 if layer is None else layer])
  assert not found[-2].any()
  assert [fraction for fraction, _ in progress] == sorted(fraction for fraction, _ in progress)
  assert progress[-1] == (1, '63 of 63 sentences')


def test_vectors_of_all_layers_are_those_of_each(model, sentences, means_LxNxH):
  assert_close(sentence_vectors(model, sentences, all_layers=True, batch_size=3), means_LxNxH)


def test_kernels_that_are_cast_once_give_the_same_vectors(random_run, sentences, monkeypatch):
  model = rembert.load(random_run, execution=Execution('bfloat16'))
  found = sentence_vectors(model, sentences)
  monkeypatch.setattr(module, 'platform', lambda: 'tpu')
  np.testing.assert_array_equal(found, sentence_vectors(model, sentences))


def test_no_sentences_have_no_vectors(model):
  assert sentence_vectors(model, []).shape == (0, 32)


def test_invalid_sentences_are_errors_and_no_thread_continues(model, sentences):
  with pytest.raises(UsageError, match="exceed the model's 0 to"):
    sentence_vectors(model, [*sentences, [CLS, 10**6, SEP]], batch_size=1)
  with pytest.raises(UsageError, match='no layer 9'):
    sentence_vectors(model, sentences, layer=9)
  with pytest.raises(UsageError, match='longer'):
    sentence_vectors(model, [[CLS] * 513])

  def stop(fraction, note):
    raise InterruptedError

  with pytest.raises(InterruptedError):
    sentence_vectors(model, sentences, batch_size=1, on_progress=stop)
  assert not [thread for thread in threading.enumerate() if thread.name.startswith('sentences')]


def test_each_shape_is_compiled_once(model, sentences):
  compiled = []

  def note(event: str, seconds: float, fun_name: str = '', **_) -> None:
    compiled.extend([fun_name] if event.endswith('backend_compile_duration') and 'means' in fun_name else [])

  module._means.clear_cache()
  jax.monitoring.register_event_duration_secs_listener(note)
  try:
    sentence_vectors(model, sentences, batch_size=2)
  finally:
    jax.monitoring.unregister_event_duration_listener(note)
  assert len(compiled) == 1
