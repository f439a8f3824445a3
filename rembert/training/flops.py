"""Floating-point operations of a step, counted by hand, and the peak of the device, for MFU.

XLA's own `cost_analysis` counts the body of the layer loop once, whatever the depth; hence the count here.
"""

import re

import jax
import jax.numpy as jnp

from rembert.model.config import RemBertConfig

# Dense peak in FLOP/s of one JAX device at bfloat16, from the vendors' data sheets; keys are the first words of
# `device_kind` (an `NVIDIA L40S` is no `NVIDIA L4`).
# A v4 or v5p device is a whole chip (megacore).
_PEAK_BF16 = {
  'TPU v2': 22.5e12,
  'TPU v3': 61.5e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5e': 197e12,
  'TPU v5': 459e12,
  'TPU v5p': 459e12,
  'TPU v6 lite': 918e12,
  'TPU v6e': 918e12,
  'NVIDIA A100': 312e12,
  'NVIDIA H100': 989e12,
  'NVIDIA H200': 989e12,
  'NVIDIA L4': 121e12,
}


def forward_flops_per_row(config: RemBertConfig, sequence_length: int, masked_positions: int) -> int:
  """Multiply-adds of all matrix products in one row's forward pass, counted as 2 operations each."""
  hidden, ffn = config.hidden_size, config.intermediate_size
  layer = 2 * sequence_length * (4 * hidden**2 + 2 * hidden * ffn) + 4 * sequence_length**2 * hidden
  projection = 2 * sequence_length * config.input_embedding_size * hidden if config.projects_embeddings else 0
  head = 2 * masked_positions * config.output_embedding_size * (hidden + config.vocab_size)
  return config.num_hidden_layers * layer + projection + head


def train_flops_per_row(config: RemBertConfig, sequence_length: int, masked_positions: int) -> int:
  """Forward and backward: the backward pass does each product twice. Recomputation (remat) is not counted."""
  return 3 * forward_flops_per_row(config, sequence_length, masked_positions)


def peak_flops_per_device() -> tuple[float, str] | None:
  """Peak FLOP/s of one device and where the figure comes from; None for an accelerator that the table lacks.

  A CPU has no data sheet worth quoting, so a large float32 product is timed there (under a second).
  """
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return _measured_matmul_flops() / jax.local_device_count(), 'measured float32 product'
  for prefix in sorted(_PEAK_BF16, key=len, reverse=True):
    if re.match(rf'{prefix}\b', device.device_kind):
      return _PEAK_BF16[prefix], f'{prefix}, bfloat16'
  return None


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
