"""Faster versions of the operations of `rembert.model`, and their choice by platform and `Execution`.

`cpu` has the operations with hand-written gradients; `cudnn` and `splash` are fused attention kernels. Each has the
signature of the reference in `rembert.model`, and one test compares it with that.
"""

import dataclasses
import functools

from rembert.errors import UsageError
from rembert.kernels import cpu, cudnn, splash
from rembert.kernels.cpu import platform, product, sum_of_rows
from rembert.model.attention import Visibility
from rembert.model.config import Execution
from rembert.model.operations import Operations
from rembert.runtime.hardware import multiplies_bfloat16

__all__ = ['AUTO', 'CPU', 'TABLES', 'check_backend', 'operations', 'platform', 'product', 'sum_of_rows']

# Each function uses its fast form if the traced code will run on a CPU.
AUTO = Operations(
  affine=cpu.affine,
  layer_norm=cpu.layer_norm,
  gelu=cpu.gelu,
  logits=cpu.logits,
  attention=cpu.attention,
  run_layers=cpu.run_layers,
  choose_unroll=cpu.choose_unroll,
)
# The fast forms on any device.
CPU = dataclasses.replace(
  AUTO,
  affine=functools.partial(cpu.affine, fast=True),
  logits=functools.partial(cpu.logits, fast=True),
  attention=functools.partial(cpu.attention, fast=True),
  choose_unroll=functools.partial(cpu.choose_unroll, fast=True),
)
TABLES = {'auto': AUTO, 'reference': Operations(), 'cpu': CPU}  # by `Execution.kernels`

# Fused kernels by `Execution.attention`: the function, its platform, and the divisor of the sequence length
# (for cuDNN's backward pass with a mask; the lanes of a TPU's registers).
FUSED = {'cudnn': (cudnn.attention, 'gpu', 2), 'splash': (splash.attention, 'tpu', 128)}


def operations(execution: Execution) -> Operations:
  """The operations for `Execution.kernels`, with the attention for `Execution.attention`."""
  return _operations(execution.kernels, execution.attention)


def resolve_dtype(execution: Execution, platform: str) -> Execution:
  """`execution` with `auto` replaced by the dtype in which devices of this platform multiply fastest."""
  if execution.dtype != 'auto':
    return execution
  is_fast = platform != 'cpu' or multiplies_bfloat16()
  return dataclasses.replace(execution, dtype='bfloat16' if is_fast else 'float32')


@functools.cache  # so that equal choices give equal tables, and models compare equal
def _operations(kernels: str, backend: str) -> Operations:
  ops = TABLES[kernels]
  if backend not in FUSED:
    return ops
  attend = functools.partial(_attend_fused, backend, ops.attention)
  whole = functools.partial(splash.self_attention, attend=attend) if backend == 'splash' else None
  return dataclasses.replace(ops, attention=attend, self_attention=whole)


def _attend_fused(backend, unfused, query, key, value, visibility=Visibility(), positions=None, **dropout):
  """Attention of whole sequences by a fused kernel. At given positions it is `unfused`: K queries have few weights.

  Kernels mask by segments alone: every position sees its own segment, padding (segment 0) included. So no position sees
  nothing, and the result of a kernel for an empty sequence does not matter. Padding gets other values than from
  `rembert.model.attention.attention`, which are never read; tokens get the same.

  Raises:
    UsageError: the kernel does not run on these devices, or not for this sequence length.
    ValueError: dropout is set, which kernels do not support (`Execution.check_model` rejects it before).
  """
  if positions is not None:
    return unfused(query, key, value, visibility, positions, **dropout)
  if dropout.get('dropout_rate') and dropout.get('dropout_key') is not None:
    raise ValueError(f'{backend} attention does not support dropout')
  check_backend(backend, platform=platform(), sequence_length=query.shape[1])
  return FUSED[backend][0](query, key, value, visibility.segment_ids_BxS)


def check_backend(backend: str, *, platform: str, sequence_length: int) -> None:
  """UsageError if a backend of `Execution.attention` does not support these devices or this sequence length."""
  if backend not in FUSED:
    return
  _, needed, multiple = FUSED[backend]
  if platform != needed:
    raise UsageError(
      f'{backend} attention is a kernel for the {needed.upper()}; these devices are {platform}',
      where=f'execution.attention = {backend!r}',
      fix='--gin.execution.attention=einsum, which runs everywhere',
    )
  if sequence_length % multiple:
    longer = sequence_length + -sequence_length % multiple
    raise UsageError(
      f'{backend} attention requires a sequence length that is a multiple of {multiple}, not {sequence_length}',
      where=f'execution.attention = {backend!r}',
      fix=f'use a sequence length of {longer}, or --gin.execution.attention=einsum',
    )
