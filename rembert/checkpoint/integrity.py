"""What a checkpoint says of itself, kept in its item `meta`, and whether that is still true."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from etils import epath

from rembert.checkpoint import checksums
from rembert.errors import RunError, UsageError, first_line

# Ours in `meta`, beside what the caller puts there.
_OWN = 'checkpoint'


class Damaged(Exception):
  """Something in a checkpoint is not as it was written."""


@dataclasses.dataclass(frozen=True)
class Description:
  """What a checkpoint says of itself; small.

  Attributes:
    step: updates made when it was saved.
    data: where the batch source stood; JSON.
    meta: what the state is a state of (model, data), and what the loop carries from step to step; JSON.
    is_temporary: to be deleted as soon as there is a newer one.
    arrays: dtype, shape and checksum of every array by path; None in a checkpoint that does not say.
  """

  step: int
  data: dict
  meta: dict
  is_temporary: bool
  arrays: dict[str, list] | None


def with_description(
  meta: Mapping, fields: Mapping, *, data: Mapping | None = None, is_temporary: bool = False
) -> dict:
  """`meta` with what `describe` reads and what is checked on restoring.

  Args:
    meta: JSON.
    fields: the item `state`. All processes call this; one writes what it gives.
    data: the item `data`; None if there is to be none.
    is_temporary: see `Description`.
  """
  sums = checksums.of_tree(fields)
  items = {'meta': meta} if data is None else {'meta': meta, 'data': data}
  own = {
    'is_temporary': is_temporary,
    'arrays': {name: [*described, sums[name]] for name, described in shapes(fields).items()},
    'json': {name: checksums.of_json(content) for name, content in items.items()},
  }
  return {**meta, _OWN: own}


def without_description(meta: Mapping) -> tuple[dict, dict[str, list]]:
  """`meta` as it was given, and dtype, shape and checksum of every array as far as it says them."""
  return {name: value for name, value in meta.items() if name != _OWN}, meta.get(_OWN, {}).get('arrays', {})


def describe(folder: epath.Path) -> Description:
  """Reads the description of the checkpoint in `folder`, whose name is its step; `Damaged` if it is not as written."""
  meta = read_json_item(folder, 'meta')
  own = meta.pop(_OWN, {})
  items = {'meta': meta, 'data': {}}
  # What was converted from elsewhere has no `data`, and says that it has none; what is older says nothing.
  if 'data' in own.get('json', {}) or (folder / 'data').exists():
    items['data'] = read_json_item(folder, 'data')
  for name, number in own.get('json', {}).items():
    if checksums.of_json(items[name]) != number:
      raise Damaged(f'the item `{name}` is not as it was written')
  if not (folder / 'state').is_dir():
    raise Damaged('the item `state` is missing')
  return Description(int(folder.name), items['data'], meta, own.get('is_temporary', False), own.get('arrays'))


def shapes(tree: Any) -> dict[str, tuple[str, list[int]]]:
  """Dtype and shape of every leaf by path."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {checksums.leaf_name(path): (np.dtype(leaf.dtype).name, list(leaf.shape)) for path, leaf in leaves}


def read_json_item(folder: epath.Path, item: str) -> dict:
  """An item that Orbax wrote as JSON; `Damaged` if it is not one.

  Without Orbax, whose handler starts JAX, and what a run begins with is looked at before its hosts have joined.
  """
  try:
    content = json.loads((folder / item / 'metadata').read_text())
  except FileNotFoundError:
    raise Damaged(f'the item `{item}` is missing') from None
  except (json.JSONDecodeError, UnicodeDecodeError):
    raise Damaged(f'the item `{item}` is no JSON') from None
  if not isinstance(content, dict):
    raise Damaged(f'the item `{item}` is no JSON object')
  return content


def refuse_other_state(arrays: dict[str, list], wanted: dict[str, tuple], folder: epath.Path) -> None:
  """Raises UsageError where the state has other arrays than the wanted one: no damage, but another optimizer."""
  differing = [f'{name} is missing' for name in wanted if name not in arrays]
  differing += [f'{name} has no place' for name in arrays if name not in wanted]
  differing += [
    f'{name} is {arrays[name][1]}, not {shape}'
    for name, (_, shape) in wanted.items()
    if name in arrays and arrays[name][1] != shape
  ]
  if differing:
    more = f' and {len(differing) - 3} more' if len(differing) > 3 else ''
    raise UsageError(
      'the checkpoint holds the state of another model or optimizer',
      where=f'{folder}: ' + '; '.join(differing[:3]) + more,
      fix=[
        'take the settings of optimizer.* that it was saved with',
        f'or begin a new run from its parameters: --workdir=DIR --gin.train.init_from={folder}',
      ],
    )


# What TensorStore, JAX and the clients of buckets say when nothing is wrong with the files.
_NOT_DAMAGE = re.compile(
  r'PERMISSION_DENIED|UNAVAILABLE|UNAUTHENTICATED|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|ABORTED|CANCELLED|Forbidden'
)


def is_damage(error: Exception) -> bool:
  """Whether files are wrong, rather than out of reach or too large for the memory."""
  elsewhere = (PermissionError, MemoryError, TimeoutError, ConnectionError, RunError)
  return not isinstance(error, elsewhere) and not _NOT_DAMAGE.search(str(error))


def in_one_line(error: Exception) -> str:
  """The first line of what an exception says, cut where it is long."""
  line = first_line(error)
  return line if len(line) <= 160 else f'{line[:160]}…'
