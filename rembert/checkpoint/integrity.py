"""What a checkpoint states about itself in its item `meta`, with checksums, and whether that is still true.

Storage by itself notices no altered byte. Checksums are of the bits of arrays, equal on every device, mesh and host.
Arrays are summed where they are when a checkpoint is saved, and again where they arrive. No file is read twice, the way
over the network is covered too, and all hosts of a pod come to one verdict.
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
  """Something in a checkpoint is not as it was written."""


@dataclasses.dataclass(frozen=True)
class Description:
  """What a checkpoint states about itself; small.

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
  """`meta` with what `describe` reads and what is checked on restoring, of the items `state` (`fields`) and `data`.

  All processes call this; one writes what it gives.
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
  """`meta` as it was given, and dtype, shape and checksum of every array as far as it states them."""
  return {name: value for name, value in meta.items() if name != _OWN}, meta.get(_OWN, {}).get('arrays', {})


def describe(folder: epath.Path) -> Description:
  """Reads the description of the checkpoint in `folder`, whose name is its step; `Corrupt` if it is not as written."""
  meta = read_json_item(folder, 'meta')
  own = meta.pop(_OWN, {})
  items = {'meta': meta, 'data': {}}
  # What was converted from elsewhere has no `data`, and states that it has none; what is older states nothing.
  if 'data' in own.get('json', {}) or (folder / 'data').exists():
    items['data'] = read_json_item(folder, 'data')
  for name, number in own.get('json', {}).items():
    if json_checksum(items[name]) != number:
      raise Corrupt(f'the item `{name}` is not as it was written')
  if not (folder / 'state').is_dir():
    raise Corrupt('the item `state` is missing')
  return Description(int(folder.name), items['data'], meta, own.get('is_temporary', False), own.get('arrays'))


def read_json_item(folder: epath.Path, item: str) -> dict:
  """An item that Orbax wrote as JSON; `Corrupt` if it is not one.

  Without Orbax, whose handler starts JAX: a run looks at its checkpoints before its hosts have joined.
  """
  try:
    content = json.loads((folder / item / 'metadata').read_text())
  except FileNotFoundError:
    raise Corrupt(f'the item `{item}` is missing') from None
  except (json.JSONDecodeError, UnicodeDecodeError):
    raise Corrupt(f'the item `{item}` is no JSON') from None
  if not isinstance(content, dict):
    raise Corrupt(f'the item `{item}` is no JSON object')
  return content


def refuse_other_state(arrays: dict[str, list], wanted: dict[str, tuple], folder: epath.Path) -> None:
  """Raises UsageError where the state has other arrays than the wanted one: not corrupt, but of another optimizer."""
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
_UNREACHABLE = re.compile(
  r'PERMISSION_DENIED|UNAVAILABLE|UNAUTHENTICATED|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|ABORTED|CANCELLED|Forbidden'
)


def format_altered(names: Sequence[str]) -> str:
  """What is wrong where these arrays are not as they were saved; '' if there are none."""
  return f'{len(names)} array(s) are not as they were saved, for example {names[0]}' if names else ''


def is_corruption(error: Exception) -> bool:
  """Whether files are wrong, rather than out of reach or too large for the memory."""
  elsewhere = (PermissionError, MemoryError, TimeoutError, ConnectionError, RunError)
  return not isinstance(error, elsewhere) and not _UNREACHABLE.search(str(error))


def in_one_line(error: Exception) -> str:
  """The first line of an exception's message, cut after 160 characters."""
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
  normal = json.loads(json.dumps(content))  # tuples are lists by then, and all keys are text
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
  if all(_is_in_host_memory(leaf) for leaf in leaves.values()):  # without a minute of compilation for a small model
    return {name: array_checksum(np.asarray(leaf)) for name, leaf in leaves.items()}
  mesh = next((leaf.sharding.mesh for leaf in leaves.values() if isinstance(leaf.sharding, NamedSharding)), None)
  replicated = None if mesh is None else NamedSharding(mesh, PartitionSpec())
  sums = _compiled_checksums(replicated)(list(leaves.values()))
  return dict(zip(leaves, (int(each) for each in np.asarray(sums)), strict=True))


def _weighted(words, weights):
  """One to one in each word, since weights are odd: a change of a single word always shows, others nearly always."""
  return (words ^ (words >> np.uint32(15))) * weights


def _device_checksum(array: jax.Array) -> jax.Array:
  words = jax.lax.bitcast_convert_type(array, _UNSIGNED[array.dtype.itemsize]).astype(jnp.uint32)
  weights = jnp.ones(array.shape, jnp.uint32)
  for axis in range(array.ndim):  # flattening would gather what is sharded
    stride = 2 * math.prod(array.shape[axis + 1 :]) % (1 << 32)
    weights += jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis) * np.uint32(stride)
  return _weighted(words, weights).sum(dtype=jnp.uint32)


def _is_in_host_memory(leaf: jax.Array | np.ndarray) -> bool:
  return isinstance(leaf, np.ndarray) or (
    leaf.is_fully_addressable and all(device.platform == 'cpu' for device in leaf.devices())
  )


@functools.cache
def _compiled_checksums(sharding: NamedSharding | None):
  """One function for each mesh, kept: it is called at every save."""
  return jax.jit(lambda leaves: jnp.stack([_device_checksum(leaf) for leaf in leaves]), out_shardings=sharding)
