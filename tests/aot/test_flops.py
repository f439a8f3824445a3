"""The count of operations against matrix products written out, the traced program, and XLA's own count."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.settings import BASE
from rembert.aot import flops
from rembert.kernels.fused_attention import splash_attention
from rembert.model.config import Execution, RemBertConfig
from rembert.model.heads import build_model
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, make_mesh
from rembert.train.state import masked_lm
from rembert.train.step import make_train_step, masked_lm_sums

XLA_TOLERANCE = 0.05  # XLA counts additions, LayerNorm and softmax too
ONE_LAYER = RemBertConfig(
  vocab_size=512,
  input_embedding_size=64,
  output_embedding_size=192,
  hidden_size=128,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=512,
)


def counted(function, *arguments) -> int:
  """Of the traced program; see `test_loops_branches_and_calls_are_followed`."""
  return flops.traced_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def test_forward_is_two_operations_for_every_product_of_a_matrix_element(tiny):
  # tiny: I 8, H 16, L 2, N 4 (D 4), F 32, E 24, V 60; S 12, K 5.
  layer = [(12, 16, 16)] * 4  # query, key, value, output
  layer += [(12, 4, 12), (12, 12, 4)] * 4  # scores and weighted values, of each head
  layer += [(12, 16, 32), (12, 32, 16)]  # up, down
  head = [(5, 16, 24), (5, 24, 60)]  # transform, output embedding
  products = [(12, 8, 16), *layer, *layer, *head]
  assert flops.forward_flops_per_row(tiny, 12, 5) == sum(2 * m * k * n for m, k, n in products)


def test_a_trimmed_last_layer_has_queries_at_masked_positions_only(tiny):
  whole = [(12, 16, 16)] * 4 + [(12, 4, 12), (12, 12, 4)] * 4 + [(12, 16, 32), (12, 32, 16)]
  last = [(12, 16, 16)] * 2  # key, value
  last += [(5, 16, 16)] * 2  # query, output
  last += [(5, 4, 12), (5, 12, 4)] * 4
  last += [(5, 16, 32), (5, 32, 16)]
  saved = sum(2 * m * k * n for m, k, n in whole) - sum(2 * m * k * n for m, k, n in last)
  trimmed = flops.forward_flops_per_row(tiny, 12, 5, last_queries=5)
  assert flops.forward_flops_per_row(tiny, 12, 5) - trimmed == saved
  no_layers = dataclasses.replace(tiny, num_hidden_layers=0)
  without = [flops.forward_flops_per_row(no_layers, 12, 5, last_queries=queries) for queries in (None, 5)]
  assert without[0] == without[1]


def test_neither_a_missing_projection_nor_padding_of_the_vocabulary_is_counted(tiny):
  count = lambda **fields: flops.forward_flops_per_row(dataclasses.replace(tiny, **fields), 12, 5)
  assert count() - count(input_embedding_size=16) == 2 * 12 * 8 * 16
  assert count() == count(pad_vocab_to_multiple_of=1024)


@pytest.mark.parametrize(('layers', 'trim'), [(3, False), (1, True)])
def test_the_traced_program_holds_these_products_and_no_others(trainable, tiny, packed_batch, layers, trim):
  # 64 pieces: no padding rows, which the program multiplies and the count leaves out.
  config = dataclasses.replace(tiny, num_hidden_layers=layers, vocab_size=64)
  described, batch = trainable(config=config, execution=Execution(trim_last_layer=trim)), packed_batch(0)
  loss = lambda params: masked_lm_sums(described.graphdef, params, batch).loss
  params = described.abstract_state.params
  last_queries = 4 if trim else None
  assert counted(loss, params) == 16 * flops.forward_flops_per_row(config, 12, 4, last_queries=last_queries)
  assert counted(jax.value_and_grad(loss), params) == 16 * flops.train_flops_per_row(
    config, 12, 4, last_queries=last_queries
  )


@pytest.mark.parametrize('trim', [False, True], ids=['whole layers', 'trimmed'])
def test_a_classifier_looks_at_the_first_position_alone(tiny, trim):
  execution = Execution(trim_last_layer=trim)
  build = lambda: build_model('classification', tiny, execution, num_labels=3, rngs=nnx.Rngs(0))
  found = counted(lambda ids: build()(ids).logits, jnp.zeros((16, 12), jnp.int32))
  encoder = flops.forward_flops_per_row(tiny, 12, 0, last_queries=1 if trim else None)
  assert found == 16 * (encoder + 2 * 16 * 16 + 2 * 16 * 3)  # pooler, labels


def test_xla_counts_the_same_within_what_is_no_matrix_product(trainable):
  # One layer: XLA counts the body of a loop once.
  described = trainable(config=ONE_LAYER)
  rows, length, slots = 2, 128, 32
  batch = {name: np.zeros((rows, length), np.int32) for name in ('input_ids', 'segment_ids', 'position_ids')}
  batch |= {name: np.zeros((rows, slots), np.int32) for name in ('masked_positions', 'targets', 'weights')}
  forward = jax.jit(lambda params: masked_lm_sums(described.graphdef, params, batch))
  by_xla = forward.lower(described.abstract_state.params).compile().cost_analysis()['flops']
  assert by_xla == pytest.approx(rows * flops.forward_flops_per_row(ONE_LAYER, length, slots), rel=XLA_TOLERANCE)


# --- peaks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('kind', 'peak'),
  [
    ('TPU v4', 275e12),
    ('TPU v5 lite', 197e12),
    ('TPU v5', 459e12),
    ('TPU v6 lite', 918e12),
    ('NVIDIA H100 80GB HBM3', 989e12),
    ('NVIDIA L4', 121e12),
    ('NVIDIA GeForce RTX 4090', None),
  ],
)
def test_the_peak_is_that_of_the_data_sheet_if_there_is_one(monkeypatch, kind, peak):
  monkeypatch.setattr(jax, 'devices', lambda: [types.SimpleNamespace(platform='accelerator', device_kind=kind)])
  value, source = flops.peak_flops_per_device() or (None, '')
  assert value == peak
  assert kind.startswith(source.removesuffix(', bfloat16'))


def test_the_peak_of_a_cpu_is_measured_and_shared_by_its_devices(monkeypatch):
  measured = flops._measured_matmul_flops(size=256, repeats=2)
  assert 1e8 < measured < 1e14
  monkeypatch.setattr(flops, '_measured_matmul_flops', lambda: 8e9)
  assert flops.peak_flops_per_device() == (1e9, 'measured float32 matmul')


# --- traced programs --------------------------------------------------------------------------------------------------


def test_loops_branches_and_calls_are_followed():
  x = jnp.ones((4, 4))
  product = 2 * 4**3
  assert counted(lambda x: x @ x, x) == product
  assert counted(lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0], x) == 5 * product
  branches = [lambda x: x, lambda x: x @ x, lambda x: x @ x @ x]
  assert counted(lambda x: jax.lax.switch(1, branches, x), x) in (product, 2 * product)
  assert counted(jax.jit(lambda x: jax.checkpoint(lambda x: x @ x)(x)), x) == product


def test_a_product_with_a_vector_is_a_sum():
  assert counted(lambda x: x @ jnp.ones(4), jnp.ones((4, 4))) == 0


def test_a_step_does_what_the_model_asks_for_and_with_full_remat_the_layers_forward_once_more(tiny, packed_batch):
  config = dataclasses.replace(tiny, vocab_size=64, pad_vocab_to_multiple_of=64)  # no padding rows to multiply
  without_layers = dataclasses.replace(config, num_hidden_layers=0)
  layers = flops.forward_flops_per_row(config, 12, 4) - flops.forward_flops_per_row(without_layers, 12, 4)
  once = step_flops(config, 'none', packed_batch, accumulation_steps=2)
  assert once == 16 * flops.train_flops_per_row(config, 12, 4)
  assert step_flops(config, 'full', packed_batch) - once == 16 * layers


def step_flops(config, remat, packed_batch, accumulation_steps=1) -> int:
  mesh = make_mesh(MeshConfig(), jax.devices()[:1])
  optimizer = make_optimizer(OptimizerConfig(), total_steps=8)
  described = masked_lm(config, Execution(remat=remat), optimizer, mesh)
  step = make_train_step(described, accumulation_steps=accumulation_steps)
  with jax.set_mesh(described.mesh):
    return flops.traced_flops(step.trace(described.restore_target(), packed_batch(0), None).jaxpr.jaxpr)


def test_a_kernel_counts_once_for_each_cell_of_its_grid():
  rows = jnp.ones((2, 256, 3, 64))
  attend = lambda x: splash_attention(x, x, x, jnp.ones((2, 256), jnp.int32), interpret=True)
  assert counted(attend, rows) == 2 * 3 * (2 * 2 * 256 * 256 * 64)


def test_a_heap_is_as_large_as_what_was_seen_of_a_base_step():
  assert 6.7e9 < flops.heap_bytes(BASE, 1024) < 12e9
  assert flops.heap_bytes(BASE, 4096) - flops.heap_bytes(BASE, 1024) == 3 * (
    flops.heap_bytes(BASE, 2048) - flops.heap_bytes(BASE, 1024)
  )
