"""Descriptions of checkpoints (their item `meta`), with checksums that detect silent corruption.

Checksums are of the bits of arrays, equal on every device, mesh and host. Arrays are summed on their devices when a
checkpoint is saved, and again after restoring. So no file is read twice, network transfers are covered too, and all
hosts obtain the same result.
"""

import dataclasses
import functools
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from rembert.errors import RunError, UsageError, first_line

_OWN = 'checkpoint'  # ours in `meta`, next to the caller's


class Corrupt(Exception):
  """A checkpoint is corrupt: its content differs from what was saved."""


@dataclasses.dataclass(frozen=True)
class Description:
  """The description of a checkpoint, which is small."""

  step: int  # number of updates when it was saved
  data: dict  # position in the input stream; JSON
  meta: dict  # identity of the state (model, data), and values that the loop carries from step to step; JSON
  is_temporary: bool  # to be deleted as soon as there is a newer one
  arrays: dict[str, list] | None  # dtype, shape and checksum of every array by path; None in a checkpoint without them


def with_description(
  meta: Mapping, fields: Mapping, *, data: Mapping | None = None, is_temporary: bool = False
) -> dict:
  """Adds to `meta` what `describe` reads and restoring verifies, of the items `state` (`fields`) and `data`.

  All processes call this; one writes the result.
  """
  sums = tree_checksums(fields)
  items = {'meta': meta} if data is None else {'meta': meta, 'data': data}
  own = {
    'is_temporary': is_temporary,
    'arrays': {name: [*described, sums[name]] for name, described in shapes(fields).items()},
    'json': {name: json_checksum(content) for name, content in items.items()},
  }
  return {**meta, _OWN: own}


def without_description(meta: Mapping) -> tuple[dict, dict[str, list]]:
  """Splits `meta` into the part that was given, and dtype, shape and checksum of every array, if known."""
  return {name: value for name, value in meta.items() if name != _OWN}, meta.get(_OWN, {}).get('arrays', {})


def describe(folder: epath.Path) -> Description:
  """Reads the description of the checkpoint in `folder`, whose name is its step; raises `Corrupt` if it was altered."""
  meta = read_json_item(folder, 'meta')
  own = meta.pop(_OWN, {})
  items = {'meta': meta, 'data': {}}
  # A converted checkpoint has no `data` and records that; older checkpoints record nothing.
  if 'data' in own.get('json', {}) or (folder / 'data').exists():
    items['data'] = read_json_item(folder, 'data')
  for name, number in own.get('json', {}).items():
    if json_checksum(items[name]) != number:
      raise Corrupt(f'the item `{name}` was altered')
  if not (folder / 'state').is_dir():
    raise Corrupt('the item `state` is missing')
  return Description(int(folder.name), items['data'], meta, own.get('is_temporary', False), own.get('arrays'))


def read_json_item(folder: epath.Path, item: str) -> dict:
  """Reads an item that Orbax wrote as JSON; raises `Corrupt` if it is missing or malformed.

  Does not use Orbax, whose handler starts JAX: a run reads this before its hosts have joined.
  """
  try:
    content = json.loads((folder / item / 'metadata').read_text())
  except FileNotFoundError:
    raise Corrupt(f'the item `{item}` is missing') from None
  except (json.JSONDecodeError, UnicodeDecodeError):
    raise Corrupt(f'the item `{item}` is not JSON') from None
  if not isinstance(content, dict):
    raise Corrupt(f'the item `{item}` is not a JSON object')
  return content


def refuse_other_state(arrays: dict[str, list], wanted: dict[str, tuple], folder: epath.Path) -> None:
  """Raises UsageError if the state has other arrays than the wanted one: it is of another model or optimizer."""
  differing = [f'{name} is missing' for name in wanted if name not in arrays]
  differing += [f'{name} is unexpected' for name in arrays if name not in wanted]
  differing += [
    f'{name} is {arrays[name][1]}, not {shape}'
    for name, (_, shape) in wanted.items()
    if name in arrays and arrays[name][1] != shape
  ]
  if differing:
    more = f' and {len(differing) - 3} more' if len(differing) > 3 else ''
    raise UsageError(
      'the checkpoint has the state of another model or optimizer',
      where=f'{folder}: ' + '; '.join(differing[:3]) + more,
      fix=[
        'use the settings of optimizer.* that it was saved with',
        f'or start a new run from its parameters: --workdir=DIR --gin.train.init_from={folder}',
      ],
    )


