"""Faster versions of what `rembert.model` computes, and the choice among them: by platform and by `Execution`.

`cpu` has the operations with their gradients written out; `cudnn` and `splash` are fused kernels of attention. Each has
the signature of the plain function in `rembert.model`, and is compared with it by one test.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax

from rembert.errors import UsageError
from rembert.kernels import cpu, cudnn, splash
from rembert.model.attention import Visibility
from rembert.model.config import Execution
from rembert.model.operations import Operations

# --- by platform ------------------------------------------------------------------------------------------------------


def platform() -> str:
  """`cpu`, `gpu` or `tpu`: what is traced now will run there. With a mesh, its devices; they need not be here."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


# On a CPU.
CPU = Operations(
  affine=cpu.affine,
  layer_norm=cpu.layer_norm,
  gelu=cpu.gelu,
  logits=cpu.logits,
  attention=cpu.attention,
  run_layers=cpu.run_layers,
  choose_unroll=cpu.choose_unroll,
)
# On GPUs and TPUs: the same gradients, and products of activations in one line of rows.
ACCELERATOR = dataclasses.replace(
  CPU,
  affine=functools.partial(cpu.affine, fast=False),
  logits=functools.partial(cpu.logits, fast=False),
  attention=functools.partial(cpu.attention, fast=False),
  choose_unroll=Operations().choose_unroll,
)


def _by_platform(name: str) -> Callable:
  """An operation that is chosen when it is traced: only then is it known for which devices."""

  def operation(*arguments, **options):
    return getattr(CPU if platform() == 'cpu' else ACCELERATOR, name)(*arguments, **options)

  return operation


_CHOSEN = ('affine', 'layer_norm', 'gelu', 'logits', 'attention', 'run_layers', 'choose_unroll')
TABLES = {'auto': Operations(**{name: _by_platform(name) for name in _CHOSEN}), 'reference': Operations(), 'cpu': CPU}


def product(formula: str, lhs: jax.Array, rhs: jax.Array, dtype: jax.numpy.dtype) -> jax.Array:
  """`rembert.kernels.cpu.product` in the form for these devices."""
  return cpu.product(formula, lhs, rhs, dtype, fast=platform() == 'cpu')


def sum_of_rows(x_RxC: jax.Array) -> jax.Array:
  """`rembert.kernels.cpu.sum_of_rows` in the form for these devices."""
  return cpu.sum_of_rows(x_RxC, fast=platform() == 'cpu')


# --- by Execution -----------------------------------------------------------------------------------------------------

FUSED = {'cudnn': cudnn.attention, 'splash': splash.attention}
_PLATFORM = {'cudnn': 'gpu', 'splash': 'tpu'}
_LENGTH_MULTIPLE = {'cudnn': 2, 'splash': 128}  # cuDNN's backward pass with a mask; the lanes of a TPU's registers


def operations(execution: Execution) -> Operations:
  """The table of `Execution.kernels`, with the attention of `Execution.attention`."""
  return _operations(execution.kernels, execution.attention)


@functools.cache  # models that compute alike have tables that are equal
def _operations(kernels: str, backend: str) -> Operations:
  ops = TABLES[kernels]
  if backend == 'einsum':
    return ops
  attend = functools.partial(_attend_fused, backend, ops.attention)
  whole = functools.partial(splash.self_attention, attend=attend) if backend == 'splash' else None
  return dataclasses.replace(ops, attention=attend, self_attention=whole)


def _attend_fused(backend, written_out, query, key, value, visibility=Visibility(), positions=None, **dropout):
  """Attention of whole rows by a kernel. At positions it is written out: K queries have few weights to keep.

  Kernels are told who sees whom by segments alone: every position sees its own segment, padding (segment 0) included.
  So no position sees nothing, and it does not matter what a kernel makes of an empty row. What padding gets is then not
  what `rembert.model.attention.attention` gives it; tokens get the same, and nobody looks at padding.

  Raises:
    UsageError: the kernel does not run on these devices, or not for rows of this length.
    ValueError: for dropout, which kernels have not. `Execution.check_model` tells a user of it before.
  """
  if positions is not None:
    return written_out(query, key, value, visibility, positions, **dropout)
  if dropout.get('dropout_rate') and dropout.get('dropout_key') is not None:
    raise ValueError(f'{backend} attention drops no weights')
  check_backend(backend, platform=platform(), sequence_length=query.shape[1])
  return FUSED[backend](query, key, value, visibility.segment_ids_BxS)


def check_backend(backend: str, *, platform: str, sequence_length: int) -> None:
  """UsageError where a backend of `Execution.attention` has no kernel for these devices, or for rows of this length."""
  needed, multiple = _PLATFORM.get(backend, platform), _LENGTH_MULTIPLE.get(backend, 1)
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
