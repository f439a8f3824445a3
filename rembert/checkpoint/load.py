"""The model at a path, tensor by tensor: a workdir, a checkpoint of one, a Hugging Face directory or a Hub id.

`open_source` answers what is at a path, for jobs, `rembert.load`, analyses and converters. `import_model` reads the
parameters, also with another head or fewer layers; `rembert.checkpoint.initialize` takes them into the state of a run.
The original TensorFlow checkpoint is converted by `rembert.convert from_tf`.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import zlib
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
from rembert.convert.tensor_names import AS_SAVED, OURS, ROW_PER_PIECE, Slot, Source, Tensor, slots
from rembert.errors import UsageError, first_line
from rembert.files import absolute, is_remote, write_errors, write_whole
from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, HEADS, POOLED, parameter_shapes
from rembert.tokenizer import find_vocabulary

_MODEL = 'RemBertConfig'  # its name in gin files
_CLASSIFIERS = ('classification', 'tagging')
_LISTED = 12  # tensors in an error message
_CHUNK_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_TRIES = 20  # for a run that saves faster than this reads; each try opens a newer checkpoint

Read = TypeVar('Read')


# --- what is at a path ------------------------------------------------------------------------------------------------


def open_source(path: epath.PathLike, step: int | None = None, *, ema: bool = True) -> Source:
  """Opens a workdir (its checkpoint of `step`, or the newest), a checkpoint, a Hugging Face directory or a Hub id.

  Tensors are not read yet; with `ema` they are the moving average if the checkpoint has one (`train.ema_decay`).

  Raises:
    UsageError: there is no model, no checkpoint of that step, or it is corrupt.
  """
  if checkpoint := find_checkpoint(path, step):
    return _open_checkpoint(absolute(checkpoint), ema)
  return open_hugging_face(path)


def open_hugging_face(path: epath.PathLike) -> Source:
  """As `open_source`, of a Hugging Face model directory or, downloaded into the cache, a Hub id."""
  if hub.is_at_hub(path):
    return huggingface.open_source(hub.download(os.fspath(path)))
  if is_remote(path) or not (pathlib.Path(path) / 'config.json').is_file():
    raise UsageError(
      'no model found',
      where=str(path),
      fix='name a workdir with checkpoints/, one checkpoint in it, or a Hugging Face model directory with config.json',
    )
  return huggingface.open_source(pathlib.Path(path))


def open_described(path: epath.PathLike) -> Source:
  """As `open_source`, for reading no tensors: of a model of the Hub only `config.json` is downloaded, if possible."""
  if hub.is_at_hub(path):
    folder = hub.download(os.fspath(path), config_only=True)
    if described := huggingface.describe_source(folder):
      return described
  return open_source(path)


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


# --- checkpoints of this project --------------------------------------------------------------------------------------


def _open_checkpoint(folder: epath.Path, ema: bool) -> Source:
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


# --- from tensors to parameters ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ImportedModel:
  """Parameters, and the model that they belong to."""

  leaves: Mapping[str, np.ndarray]  # by path, float32
  config: RemBertConfig
  head: str | None  # see `HEADS`
  labels: tuple[str, ...]  # of a classifier, by index
  num_labels: int | None  # of any head but `mlm`
  missing: tuple[str, ...]  # names of tensors that the checkpoint lacked, randomly initialised
  left_out: tuple[str, ...]  # names of tensors that the model has no place for
  source: Source


def import_model(
  source: Source,
  *,
  head: str | None = AS_SAVED,
  num_hidden_layers: int | None = None,
  num_labels: int | None = None,
  allow_missing: bool = False,
  allow_unexpected: bool = False,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> ImportedModel:
  """Reads the parameters of a model.

  Args:
    source: the checkpoint.
    head: one of `HEADS`, None for the encoder alone, or `AS_SAVED`.
    num_hidden_layers: layers to keep, from the bottom (paper, section 6.2); None keeps all.
    num_labels: of a classifier that the checkpoint does not have.
    allow_missing: initialise parameters that the checkpoint lacks.
    allow_unexpected: ignore tensors that the model has no place for.
    on_progress: gets the fraction that has been read.

  Raises:
    UsageError: tensors are missing, unexpected or of another shape, or corrupt.
  """
  is_as_saved, head = head == AS_SAVED, source.head if head == AS_SAVED else head
  num_labels = _num_labels(source, head, num_labels)
  # A request for one head, or for fewer layers, leaves out the rest; other heads have no use for a pooler.
  everything = [slot for any_head in HEADS for slot in _all_slots(source.config, any_head)]
  not_wanted = source.names(everything, 'encoder/pooler/' if is_as_saved else '')
  if num_hidden_layers is not None:
    if not 0 < num_hidden_layers <= source.config.num_hidden_layers:
      raise UsageError(
        f'{num_hidden_layers} layers cannot be kept of {source.config.num_hidden_layers}',
        where='num_hidden_layers',
        fix=f'1 to {source.config.num_hidden_layers}',
      )
    not_wanted |= source.names(everything, 'encoder/layers/')
    source = source.bottom_layers(num_hidden_layers)

  # --- existing and expected tensors -----------------------------------------
  tensors, config = source.tensors, source.config
  pooler = source.names(_all_slots(config, None), 'encoder/pooler/')
  has_pooler = head in POOLED or (head in (None, 'mlm') and pooler <= tensors.keys())
  model = source.slots(config, head, num_labels, has_pooler=has_pooler)
  not_wanted -= source.names(model)
  kept = {name: tensor for name, tensor in tensors.items() if name not in not_wanted}
  found = dataclasses.replace(source, tensors=kept)
  missing, unexpected = check(found, model, allow_missing=allow_missing, allow_unexpected=allow_unexpected)

  # --- parameters ------------------------------------------------------------
  labels = tuple(f'LABEL_{index}' for index in range(num_labels or 0)) if head in _CLASSIFIERS else ()
  initial = {slot.name(source.form): _initial(slot, source) for slot in model if slot.name(source.form) in missing}
  found = dataclasses.replace(source, tensors=kept | initial)
  shapes = parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler)
  return ImportedModel(
    leaves=dict(read_parameters(found, model, shapes, on_progress)),
    config=config,
    head=head,
    labels=source.labels if len(source.labels) == len(labels) else labels,
    num_labels=num_labels,
    missing=tuple(missing),
    left_out=(*unexpected, *sorted(not_wanted & tensors.keys())),
    source=source,
  )


def _all_slots(config: RemBertConfig, head: str | None) -> list[Slot]:
  """Every tensor that there can be, for their names: their shapes may be others."""
  return slots(dataclasses.replace(config, tie_word_embeddings=False), head, num_labels=1, has_pooler=True)


def _num_labels(source: Source, head: str | None, requested: int | None) -> int | None:
  if head not in _CLASSIFIERS:
    return None if head is None else FIXED_LABELS.get(head)
  [name] = source.names(_all_slots(source.config, head), 'classifier/bias')
  bias = source.tensors.get(name)
  num_labels = requested or (bias.shape[0] if bias and bias.shape else None)
  if num_labels is None:
    raise UsageError(
      f'the checkpoint has no head for {head} to take the number of labels from',
      where=source.path,
      fix=['--num_labels=N --allow_missing', 'in Python: num_labels=N, new_head=True'],
    )
  return num_labels


def check(
  source: Source, slots: Sequence[Slot], *, allow_missing: bool = False, allow_unexpected: bool = False
) -> tuple[list[str], list[str]]:
  """Names of the tensors that the checkpoint lacks, and of those that the model has no place for.

  UsageError if that is not allowed, or if tensors have another shape.
  """
  form = source.form
  wanted = {slot.name(form): slot.shape_in(form) for slot in slots}
  found = {name: tensor.shape for name, tensor in source.tensors.items()}
  missing = [name for name in wanted if name not in found]
  unexpected = [name for name in found if name not in wanted]
  misshaped = [
    f'{name} is {list(found[name])}, not {list(shape)}'
    for name, shape in wanted.items()
    if name in found and found[name] != shape
  ]
  complaints, fixes = [], []
  for what, names, is_allowed, fix in (
    ('of another shape', misshaped, False, 'check the configuration next to the checkpoint'),
    ('missing', missing, allow_missing, '--allow_missing initialises them randomly'),
    ('unexpected', unexpected, allow_unexpected, '--allow_unexpected ignores them'),
  ):
    if names and not is_allowed:
      rest = [f'… and {len(names) - _LISTED} more'] if len(names) > _LISTED else []
      complaints.append('\n    '.join([f'{what} ({len(names)})', *names[:_LISTED], *rest]))
      fixes.append(fix)
  if complaints:
    what = 'the checkpoint does not match the model\n  ' + '\n  '.join(complaints)
    raise UsageError(what, where=source.path, fix=fixes)
  return missing, unexpected


def read_parameters(
  source: Source,
  slots: Sequence[Slot],
  shapes: Mapping[str, tuple[int, ...]],
  on_progress: Callable[[float], None],
) -> Iterator[tuple[str, np.ndarray]]:
  """Each parameter's path and value, float32, with padding rows of zeros; one of them and one tensor are in memory.

  The source is checked; `shapes` are those of the parameters, by path. A parameter has several slots if it holds all
  layers, or query, key and value.
  """
  done = 0
  for leaf, parts in itertools.groupby(sorted(slots, key=lambda slot: slot.leaf), key=lambda slot: slot.leaf):
    parameter = np.zeros(shapes[leaf], np.float32)
    for slot in parts:
      slot.put(parameter, source.tensors[slot.name(source.form)].read(), source.form)
      done += 1
    yield leaf, parameter
    on_progress(done / len(slots))


def _initial(slot: Slot, source: Source) -> Tensor:
  """A tensor that the checkpoint lacks: LayerNorm scales 1, biases 0, others a normal distribution cut at 2 σ.

  Equal for the same part of a parameter.
  """
  shape = slot.shape_in(source.form)

  def read() -> np.ndarray:
    if slot.leaf.endswith(('/scale', '/bias')):
      return np.full(shape, slot.leaf.endswith('/scale'), np.float32)
    key = jax.random.fold_in(jax.random.key(0), zlib.crc32((slot.leaf + str(slot.index)).encode()))
    return np.array(jax.random.truncated_normal(key, -2, 2, shape)) * np.float32(source.config.initializer_range)

  return Tensor(shape, read)


# --- writing ----------------------------------------------------------------------------------------------------------


def config_meta(name: str, config: Any, fields: Sequence[str] | None = None) -> dict:
  """Fields of a dataclass (all by default) in the form of a checkpoint's `meta`; `name` is its name in gin files."""
  values = dataclasses.asdict(config)
  return {f'{name}.{field}': values[field] for field in (values if fields is None else fields)}


