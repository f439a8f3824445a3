"""Checksums of arrays by their bits, equal on every device, mesh and host: storage by itself notices no altered byte.

The arrays of a checkpoint are summed where they are when it is saved, and again where they arrive. No file is read
twice, the way over the network is covered too, and all hosts of a pod come to one verdict.
"""

import functools
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_CHUNK = 1 << 16


def _scattered(words, weights):
  """One to one in each word, since weights are odd: a change of a single word always shows, others nearly always."""
  return (words ^ (words >> np.uint32(15))) * weights


def of_array(array: np.ndarray) -> int:
  """Σ word · (2 · position + 1) modulo 2³², of an array in the host's memory; position counts row by row."""
  words = np.ascontiguousarray(array).reshape(-1).view(_UNSIGNED[array.dtype.itemsize])
  weights = np.arange(1, 2 * _CHUNK, 2, dtype=np.uint32)
  total = 0
  for start in range(0, len(words), _CHUNK):
    chunk = words[start : start + _CHUNK].astype(np.uint32, copy=False)
    shifted = weights[: len(chunk)] + np.uint32(2 * start % (1 << 32))
    total += int(_scattered(chunk, shifted).sum(dtype=np.uint64))
  return total % (1 << 32)


def _of_device_array(array: jax.Array) -> jax.Array:
  words = jax.lax.bitcast_convert_type(array, _UNSIGNED[array.dtype.itemsize]).astype(jnp.uint32)
  weights = jnp.ones(array.shape, jnp.uint32)
  for axis in range(array.ndim):  # flattening would gather what is sharded
    stride = 2 * math.prod(array.shape[axis + 1 :]) % (1 << 32)
    weights += jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis) * np.uint32(stride)
  return _scattered(words, weights).sum(dtype=jnp.uint32)


def leaf_name(path: tuple) -> str:
  """`params/encoder/…`, of a leaf's path in a tree."""
  return jax.tree_util.keystr(path, simple=True, separator='/')


def of_tree(tree: Any) -> dict[str, int]:
  """Checksums of all leaves by path (`params/encoder/…`). All processes call it; all get the same."""
  leaves = {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
  if all(_is_in_host_memory(leaf) for leaf in leaves.values()):  # without a minute of compilation for a small model
    return {name: of_array(np.asarray(leaf)) for name, leaf in leaves.items()}
  mesh = next((leaf.sharding.mesh for leaf in leaves.values() if isinstance(leaf.sharding, NamedSharding)), None)
  everywhere = None if mesh is None else NamedSharding(mesh, PartitionSpec())
  sums = _compiled(everywhere)(list(leaves.values()))
  return dict(zip(leaves, (int(each) for each in np.asarray(sums)), strict=True))


def of_json(content: Mapping) -> int:
  """The checksum of what JSON makes of a dict, whatever the order of its keys."""
  normal = json.loads(json.dumps(content))  # tuples are lists by then, and all keys are text
  return zlib.crc32(json.dumps(normal, sort_keys=True).encode())


def _is_in_host_memory(leaf: jax.Array | np.ndarray) -> bool:
  return isinstance(leaf, np.ndarray) or (
    leaf.is_fully_addressable and all(device.platform == 'cpu' for device in leaf.devices())
  )


@functools.cache
def _compiled(sharding: NamedSharding | None):
  """One function for each mesh, kept: it is called at every save."""
  sums = lambda leaves: jnp.stack([_of_device_array(leaf) for leaf in leaves])
  return jax.jit(sums, out_shardings=sharding)
