"""Tensors of a foreign checkpoint, checked against the name table and assembled into this project's parameters."""

import dataclasses
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from rembert.convert.tensor_names import Slot
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig


class Tensors(Protocol):
  """A checkpoint's tensors, read one at a time."""

  @property
  def shapes(self) -> Mapping[str, tuple[int, ...]]:
    """Of every tensor, by name."""
    ...

  def read(self, name: str) -> np.ndarray:
    """One tensor, float32."""
    ...


@dataclasses.dataclass(frozen=True)
class Resized:
  """`Tensors` some of which have other numbers of rows: the last ones are cut off, or new ones drawn.

  New rows of a table come from the initialiser that the table began with; new entries of a bias are zero.
  """

  tensors: Tensors
  rows: Mapping[str, int]
  initializer_range: float

  @property
  def shapes(self) -> dict[str, tuple[int, ...]]:
    """With the new numbers of rows."""
    shape_of = lambda name, shape: (self.rows.get(name, *shape[:1]), *shape[1:]) if shape else shape
    return {name: shape_of(name, shape) for name, shape in self.tensors.shapes.items()}

  def read(self, name: str) -> np.ndarray:
    """See `Tensors`."""
    tensor = self.tensors.read(name)
    rows = self.rows.get(name, len(tensor) if tensor.ndim else 0)
    if not tensor.ndim or rows <= len(tensor):
      return tensor[:rows] if tensor.ndim else tensor
    shape = (rows - len(tensor), *tensor.shape[1:])
    new = np.zeros(shape, np.float32) if tensor.ndim == 1 else _truncated_normal(name, shape, self.initializer_range)
    return np.concatenate([tensor, new])


def _truncated_normal(name: str, shape: tuple[int, ...], deviation: float) -> np.ndarray:
  """Cut at two standard deviations; the same for the same name."""
  import jax

  key = jax.random.fold_in(jax.random.key(0), zlib.crc32(name.encode()))
  return np.array(jax.random.truncated_normal(key, -2, 2, shape)) * np.float32(deviation)


@dataclasses.dataclass(frozen=True)
class Renamed:
  """`Tensors` under the names of the table, and only those that have one."""

  tensors: Tensors
  names: Mapping[str, str]

  @property
  def shapes(self) -> dict[str, tuple[int, ...]]:
    """By the new name."""
    return {name: tuple(self.tensors.shapes[old]) for name, old in self.names.items()}

  def read(self, name: str) -> np.ndarray:
    """See `Tensors`."""
    return self.tensors.read(self.names[name])


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
  wanted, found = {slot.name(form): slot for slot in slots}, tensors.shapes
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
      slot.put(leaf, tensors.read(name), form)
    on_progress(number / len(slots))
  return leaves


def _initial(slot: Slot, form: str, config: RemBertConfig) -> np.ndarray:
  shape = slot.shape_in(form)
  if slot.leaf.endswith('/scale'):
    return np.ones(shape, np.float32)
  if slot.leaf.endswith('/bias'):
    return np.zeros(shape, np.float32)
  return _truncated_normal(slot.leaf + str(slot.index), shape, config.initializer_range)