def config_gin(config: RemBertConfig) -> str:
  """The configuration as the text of a gin file: `--gin_file=WORKDIR/config.gin` builds the same model."""
  return ''.join(f'{name} = {value!r}\n' for name, value in config_meta(_MODEL, config).items())


def save_workdir(
  imported: ImportedModel, workdir: epath.PathLike, vocabulary: epath.PathLike | None, /, **facts: Any
) -> None:
  """Writes a workdir: checkpoint of step 0 with `facts` (JSON), `config.gin`, and the vocabulary if there is one."""
  workdir = epath.Path(workdir)
  is_new = not workdir.exists()
  with write_errors('the workdir', workdir), contextlib.ExitStack() as on_failure:
    if is_new:
      on_failure.callback(lambda: workdir.exists() and workdir.rmtree())
    if vocabulary is not None:
      write_whole(workdir / 'vocabulary' / 'sentencepiece.model', epath.Path(vocabulary).read_bytes())
    write_whole(workdir / 'config.gin', config_gin(imported.config))
    save_model(workdir, imported.leaves, imported.config, imported.head, imported.labels, **facts)
    on_failure.pop_all()  # success: nothing to remove


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
  chunks = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), state)
  save = ocp.args.PyTreeSave(state, save_args=chunks, ocdbt_target_data_file_size=_FILE_BYTES)
  options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, cleanup_tmp_directories=True)
  with ocp.CheckpointManager(absolute(epath.Path(workdir) / 'checkpoints'), options=options) as manager:
    manager.save(
      0, args=ocp.args.Composite(state=save, meta=ocp.args.JsonSave(integrity.with_description(meta, state)))
    )