# Messages of TensorStore, JAX and bucket clients that do not mean that files are corrupt.
_UNREACHABLE = re.compile(
  r'PERMISSION_DENIED|UNAVAILABLE|UNAUTHENTICATED|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|ABORTED|CANCELLED|Forbidden'
)


def format_altered(names: Sequence[str]) -> str:
  """Message about arrays that differ from their checksums; '' if there are none."""
  return f'{len(names)} array(s) differ from their checksums, for example {names[0]}' if names else ''


def is_corruption(error: Exception) -> bool:
  """Whether an error means corrupt files, rather than unreachable storage or too little memory."""
  elsewhere = (PermissionError, MemoryError, TimeoutError, ConnectionError, RunError)
  return not isinstance(error, elsewhere) and not _UNREACHABLE.search(str(error))


def in_one_line(error: Exception) -> str:
  """The first line of an exception's message, truncated to 160 characters."""
  line = first_line(error)
  return line if len(line) <= 160 else f'{line[:160]}…'


# --- trees and their checksums ----------------------------------------------------------------------------------------

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_CHUNK = 1 << 16


def leaf_path(path: tuple) -> str:
  """`params/encoder/…`, of a leaf's path in a tree."""
  return jax.tree_util.keystr(path, simple=True, separator='/')


def leaves_by_path(tree: Any) -> dict[str, Any]:
  """All leaves of a tree by their path."""
  return {leaf_path(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def shapes(tree: Any) -> dict[str, tuple[str, list[int]]]:
  """Dtype and shape of every leaf by path."""
  return {name: (np.dtype(leaf.dtype).name, list(leaf.shape)) for name, leaf in leaves_by_path(tree).items()}


def json_checksum(content: Mapping) -> int:
  """The checksum of a dict as JSON, whatever the order of its keys."""
  normal = json.loads(json.dumps(content))  # turns tuples into lists and keys into strings
  return zlib.crc32(json.dumps(normal, sort_keys=True).encode())


def array_checksum(array: np.ndarray) -> int:
  """Σ word · (2 · position + 1) modulo 2³², of an array in the host's memory; position counts row by row."""
  words = np.ascontiguousarray(array).reshape(-1).view(_UNSIGNED[array.dtype.itemsize])
  weights = np.arange(1, 2 * _CHUNK, 2, dtype=np.uint32)
  total = 0
  for start in range(0, len(words), _CHUNK):
    chunk = words[start : start + _CHUNK].astype(np.uint32, copy=False)
    shifted = weights[: len(chunk)] + np.uint32(2 * start % (1 << 32))
    total += int(_weighted(chunk, shifted).sum(dtype=np.uint64))
  return total % (1 << 32)


def tree_checksums(tree: Any) -> dict[str, int]:
  """Checksums of all leaves by path. All processes call it; all get the same."""
  leaves = leaves_by_path(tree)
  if all(_is_in_host_memory(leaf) for leaf in leaves.values()):  # saves a minute of compilation for a small model
    return {name: array_checksum(np.asarray(leaf)) for name, leaf in leaves.items()}
  mesh = next((leaf.sharding.mesh for leaf in leaves.values() if isinstance(leaf.sharding, NamedSharding)), None)
  replicated = None if mesh is None else NamedSharding(mesh, PartitionSpec())
  sums = _compiled_checksums(replicated)(list(leaves.values()))
  return dict(zip(leaves, (int(each) for each in np.asarray(sums)), strict=True))


def _weighted(words, weights):
  """Injective in each word, since weights are odd: detects every change of one word, and nearly every other."""
  return (words ^ (words >> np.uint32(15))) * weights


def _device_checksum(array: jax.Array) -> jax.Array:
  words = jax.lax.bitcast_convert_type(array, _UNSIGNED[array.dtype.itemsize]).astype(jnp.uint32)
  weights = jnp.ones(array.shape, jnp.uint32)
  for axis in range(array.ndim):  # flattening would gather sharded arrays
    stride = 2 * math.prod(array.shape[axis + 1 :]) % (1 << 32)
    weights += jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis) * np.uint32(stride)
  return _weighted(words, weights).sum(dtype=jnp.uint32)


def _is_in_host_memory(leaf: jax.Array | np.ndarray) -> bool:
  return isinstance(leaf, np.ndarray) or (
    leaf.is_fully_addressable and all(device.platform == 'cpu' for device in leaf.devices())
  )


@functools.cache
def _compiled_checksums(sharding: NamedSharding | None):
  """The compiled checksum function of a mesh, cached, since every save calls it."""
  return jax.jit(lambda leaves: jnp.stack([_device_checksum(leaf) for leaf in leaves]), out_shardings=sharding)
