"""Where fused kernels are refused; how Splash is cut, over a mesh and for a TPU. Values: see test_kernels.py."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absent_devices import tpu_mesh
from flax import nnx
from jax.sharding import NamedSharding

from rembert.errors import UsageError
from rembert.kernels import check_backend
from rembert.kernels.fused_attention import block_size, splash_attention
from rembert.model.attention import Visibility, attention
from rembert.model.config import KERNELS, REMAT_POLICIES, Execution, RemBertConfig
from rembert.model.heads import RemBertForMaskedLM
from rembert.model.layers import operations
from rembert.model.partitioning import partition_spec
from rembert.train.sharding import MeshConfig, make_mesh

TOLERANCE = 1e-5  # relative to the largest value of the reference
QKV = (jnp.zeros((1, 128, 2, 64), jnp.bfloat16),) * 3


@pytest.mark.parametrize('backend', ['cudnn', 'splash'])
def test_a_kernel_is_refused_on_the_cpu_before_anything_is_compiled_and_with_dropout_anywhere(backend):
  for kernels in KERNELS:
    attend = operations(Execution(dtype='bfloat16', attention=backend, kernels=kernels)).attention
    with pytest.raises(UsageError, match='these devices are cpu') as error:
      jax.eval_shape(lambda attend=attend: attend(*QKV))
    assert 'execution.attention=einsum' in error.value.fix[0]
    with pytest.raises(ValueError, match='does not support dropout'):
      attend(*QKV, dropout_rate=0.1, dropout_key=jax.random.key(0))


@pytest.mark.parametrize(
  ('backend', 'platform', 'sequence_length', 'message'),
  [
    ('cudnn', 'tpu', 512, 'kernel for the GPU'),
    ('splash', 'gpu', 512, 'kernel for the TPU'),
    ('splash', 'tpu', 500, 'multiple of 128, not 500\n.*\n.*sequence length of 512'),
    ('cudnn', 'gpu', 511, 'multiple of 2, not 511\n.*\n.*sequence length of 512'),
  ],
)
def test_other_devices_and_other_lengths_are_refused(backend, platform, sequence_length, message):
  check_backend('einsum', platform=platform, sequence_length=sequence_length)  # runs everywhere
  check_backend(backend, platform={'cudnn': 'gpu', 'splash': 'tpu'}[backend], sequence_length=512)
  with pytest.raises(UsageError, match=message) as error:
    check_backend(backend, platform=platform, sequence_length=sequence_length)
  assert 'execution.attention=einsum' in error.value.fix[0]


# --- how splash is cut ----------------------------------------------------------------------------


def test_blocks_divide_the_row_and_several_are_put_together_as_one():
  assert [block_size(length) for length in (128, 384, 512, 640, 768, 1024)] == [128, 384, 512, 128, 384, 512]
  # 640 tokens are five blocks; a document begins in the first and ends in the last.
  random = np.random.default_rng(0)
  *qkv, cotangent = jnp.asarray(random.standard_normal((4, 1, 640, 1, 64)), jnp.float32)
  segments = jnp.asarray(np.repeat([1, 2, 3], [100, 420, 120])[None], jnp.int32)
  assert_equal_to_plain(qkv, cotangent, segments)


@pytest.fixture
def mesh():
  return make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))


def test_every_device_attends_for_its_own_rows_and_heads(mesh):
  random = np.random.default_rng(0)
  place = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, partition_spec(axes)))
  *qkv, cotangent = (
    place(x.astype(np.float32), 'batch', None, 'heads', None) for x in random.standard_normal((4, 4, 128, 2, 64))
  )
  segments = np.repeat([1, 2, 0], [60, 50, 18])[None] * np.ones((4, 1), np.int32)
  segments = place(segments.astype(np.int32), 'batch', None)
  with jax.set_mesh(mesh):
    compiled, outputs = assert_equal_to_plain(qkv, cotangent, segments)
  for x in outputs:
    assert x.sharding.shard_shape(x.shape) == (1, 128, 1, 64)
  assert not re.search(r'all-gather|all-reduce|all-to-all|collective-permute', compiled.as_text())


def assert_equal_to_plain(qkv, cotangent, segments):
  """Values at tokens and gradients agree; returns what was compiled for splash, and all it gave."""
  cotangent = jnp.where(segments[..., None, None] > 0, cotangent, 0)

  def output_and_gradients(attend):
    def run(qkv, cotangent, segments):
      output, pull_back = jax.vjp(lambda *qkv: attend(*qkv, segments), *qkv)
      return output, *pull_back(cotangent)

    compiled = jax.jit(run).lower(qkv, cotangent, segments).compile()
    return compiled, compiled(qkv, cotangent, segments)

  plain = lambda q, k, v, segments: attention(q, k, v, Visibility.of(None, segments))
  compiled, outputs = output_and_gradients(lambda *arrays: splash_attention(*arrays, interpret=True))
  _, references = output_and_gradients(plain)
  is_token = np.asarray(segments) > 0
  for actual, reference in zip(outputs, references, strict=True):
    actual, reference = np.asarray(actual)[is_token], np.asarray(reference)[is_token]
    assert np.abs(actual - reference).max() <= TOLERANCE * np.abs(reference).max()
  return compiled, outputs


# --- what a TPU is given --------------------------------------------------------------------------


@pytest.mark.parametrize('remat', REMAT_POLICIES)
def test_a_models_gradient_lowers_for_a_tpu_slice_that_is_not_here(remat):
  config = RemBertConfig(vocab_size=256, num_hidden_layers=2, hidden_size=128, num_attention_heads=2)
  construct = lambda: RemBertForMaskedLM(
    config, Execution(dtype='bfloat16', remat=remat, attention='splash'), rngs=nnx.Rngs(0)
  )
  graphdef, params = nnx.split(nnx.eval_shape(construct))
  ids = jax.ShapeDtypeStruct((8, 512), jnp.int32)
  loss = lambda params, ids, segments: jnp.sum(nnx.merge(graphdef, params)(ids, segment_ids=segments).logits[..., :9])
  with jax.sharding.use_abstract_mesh(tpu_mesh(2, 2, 2)):
    traced = jax.jit(jax.grad(loss)).trace(nnx.to_pure_dict(params), ids, ids)
    text = traced.lower(lowering_platforms=('tpu',)).as_text()
  # One kernel forward and one backward in the loops over layers; recomputing runs the forward one again, unless what
  # it gave was kept.
  forward, backward = (re.findall(f'kernel_name = "splash_mha_{part}_segmented', text) for part in ('fwd', 'dkv'))
  assert len(forward) == (1 if remat in ('none', 'dots_and_attention') else 2)
  assert len(backward) == 1
  # Two of the eight rows and one of the two heads on each device, 64 wide.
  assert 'tensor<2x1x512x64xbf16>' in text
  assert 'tensor<8x2x512x512x' not in text
