"""Small models with nothing left at zero, so that every bias and every LayerNorm scale can be felt."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_checkpoints
from encoder_values import readout, values_and_gradients
from flax import nnx

from rembert.model.config import Execution, RemBertConfig
from rembert.model.heads import RemBertForMaskedLM, build_model

# Hugging Face's tiny test model: I, E, H and F all differ, V is no multiple of 128.
TINY = dataclasses.replace(random_checkpoints.TINY, vocab_size=99, type_vocab_size=3)


def _filled(construct: Callable[[], nnx.Module]) -> nnx.Module:
  """A model with every parameter drawn from N(0, 0.1²), LayerNorm scales about 1; the same for every `Execution`."""
  graphdef, shapes = nnx.split(nnx.eval_shape(construct))
  random = np.random.default_rng(0)

  def fill(path, leaf):
    value = 0.1 * random.standard_normal(leaf.shape, np.float32) + (path[-1].key == 'scale')
    return jnp.asarray(value, jnp.float32)

  return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(fill, nnx.to_pure_dict(shapes)))


def _build(config: RemBertConfig, execution: Execution = Execution(), *, add_pooler: bool = True) -> RemBertForMaskedLM:
  """A masked-language model, `_filled`."""
  return _filled(lambda: RemBertForMaskedLM(config, execution, add_pooler=add_pooler, rngs=nnx.Rngs(0)))


def _build_head(head: str, config: RemBertConfig, execution: Execution = Execution()) -> nnx.Module:
  """A model for fine-tuning with three labels, `_filled`."""
  return _filled(lambda: build_model(head, config, execution, num_labels=3, rngs=nnx.Rngs(0)))


@pytest.fixture(scope='session')
def tiny_model() -> RemBertForMaskedLM:
  """`TINY`, built; not to be changed."""
  return _build(TINY)


def _parameters(model: nnx.Module) -> dict:
  """A model's parameters as nested dicts of NumPy arrays, float64."""
  return jax.tree.map(lambda x: np.asarray(x, np.float64), nnx.to_pure_dict(nnx.state(model, nnx.Param)))


@pytest.fixture(scope='session')
def batch(tiny):
  """Four rows of 10; lengths 10, 7, 1 and 4."""
  random = np.random.default_rng(0)
  lengths = np.array([10, 7, 1, 4])
  return {
    'ids': random.integers(0, tiny.vocab_size, (4, 10)),
    'types': random.integers(0, tiny.type_vocab_size, (4, 10)),
    'mask': (np.arange(10) < lengths[:, None]).astype(np.int32),
    'lengths': lengths,
  }


def _run_encoder(encoder: nnx.Module, ids: np.ndarray) -> tuple[jax.Array, dict]:
  """Hidden states, and the gradients of a fixed random projection of them."""
  ids = jnp.asarray(ids)
  direction = readout((*ids.shape, encoder.config.hidden_size))
  return values_and_gradients(encoder, direction, lambda encoder: encoder(ids).last_hidden_state)


tiny, build, build_head, parameters, run_encoder = (
  pytest.fixture(lambda given=given: given, scope='session')
  for given in (TINY, _build, _build_head, _parameters, _run_encoder)
)


@pytest.fixture(scope='session')
def plain(tiny_model, batch):
  """`run_encoder` of `TINY`, with the reference implementation."""
  return _run_encoder(tiny_model.encoder, batch['ids'])


@pytest.fixture
def qkv() -> np.ndarray:
  """Random queries, keys and values, [3, B 2, S 6, N 3, D 4] float32."""
  return np.random.default_rng(0).standard_normal((3, 2, 6, 3, 4)).astype(np.float32)
