"""Tensors of a foreign checkpoint, checked against the name table and assembled into this project's parameters."""

import dataclasses
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from rembert.convert.tensor_names import Slot
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, not yet read.

  Attributes:
    shape: as the checkpoint has it.
    read: gives it, float32.
  """

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


# A checkpoint, by name.
Tensors = Mapping[str, Tensor]


def resized(name: str, tensor: Tensor, rows: int, initializer_range: float) -> Tensor:
  """The tensor with another number of rows: the last ones are cut off, or new ones drawn.

  New rows of a table come from the initialiser that the table began with; new entries of a bias are zero.
  """
  if not tensor.shape:
    return tensor

  def read() -> np.ndarray:
    old = tensor.read()
    if rows <= len(old):
      return old[:rows]
    shape = (rows - len(old), *old.shape[1:])
    new = np.zeros(shape, np.float32) if old.ndim == 1 else _truncated_normal(name, shape, initializer_range)
    return np.concatenate([old, new])

  return Tensor((rows, *tensor.shape[1:]), read)


def _truncated_normal(name: str, shape: tuple[int, ...], deviation: float) -> np.ndarray:
  """Cut at two standard deviations; the same for the same name."""
  import jax

  key = jax.random.fold_in(jax.random.key(0), zlib.crc32(name.encode()))
  return np.array(jax.random.truncated_normal(key, -2, 2, shape)) * np.float32(deviation)


def check(
  tensors: Tensors,
  slots: Sequence[Slot],
  form: str,
  *,
  where: str,
  allow_missing: bool = False,
  allow_unexpected: bool = False,
) -> tuple[list[str], list[str]]:
  """What the model wants and the checkpoint lacks, and what the checkpoint has and the model does not want.

  Args:
    tensors: the checkpoint.
    slots: the model.
    form: `hugging_face` or `tensorflow`.
    where: path of the checkpoint, for the error.
    allow_missing: return the missing names rather than refuse them.
    allow_unexpected: the same for unexpected ones.

  Raises:
    UsageError: anything missing or unexpected that is not allowed, or of another shape.
  """
  wanted = {slot.name(form): slot for slot in slots}
  found = {name: tensor.shape for name, tensor in tensors.items()}
  missing = [name for name in wanted if name not in found]
  unexpected = [name for name in found if name not in wanted]
  misshaped = {
    name: f'{name} is {list(found[name])}, not {list(slot.shape_in(form))}'
    for name, slot in wanted.items()
    if name in found and found[name] != slot.shape_in(form)
  }
  complaints, fixes = [], []
  if misshaped:
    complaints.append(_listed('of another shape', list(misshaped.values())))
    fixes.append('check the configuration beside the checkpoint')
    if any(wanted[name].has_row_per_piece for name in misshaped):
      fixes.append('--input_vocab_size=N and --output_vocab_size=N cut or extend the two tables')
  if missing and not allow_missing:
    complaints.append(_listed('missing', missing))
    fixes.append('--allow_missing draws them anew')
  if unexpected and not allow_unexpected:
    complaints.append(_listed('unexpected', unexpected))
    fixes.append('--allow_unexpected leaves them out')
  if complaints:
    raise UsageError('the checkpoint and the model do not fit\n  ' + '\n  '.join(complaints), where=where, fix=fixes)
  return missing, unexpected


_LISTED = 12


def _listed(what: str, names: Sequence[str]) -> str:
  rest = f'\n    … and {len(names) - _LISTED} more' if len(names) > _LISTED else ''
  return f'{what} ({len(names)})\n    ' + '\n    '.join(names[:_LISTED]) + rest


def assemble(
  tensors: Tensors,
  slots: Sequence[Slot],
  form: str,
  *,
  shapes: Mapping[str, tuple[int, ...]],
  missing: Collection[str],
  config: RemBertConfig,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, np.ndarray]:
  """This project's parameters by path, float32; in memory are they and one tensor of the checkpoint.

  Args:
    tensors: the checkpoint, checked.
    slots: the model.
    form: `hugging_face` or `tensorflow`.
    shapes: of the parameters by path.
    missing: names to draw anew: kernels and tables from the initialiser, biases 0, LayerNorm scales 1.
    config: of the model.
    on_progress: told the share of the tensors that are done.
  """
  leaves = {}
  for number, slot in enumerate(slots, 1):
    leaf = leaves.get(slot.leaf)
    if leaf is None:
      leaf = leaves[slot.leaf] = np.zeros(shapes[slot.leaf], np.float32)
    name = slot.name(form)
    if name in missing:
      slot.put(leaf, _initial(slot, form, config), form)
    else:
      slot.put(leaf, tensors[name].read(), form)
    on_progress(number / len(slots))
  return leaves


def _initial(slot: Slot, form: str, config: RemBertConfig) -> np.ndarray:
  shape = slot.shape_in(form)
  if slot.leaf.endswith('/scale'):
    return np.ones(shape, np.float32)
  if slot.leaf.endswith('/bias'):
    return np.zeros(shape, np.float32)
  return _truncated_normal(slot.leaf + str(slot.index), shape, config.initializer_range)
