"""Faster versions of what `rembert.model` computes, and the choice among them: by platform and by `Execution`.

`cpu` has the operations with hand-written gradients; `cudnn` and `splash` are fused attention kernels. Each has the
signature of the plain function in `rembert.model`, and one test compares it with that function.
"""

import dataclasses
import functools

from rembert.errors import UsageError
from rembert.kernels import cpu, cudnn, splash
from rembert.kernels.cpu import platform, product, sum_of_rows
from rembert.model.attention import Visibility
from rembert.model.config import Execution
from rembert.model.operations import Operations

__all__ = ['AUTO', 'CPU', 'TABLES', 'check_backend', 'operations', 'platform', 'product', 'sum_of_rows']

# Each function takes its fast form where the code being traced will run on a CPU.
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

# Fused kernels by `Execution.attention`: the function, its platform, and what the length of a row is a multiple of
# (for cuDNN's backward pass with a mask; the lanes of a TPU's registers).
FUSED = {'cudnn': (cudnn.attention, 'gpu', 2), 'splash': (splash.attention, 'tpu', 128)}


def operations(execution: Execution) -> Operations:
  """The table of `Execution.kernels`, with the attention of `Execution.attention`."""
  return _operations(execution.kernels, execution.attention)


@functools.cache  # equal choices give equal tables, so that models compare equal
def _operations(kernels: str, backend: str) -> Operations:
  ops = TABLES[kernels]
  if backend not in FUSED:
    return ops
  attend = functools.partial(_attend_fused, backend, ops.attention)
  whole = functools.partial(splash.self_attention, attend=attend) if backend == 'splash' else None
  return dataclasses.replace(ops, attention=attend, self_attention=whole)


def _attend_fused(backend, unfused, query, key, value, visibility=Visibility(), positions=None, **dropout):
  """Attention of whole rows by a fused kernel. At positions it is `unfused`: K queries have few weights to keep.

  Kernels mask by segments alone: every position sees its own segment, padding (segment 0) included. So no position sees
  nothing, and what a kernel returns for an empty row does not matter. Padding gets other values than from
  `rembert.model.attention.attention`, which nothing reads; tokens get the same.

  Raises:
    UsageError: the kernel does not run on these devices, or not for rows of this length.
    ValueError: for dropout, which kernels do not support (`Execution.check_model` refuses it before).
  """
  if positions is not None:
    return unfused(query, key, value, visibility, positions, **dropout)
  if dropout.get('dropout_rate') and dropout.get('dropout_key') is not None:
    raise ValueError(f'{backend} attention drops no weights')
  check_backend(backend, platform=platform(), sequence_length=query.shape[1])
  return FUSED[backend][0](query, key, value, visibility.segment_ids_BxS)


def check_backend(backend: str, *, platform: str, sequence_length: int) -> None:
  """UsageError if a backend of `Execution.attention` has no kernel for these devices, or for rows of this length."""
  if backend not in FUSED:
    return
  _, needed, multiple = FUSED[backend]
  if platform != needed:
    raise UsageError(
      f'{backend} attention is a kernel for the {needed.upper()}, and these devices are {platform}',
      where=f'execution.attention = {backend!r}',
      fix='--gin.execution.attention=einsum, which runs everywhere',
    )
  if sequence_length % multiple:
    longer = sequence_length + -sequence_length % multiple
    raise UsageError(
      f'{backend} attention needs rows of a multiple of {multiple} tokens, not {sequence_length}',
      where=f'execution.attention = {backend!r}',
      fix=f'rows of {longer} tokens, or --gin.execution.attention=einsum',
    )
