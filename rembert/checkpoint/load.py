"""Loads the model at a path: a workdir, a checkpoint of one, a Hugging Face directory or Hub id; tensor by tensor.

Jobs, `rembert.load`, analyses and converters all use `open_source`. The original TensorFlow checkpoint is converted by
`rembert.convert from_tf`.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint import integrity
from rembert.checkpoint.manager import silence_orbax
from rembert.convert import hub, huggingface
from rembert.convert.tensor_names import OURS, ROW_PER_PIECE, Source, Tensor
from rembert.errors import UsageError, first_line
from rembert.files import absolute, is_remote
from rembert.model.config import RemBertConfig
from rembert.tokenizer import find_vocabulary

_MODEL = 'RemBertConfig'  # its name in gin files
_CHUNK_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_TRIES = 20  # for a run that saves faster than this reads; each try opens a newer checkpoint

Read = TypeVar('Read')


# --- paths ------------------------------------------------------------------------------------------------------------


def open_source(path: epath.PathLike, step: int | None = None, *, ema: bool = True) -> Source:
  """Opens the model at a path, without reading its tensors.

  Args:
    path: a workdir, a checkpoint of one, a Hugging Face model directory or Hub id, see `rembert.convert.hub`.
    step: which checkpoint of a workdir; the newest by default.
    ema: read the moving average of the parameters, if the checkpoint has one (`train.ema_decay`).

  Raises:
    UsageError: there is no model, no checkpoint of that step, or it is corrupt.
  """
  if checkpoint := find_checkpoint(path, step):
    return _open_checkpoint(checkpoint, ema)
  return huggingface.open_source(model_folder(path))


def open_described(path: epath.PathLike) -> Source:
  """As `open_source`, for reading no tensors: of a model of the Hub only `config.json` is downloaded, if possible."""
  described = huggingface.describe_source(model_folder(path, config_only=True)) if hub.is_at_hub(path) else None
  return described or open_source(path)


def architecture(path: epath.PathLike) -> RemBertConfig:
  """The architecture of the model at a path, see `open_described`; does not start JAX."""
  if checkpoint := find_checkpoint(path):
    return _read_meta(absolute(checkpoint))[0]
  return open_described(path).config


def find_checkpoint(path: epath.PathLike, step: int | None = None) -> epath.Path | None:
  """The checkpoint of a workdir (the newest, or that of `step`), or `path` itself if it is one; None if neither."""
  path = epath.Path(path)
  if (path / 'state').is_dir() and (path / 'meta').is_dir():
    return path
  folder = path / 'checkpoints'
  if not folder.is_dir():
    return None
  found = [child for child in folder.iterdir() if re.fullmatch(r'\d+', child.name)]
  # An unfinished save has another name on a disk, but not in a bucket, which cannot rename.
  steps = sorted(int(child.name) for child in found if ocp.utils.is_checkpoint_finalized(child))
  if step is not None and step not in steps:
    raise UsageError(f'there is no checkpoint of step {step}', where=str(folder), fix=f'available: {steps}')
  return folder / str(steps[-1] if step is None else step) if steps else None


def read_newest(path: epath.PathLike, step: int | None, read: Callable[[Source], Read], *, ema: bool = True) -> Read:
  """Returns `read(open_source(path, step, ema=ema))`, also if a run in progress deletes the checkpoint meanwhile.

  It then reads the newest instead. A `read` that raises UsageError must leave nothing behind.
  """
  for _ in range(_TRIES):
    folder = find_checkpoint(path, step)
    try:
      return read(open_source(path, step, ema=ema))
    except UsageError:
      newest = find_checkpoint(path)
      if step is not None or newest is None or newest == folder:
        raise
  return read(open_source(path, step, ema=ema))


def model_folder(path: epath.PathLike, *, config_only: bool = False) -> pathlib.Path:
  """The local Hugging Face model directory of a path or, from the cache, of a Hub id; UsageError if there is none."""
  if hub.is_at_hub(path):
    return hub.download(os.fspath(path), config_only=config_only)
  if is_remote(path) or not (pathlib.Path(path) / 'config.json').is_file():
    raise UsageError(
      'no model found',
      where=str(path),
      fix='name a workdir with checkpoints/, one checkpoint in it, or a Hugging Face model directory with config.json',
    )
  if hub.is_id(path):
    hub.log_local(os.fspath(path))
  return pathlib.Path(path)


# --- checkpoints of this project --------------------------------------------------------------------------------------


def _open_checkpoint(folder: epath.Path, ema: bool) -> Source:
  folder = absolute(folder)
  config, meta, described = _read_meta(folder)
  with _usage_errors(folder):
    state = _metadata(folder)
    tree = 'ema' if ema and 'ema' in state else 'params'
    parameters = flatten_dict(state[tree], sep='/')
  tensors = {}
  for path, leaf in parameters.items():
    read = functools.partial(_read_parameter, folder, tree, path, leaf, described.get(f'{tree}/{path}'))
    tensor = Tensor(tuple(leaf.shape), read)
    tensors[path] = tensor.rows(config.vocab_size) if path in ROW_PER_PIECE else tensor
  return Source(
    str(folder),
    OURS,
    tensors,
    config,
    head=meta.get('head', 'mlm'),  # pre-training runs have no such field
    labels=tuple(meta.get('labels') or ()),
    vocabulary=find_vocabulary(folder.parent.parent / 'vocabulary'),
    step=int(folder.name) if folder.name.isdigit() else 0,
    meta=meta,
  )


def _read_meta(folder: epath.Path) -> tuple[RemBertConfig, dict, dict[str, list]]:
  """The architecture, the `meta` of a checkpoint, and its arrays: see `without_description`."""
  with _usage_errors(folder):
    meta, arrays = integrity.without_description(integrity.read_json_item(folder, 'meta'))
  names = {f'{_MODEL}.{field.name}': field.name for field in dataclasses.fields(RemBertConfig)}
  return RemBertConfig(**{field: meta[name] for name, field in names.items() if name in meta}), meta, arrays


def _read_parameter(folder: epath.Path, tree: str, path: str, leaf: Any, described: list | None) -> np.ndarray:
  """One parameter of the `tree`, float32, unsharded, whichever devices saved it; UsageError if its checksum differs."""
  item = unflatten_dict({f'{tree}/{path}': jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)}, sep='/')
  with _usage_errors(folder):
    restored = _read_arrays(folder, item, item=item, partial_restore=True)
    parameter = flatten_dict(restored, sep='/')[f'{tree}/{path}']
    if described is not None and described[2] != integrity.array_checksum(parameter):
      raise ValueError(f'{path} differs from its checksum')
  return parameter.astype(np.float32, copy=False)


def altered_arrays(folder: epath.Path) -> list[str]:
  """Paths of arrays of a checkpoint that differ from their checksums; [] if it has no checksums. Reads all arrays.

  Exceptions of Orbax and TensorStore for corrupt files are passed on.
  """
  folder = absolute(folder)
  silence_orbax()
  _, described = integrity.without_description(integrity.read_json_item(folder, 'meta'))
  if not described:
    return []
  leaves = integrity.leaves_by_path(_read_arrays(folder, _metadata(folder)))
  is_altered = lambda name, number: name not in leaves or integrity.array_checksum(np.asarray(leaves[name])) != number
  return [name for name, (_, _, number) in described.items() if is_altered(name, number)]


def _metadata(folder: epath.Path) -> Any:
  """The state as a tree of Orbax's metadata of each array."""
  metadata = ocp.PyTreeCheckpointer().metadata(folder / 'state')
  return metadata.item_metadata.tree if hasattr(metadata, 'item_metadata') else metadata


