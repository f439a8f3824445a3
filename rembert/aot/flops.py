"""FLOPs of a step, by formula and from the traced program; peak FLOP/s of the device; heap size of a step on a CPU.

XLA's own `cost_analysis` counts the body of the layer loop once, whatever the depth; hence the counts here.
"""

import math
import timeit

import jax
import jax.numpy as jnp
from jax.extend import core

from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.runtime.hardware import chip_of

# Upper bound including fragmentation. Observed with 194M parameters, 12 layers of 768 and 1,024 tokens: 6.7 to 12 GB;
# this rule gives 10 GB. 5.6 GB if the heap returns memory to the OS.
_HEAP_BYTES_PER_PARAMETER = 32
_HEAP_BYTES_PER_ACTIVATION = 400  # token × layer × H

PASSES_OF_TRAINING = 3  # FLOPs of a training step relative to its forward pass: each factor of a matmul has a gradient


def heap_bytes(config: RemBertConfig, tokens: int) -> int:
  """Size in bytes of a heap that keeps the memory of training steps on a CPU; `tokens` per micro-batch."""
  activations = tokens * config.num_hidden_layers * config.hidden_size
  return _HEAP_BYTES_PER_PARAMETER * count_parameters(config).pre_training + _HEAP_BYTES_PER_ACTIVATION * activations


def forward_flops_per_row(
  config: RemBertConfig, sequence_length: int, masked_positions: int, *, last_queries: int | None = None
) -> int:
  """FLOPs of all matmuls in the forward pass of one sequence; a multiply-add counts as 2.

  If the last layer is trimmed (see `Execution`), it computes `last_queries` positions, and the others do not count;
  None counts all positions.
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
  """FLOPs of forward and backward pass; recomputation (remat) is not counted."""
  return PASSES_OF_TRAINING * forward_flops_per_row(
    config, sequence_length, masked_positions, last_queries=last_queries
  )


def traced_flops(jaxpr: core.Jaxpr) -> int:
  """FLOPs of all matmuls over all devices, recomputation and padding included; a multiply-add counts as 2.

  Unlike `train_flops_per_row` this includes what the backward pass recomputes, which the traced program contains under
  any remat policy. A loop's body counts as often as it runs.

  Of several branches the most expensive counts; the body of a kernel counts once per cell of its grid. Matrix-vector
  products do not count: the gradient of a bias is a sum, written as one.
  """
  total = 0
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    if name == 'dot_general':
      total += _product_flops(equation)
    elif name == 'cond':
      total += max(traced_flops(branch.jaxpr) for branch in params['branches'])
    elif name == 'pallas_call':
      total += math.prod(params['grid_mapping'].grid) * traced_flops(params['jaxpr'])
    else:
      times = params['mesh'].size if name == 'shard_map' else params.get('length', 1) if name == 'scan' else 1
      total += times * sum(traced_flops(inner) for inner in _inner(params))
  return total


def _product_flops(equation) -> int:
  if any(operand.aval.ndim < 2 for operand in equation.invars):
    return 0
  (contracted, _), _ = equation.params['dimension_numbers']
  depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
  return 2 * depth * math.prod(equation.outvars[0].aval.shape)


def _inner(params: dict):
  for value in params.values():
    inner = getattr(value, 'jaxpr', value)
    if hasattr(inner, 'eqns'):
      yield inner


def peak_flops_per_device() -> tuple[float, str] | None:
  """Peak FLOP/s of one device and the source of the figure; None for an unknown accelerator.

  On a CPU a large float32 matmul is timed (under a second).
  """
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return _measured_matmul_flops() / jax.local_device_count(), 'measured float32 matmul'
  found = chip_of(device.device_kind)
  return found and (found[1].bf16_flops, f'{found[0]}, bfloat16')


def _measured_matmul_flops(size: int = 1536, repeats: int = 3) -> float:
  x = jnp.ones((size, size), jnp.float32)
  product = jax.jit(jnp.matmul)
  product(x, x).block_until_ready()
  return 2 * size**3 / min(timeit.repeat(lambda: product(x, x).block_until_ready(), number=1, repeat=repeats))
