"""Floating-point operations of a step, counted by hand, and the peak of the device, for MFU.

XLA's own `cost_analysis` counts the body of the layer loop once, whatever the depth; hence the count here.
"""

import jax
import jax.numpy as jnp

from rembert.model.config import RemBertConfig
from rembert.runtime.chips import chip_of


def forward_flops_per_row(
  config: RemBertConfig, sequence_length: int, masked_positions: int, *, last_queries: int | None = None
) -> int:
  """Multiply-adds of all matrix products in one row's forward pass, counted as 2 operations each.

  Where the last layer is trimmed (see `Execution`) it has `last_queries`, and of what is made of them as much; what is
  not computed is not counted. None is as many as everywhere.
  """
  hidden, ffn = config.hidden_size, config.intermediate_size

  def layer(queries: int) -> int:
    keys_and_values, of_queries = 2 * hidden**2, 2 * hidden**2 + 2 * hidden * ffn
    return 2 * (sequence_length * keys_and_values + queries * of_queries) + 4 * queries * sequence_length * hidden

  layers = config.num_hidden_layers * layer(sequence_length)
  if last_queries is not None and config.num_hidden_layers:
    layers += layer(last_queries) - layer(sequence_length)
  projection = 2 * sequence_length * config.input_embedding_size * hidden if config.projects_embeddings else 0
  head = 2 * masked_positions * config.output_embedding_size * (hidden + config.vocab_size)
  return layers + projection + head


def train_flops_per_row(
  config: RemBertConfig, sequence_length: int, masked_positions: int, *, last_queries: int | None = None
) -> int:
  """Forward and backward: the backward pass does each product twice. Recomputation (remat) is not counted."""
  return 3 * forward_flops_per_row(config, sequence_length, masked_positions, last_queries=last_queries)


def peak_flops_per_device() -> tuple[float, str] | None:
  """Peak FLOP/s of one device and where the figure comes from; None for an accelerator that the table lacks.

  A CPU has no data sheet worth quoting, so a large float32 product is timed there (under a second).
  """
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return _measured_matmul_flops() / jax.local_device_count(), 'measured float32 product'
  found = chip_of(device.device_kind)
  return found and (found[1].bf16_flops, f'{found[0]}, bfloat16')


def _measured_matmul_flops(size: int = 1536, repeats: int = 3) -> float:
  import time

  x = jnp.ones((size, size), jnp.float32)
  product = jax.jit(jnp.matmul)
  product(x, x).block_until_ready()
  seconds = []
  for _ in range(repeats):
    start = time.perf_counter()
    product(x, x).block_until_ready()
    seconds.append(time.perf_counter() - start)
  return 2 * size**3 / min(seconds)