def _read_arrays(folder: epath.Path, tree: Any, **options) -> Any:
  """Reads the arrays of a state that are in `tree`, as NumPy."""
  as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
  return ocp.PyTreeCheckpointer().restore(
    folder / 'state', args=ocp.args.PyTreeRestore(restore_args=as_numpy, **options)
  )


@contextlib.contextmanager
def _usage_errors(folder: epath.Path) -> Iterator[None]:
  """Converts exceptions of Orbax and TensorStore, which have their own types, to UsageErrors."""
  silence_orbax()
  try:
    yield
  except Exception as error:
    raise UsageError(
      f'the checkpoint cannot be read: {first_line(error)}', where=str(folder), fix='try an earlier step'
    ) from error


# --- writing ----------------------------------------------------------------------------------------------------------


def config_meta(name: str, config: Any, fields: Sequence[str] | None = None) -> dict:
  """Fields of a dataclass (all by default) in the form of a checkpoint's `meta`; `name` is its name in gin files."""
  values = dataclasses.asdict(config)
  return {f'{name}.{field}': values[field] for field in (values if fields is None else fields)}


def config_gin(config: RemBertConfig) -> str:
  """The configuration as the text of a gin file: `--gin_file=WORKDIR/config.gin` builds the same model."""
  return ''.join(f'{name} = {value!r}\n' for name, value in config_meta(_MODEL, config).items())


def save_model(
  workdir: epath.PathLike,
  leaves: Mapping[str, np.ndarray],
  config: RemBertConfig,
  head: str | None,
  labels: tuple[str, ...] = (),
  **facts: Any,
) -> None:
  """Writes parameters, by path, as the checkpoint of step 0 of a new workdir, with `facts` (JSON) in `meta`."""
  silence_orbax()
  meta = {**config_meta(_MODEL, config), 'head': head, 'labels': list(labels), **facts}
  state = {'step': np.zeros((), np.int32), 'params': unflatten_dict(dict(leaves), sep='/')}
  # In small chunks: otherwise memory would hold three copies of each array, with the compressed ones.
  pieces = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), state)
  save = ocp.args.PyTreeSave(state, save_args=pieces, ocdbt_target_data_file_size=_FILE_BYTES)
  options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, cleanup_tmp_directories=True)
  with ocp.CheckpointManager(absolute(epath.Path(workdir) / 'checkpoints'), options=options) as manager:
    manager.save(
      0, args=ocp.args.Composite(state=save, meta=ocp.args.JsonSave(integrity.with_description(meta, state)))
    )
