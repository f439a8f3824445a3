"""Means of layers, beside NumPy on the hidden states of each sentence alone."""

import numpy as np
import pytest

import rembert
from rembert.analysis.layer_vectors import layer_means
from rembert.jobs.predict import embed_lines, text_encoder

TOLERANCE = 1e-5
LINES = ['der Fluss', 'die Stadt und das Meer', 'in', 'der Fluss fließt durch die Stadt und in das Meer']


@pytest.fixture
def model(saved_with_vocabulary):
  return rembert.load(saved_with_vocabulary)


def test_means_are_over_the_pieces_between_cls_and_sep(model):
  encoder = text_encoder(model)
  vectors, cut = layer_means(model, encoder, LINES, batch_size=3)
  assert vectors.shape == (4, len(LINES), 32)
  assert cut == 0
  for number, line in enumerate(LINES):
    ids = np.array([encoder.encode(line)])
    states = np.asarray(model(ids, output_hidden_states=True).hidden_states, np.float64)  # no padding at all
    np.testing.assert_allclose(vectors[:, number], states[:, 0, 1:-1].mean(1), atol=TOLERANCE * np.abs(states).max())


def test_each_layer_is_that_of_the_embeddings_of_lines(model):
  vectors, _ = layer_means(model, text_encoder(model), LINES)
  for layer in range(4):
    np.testing.assert_allclose(
      vectors[layer], embed_lines(model, text_encoder(model), LINES, layer=layer), rtol=1e-4, atol=1e-4
    )


def test_long_sentences_are_cut_and_counted(model):
  vectors, cut = layer_means(model, text_encoder(model), ['Fluss ' * 60, 'Fluss'])
  assert cut == 1
  assert np.isfinite(vectors).all()
