"""Attention against NumPy, whoever computes it, and who sees whom."""

import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_reference import attention_with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from rembert.model.attention import Visibility, dot_product_attention, padding_mask, segment_mask
from rembert.model.config import Execution

TOLERANCE = 1e-5  # relative to the largest value of the reference
BFLOAT16_TOLERANCE = 2e-2  # the same, for products of 8-bit mantissas, one after the other


def assert_close(actual, reference, tolerance=TOLERANCE):
  assert np.abs(np.asarray(actual, np.float64) - reference).max() <= tolerance * np.abs(reference).max()


def test_padding_mask_hides_keys_from_every_query_and_head():
  mask = padding_mask(jnp.asarray([[1, 1, 0], [1, 0, 0]]))
  assert mask.dtype == bool
  np.testing.assert_array_equal(mask, np.array([[[[True, True, False]]], [[[True, False, False]]]]))


@given(segments=st.lists(st.integers(0, 4), min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_tokens_see_their_own_segment_and_no_padding(segments):
  mask = np.asarray(segment_mask(jnp.asarray([segments])))
  assert mask.shape == (1, 1, len(segments), len(segments))
  for query, key in np.ndindex(len(segments), len(segments)):
    assert mask[0, 0, query, key] == (segments[query] == segments[key] and segments[key] > 0)


# --- one function, several backends ---------------------------------------------------------------


# What the encoder is given: Hugging Face's mask, or segment ids, or neither. Rows of 256 tokens.
LENGTHS = {'whole': None, 'padded': [[256], [77]], 'packed': [[100, 3, 120], [1, 128, 127]]}


class Rows:
  """Random queries, keys and values [2, 256, 2, 64], who sees whom, and what is to come out."""

  def __init__(self, name: str, dtype: str):
    random = np.random.default_rng(0)
    as_stored = lambda x: np.asarray(jnp.asarray(x, dtype), np.float32)
    *qkv, cotangent = as_stored(random.standard_normal((4, 2, 256, 2, 64)))
    segments = np.ones((2, 256), np.int32)
    for row, lengths in enumerate(LENGTHS[name] or []):
      segments[row] = np.repeat([*range(1, len(lengths) + 1), 0], [*lengths, 256 - sum(lengths)])
    self.is_token = segments > 0
    # Nothing looks at what padding gets: its cotangents are zero, and backends may differ there.
    self.qkv, self.cotangent, self.dtype = qkv, np.where(self.is_token[..., None, None], cotangent, 0), dtype
    self.masks = {'padded': (self.is_token.astype(np.int32), None), 'packed': (None, segments)}.get(name, (None, None))
    sees_BxSxS = segments[:, :, None] == segments[:, None, :]
    self.reference = attention_with_gradients(*self.qkv, self.cotangent, sees_BxSxS[:, None])

  def assert_right(self, output, *gradients):
    """Output at tokens, and all gradients of queries, keys and values."""
    tolerance = BFLOAT16_TOLERANCE if self.dtype == 'bfloat16' else TOLERANCE
    assert_close(np.asarray(output)[self.is_token], self.reference[0][self.is_token], tolerance)
    for gradient, reference in zip(gradients, self.reference[1:], strict=True):
      assert_close(gradient, reference, tolerance)


def output_and_gradients(backend, dtype, query, key, value, cotangent, masks):
  """Float32 arrays: the output, and the gradients of its product with `cotangent`."""
  visibility = Visibility.of(*(None if mask is None else jnp.asarray(mask) for mask in masks))

  @jax.jit
  def run(*qkv):
    output, pull_back = jax.vjp(lambda *qkv: dot_product_attention(*qkv, visibility, backend=backend), *qkv)
    return output, *pull_back(jnp.asarray(cotangent, dtype))

  return [x.astype(jnp.float32) for x in run(*(jnp.asarray(x, dtype) for x in (query, key, value)))]


@pytest.mark.parametrize(('name', 'dtype'), [*((name, 'float32') for name in LENGTHS), ('packed', 'bfloat16')])
def test_einsum_gives_the_textbooks_values_and_gradients(name, dtype):
  rows = Rows(name, dtype)
  rows.assert_right(*output_and_gradients('einsum', dtype, *rows.qkv, rows.cotangent, rows.masks))


@pytest.mark.parametrize(('name', 'dtype'), [*((name, 'float32') for name in LENGTHS), ('packed', 'bfloat16')])
def test_splash_gives_the_textbooks_values_and_gradients(name, dtype, interpreted_splash):
  rows = Rows(name, dtype)
  rows.assert_right(*output_and_gradients('splash', dtype, *rows.qkv, rows.cotangent, rows.masks))


@pytest.mark.parametrize('name', LENGTHS)
def test_cudnn_gives_the_textbooks_values_and_gradients(name, root, tmp_path):
  if shutil.which('nvidia-smi') is None:
    pytest.skip('no NVIDIA GPU here')
  if not any(importlib.util.find_spec(f'jax_cuda{version}_plugin') for version in (12, 13)):
    pytest.skip('a GPU, but jax is installed without CUDA')
  rows = Rows(name, 'bfloat16')
  masks = {f'mask{number}': mask for number, mask in enumerate(rows.masks) if mask is not None}
  np.savez(tmp_path / 'in.npz', qkv=rows.qkv, cotangent=rows.cotangent, **masks)
  # In a process of its own: this one has been told to see CPUs alone.
  subprocess.run(
    [sys.executable, '-m', 'tests.model.test_attention', tmp_path / 'in.npz', tmp_path / 'out.npz'],
    cwd=root,
    env=os.environ | {'JAX_PLATFORMS': 'cuda', 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
    check=True,
  )
  with np.load(tmp_path / 'out.npz') as computed:
    rows.assert_right(*computed.values())


def test_dropout_is_refused_where_it_would_be_left_out(qkv, interpreted_splash):
  with pytest.raises(ValueError, match='drops no weights'):
    dot_product_attention(*qkv, backend='splash', dropout_rate=0.1, dropout_key=jax.random.key(0))


def test_a_model_that_drops_attention_weights_is_refused_by_the_kernels(tiny, build):
  config = dataclasses.replace(tiny, attention_probs_dropout_prob=0.1)
  with pytest.raises(UsageError, match='cannot drop attention weights'):
    build(config, Execution(attention='splash'))


# --- the module -----------------------------------------------------------------------------------


def test_self_attention_is_four_linear_maps_around_attention(tiny, build, parameters):
  attention = build(tiny).encoder.layers.attention
  p = parameters(attention)
  heads, head_dim, hidden = tiny.num_attention_heads, tiny.head_dim, tiny.hidden_size
  x = np.random.default_rng(1).standard_normal((1, 5, hidden)).astype(np.float32)
  expected = np.zeros((1, 5, hidden)) + p['output']['bias'][0]
  for n in range(heads):
    query, key, value = (x[0] @ p['qkv']['kernel'][0, :, i, n] + p['qkv']['bias'][0, i, n] for i in range(3))
    scores = query @ key.T / np.sqrt(head_dim)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected[0] += weights @ value @ p['output']['kernel'][0, n]
  first = _layer(attention, 0)
  assert_close(first(jnp.asarray(x)), expected)


def _layer(stacked, index):
  from flax import nnx

  graphdef, state = nnx.split(stacked)
  return nnx.merge(graphdef, jax.tree.map(lambda x: x[index], nnx.to_pure_dict(state)))


if __name__ == '__main__':  # what `test_cudnn_gives_the_textbooks_values_and_gradients` runs on the GPU
  with np.load(sys.argv[1]) as given:
    masks = [given.get('mask0'), given.get('mask1')]
    np.savez(sys.argv[2], *output_and_gradients('cudnn', 'bfloat16', *given['qkv'], given['cotangent'], masks))
