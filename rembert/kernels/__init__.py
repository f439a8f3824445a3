"""Faster versions of the operations of `rembert.model`, and their choice by platform and `Execution`.

`cpu` has the operations with hand-written gradients, `fused_attention` the kernels of accelerators. Each has the
signature of the reference in `rembert.model`, and one test compares it with that.
"""

import dataclasses
import functools

from rembert.kernels import cpu
from rembert.kernels.cpu import platform, product, sum_of_rows
from rembert.kernels.fused_attention import check_backend, fused_attention, splash_self_attention
from rembert.model.attention import attention
from rembert.model.config import Execution
from rembert.model.layers import Operations
from rembert.runtime.hardware import multiplies_bfloat16

__all__ = ['TABLES', 'check_backend', 'operations', 'platform', 'product', 'resolve_dtype', 'sum_of_rows']

# By `Execution.kernels`. Each function of `auto` uses its fast form if the traced code will run on a CPU.
TABLES = {
  'auto': Operations(
    affine=cpu.affine,
    layer_norm=cpu.layer_norm,
    gelu=cpu.gelu,
    logits=cpu.logits,
    attention=cpu.attention,
    run_layers=cpu.run_layers,
    choose_unroll=cpu.choose_unroll,
  ),
  'reference': Operations(),
}


@functools.cache  # so that equal choices give equal tables, and models compare equal
def operations(kernels: str, backend: str) -> Operations:
  """The operations for `Execution.kernels`, with the attention for `Execution.attention`."""
  ops = TABLES[kernels]
  if backend == 'einsum':
    return ops
  attend = functools.partial(fused_attention, backend, ops.attention or attention)
  whole = functools.partial(splash_self_attention, attend=attend) if backend == 'splash' else None
  return dataclasses.replace(ops, attention=attend, self_attention=whole)


def resolve_dtype(execution: Execution, platform: str) -> Execution:
  """`execution` with `auto` replaced by the dtype in which devices of this platform multiply fastest."""
  if execution.dtype != 'auto':
    return execution
  is_fast = platform != 'cpu' or multiplies_bfloat16()
  return dataclasses.replace(execution, dtype='bfloat16' if is_fast else 'float32')
