"""What is at a path: a workdir, a checkpoint of one, or a folder of Hugging Face; read tensor by tensor.

`find_checkpoint` and `open_saved` are for checkpoints of this project alone, `open_source` for whatever there may be.
"""

import contextlib
import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint.integrity import (
  array_checksum,
  leaves_by_path,
  read_json_item,
  with_description,
  without_description,
)
from rembert.checkpoint.manager import silence_orbax
from rembert.convert import huggingface
from rembert.convert.tensor_names import (
  ENCODER_PREFIX,
  OURS,
  Slot,
  Tensor,
  Tensors,
  has_row_per_piece,
  own_slots,
  slots,
)
from rembert.errors import UsageError, first_line
from rembert.files import absolute, is_remote
from rembert.model.config import RemBertConfig

_MODEL = 'RemBertConfig'  # as gin calls it
_DECODER = 'cls.predictions.decoder.weight'  # of Hugging Face
_CHUNK_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_TRIES = 20  # of a run that saves faster than it is read; each wants a newer checkpoint than the last

Read = TypeVar('Read')


# --- checkpoints of this project --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SavedModel:
  """One checkpoint.

  Attributes:
    folder: the checkpoint: `WORKDIR/checkpoints/STEP`.
    step: updates made when it was saved.
    config: the architecture.
    head: see `rembert.model.heads.HEADS`; None is an encoder alone.
    labels: of a classifier, by index.
    meta: all that the checkpoint says of itself.
    arrays: dtype, shape and checksum of its arrays by path, as far as it says them.
  """

  folder: epath.Path
  step: int
  config: RemBertConfig
  head: str | None
  labels: tuple[str, ...]
  meta: Mapping
  arrays: Mapping[str, list] = dataclasses.field(default_factory=dict, repr=False)

  @property
  def workdir(self) -> epath.Path:
    """The run that it belongs to."""
    return self.folder.parent.parent

  @property
  def vocabulary(self) -> epath.Path | None:
    """The SentencePiece model of the run, if there is one."""
    file = self.workdir / 'vocabulary' / 'sentencepiece.model'
    return file if file.exists() else None

  @functools.cached_property
  def shapes(self) -> dict[str, tuple[int, ...]]:
    """Of all parameters, by path (`encoder/layers/…`)."""
    return {path: tuple(leaf.shape) for path, leaf in self._leaves.items()}

  @functools.cached_property
  def _leaves(self) -> dict:
    with _usage_errors(self.folder):
      return flatten_dict(_metadata(self.folder)['params'], sep='/')

  def read(self, path: str) -> np.ndarray:
    """One parameter, float32, whole, whatever devices it was saved from; UsageError if it is not what was saved."""
    leaf = self._leaves[path]
    item = unflatten_dict({f'params/{path}': jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)}, sep='/')
    with _usage_errors(self.folder):
      restored = _read_arrays(self.folder, item, item=item, partial_restore=True)
      parameter = flatten_dict(restored, sep='/')[f'params/{path}']
      described = self.arrays.get(f'params/{path}')
      if described is not None and described[2] != array_checksum(parameter):
        raise ValueError(f'{path} is not as it was saved')
    return parameter.astype(np.float32, copy=False)


def _metadata(folder: epath.Path) -> Any:
  """The state as a tree of what Orbax knows of each array."""
  metadata = ocp.PyTreeCheckpointer().metadata(folder / 'state')
  return metadata.item_metadata.tree if hasattr(metadata, 'item_metadata') else metadata


def _read_arrays(folder: epath.Path, tree: Any, **options) -> Any:
  """The arrays of a state that stand in `tree`, as NumPy."""
  as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
  return ocp.PyTreeCheckpointer().restore(
    folder / 'state', args=ocp.args.PyTreeRestore(restore_args=as_numpy, **options)
  )


@contextlib.contextmanager
def _usage_errors(folder: epath.Path) -> Iterator[None]:
  """Orbax and TensorStore raise types of their own."""
  silence_orbax()
  try:
    yield
  except Exception as error:
    raise UsageError(
      f'a checkpoint cannot be read: {first_line(error)}', where=str(folder), fix='try an earlier step'
    ) from error


def find_checkpoint(path: epath.PathLike, step: int | None = None) -> epath.Path | None:
  """The checkpoint of a workdir (the newest, or that of `step`), or `path` itself if it is one; None if neither."""
  path = epath.Path(path)
  if (path / 'state').is_dir() and (path / 'meta').is_dir():
    return path
  folder = path / 'checkpoints'
  if not folder.is_dir():
    return None
  found = [child for child in folder.iterdir() if re.fullmatch(r'\d+', child.name)]
  # An unfinished save has no such name on a disk; in a bucket, where nothing can be renamed, it has.
  steps = sorted(int(child.name) for child in found if ocp.utils.is_checkpoint_finalized(child))
  if step is not None and step not in steps:
    raise UsageError(f'there is no checkpoint of step {step}', where=str(folder), fix=f'there are {steps}')
  return folder / str(steps[-1] if step is None else step) if steps else None


def open_saved(path: epath.PathLike, step: int | None = None) -> SavedModel:
  """The model in a workdir (at `step`, else the newest) or in one checkpoint of it; UsageError if there is none."""
  folder = find_checkpoint(path, step)
  if folder is None:
    fix = 'name a workdir with checkpoints/, or a folder of Hugging Face'
    raise UsageError('no checkpoint', where=str(path), fix=fix)
  folder = absolute(folder)
  with _usage_errors(folder):
    meta, arrays = without_description(read_json_item(folder, 'meta'))
  names = {f'{_MODEL}.{field.name}': field.name for field in dataclasses.fields(RemBertConfig)}
  config = RemBertConfig(**{field: meta[name] for name, field in names.items() if name in meta})
  return SavedModel(
    folder=folder,
    step=int(folder.name) if folder.name.isdigit() else 0,
    config=config,
    head=meta.get('head', 'mlm'),  # a run of pre-training does not say
    labels=tuple(meta.get('labels') or ()),
    meta=meta,
    arrays=arrays,
  )


def read_newest(path: epath.PathLike, step: int | None, read: Callable[[SavedModel], Read]) -> Read:
  """`read(open_saved(path, step))` of a run that may go on training, and delete the checkpoint while it is read.

  The newest is then read anew. What `read` has done until its UsageError must be undone by then.
  """
  for _ in range(_TRIES):
    folder = find_checkpoint(path, step)
    try:
      return read(open_saved(path, step))
    except UsageError:
      newest = find_checkpoint(path)
      if step is not None or newest is None or newest == folder:
        raise
  return read(open_saved(path, step))


def altered_arrays(folder: epath.Path) -> list[str]:
  """Paths of the arrays of a checkpoint that are not as they were saved; [] where it does not say. Reads it whole.

  Whatever Orbax and TensorStore raise for a file that is not theirs is passed on.
  """
  folder = absolute(folder)
  silence_orbax()
  _, described = without_description(read_json_item(folder, 'meta'))
  if not described:
    return []
  leaves = leaves_by_path(_read_arrays(folder, _metadata(folder)))
  is_altered = lambda name, number: name not in leaves or array_checksum(np.asarray(leaves[name])) != number
  return [name for name, (_, _, number) in described.items() if is_altered(name, number)]


# --- any model --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Source:
  """A checkpoint: tensors under the names of the table, and what it says of itself."""

  tensors: Tensors
  config: RemBertConfig
  form: str
  head: str | None
  labels: tuple[str, ...]
  path: str
  vocabulary: epath.PathLike | None

  def slots(
    self, config: RemBertConfig, head: str | None, num_labels: int | None = None, *, has_pooler: bool
  ) -> list[Slot]:
    """The tensors of a model; those of our own checkpoints are its very parameters."""
    find = own_slots if self.form == OURS else slots
    return find(config, head, num_labels=num_labels, has_pooler=has_pooler)

  def names(self, model: Iterable[Slot], prefix: str = '') -> set[str]:
    """What the tensors of a model, or of a part of it, are called here."""
    return {slot.name(self.form) for slot in model if slot.leaf.startswith(prefix)}


def open_source(path: epath.PathLike, num_hidden_layers: int | None = None) -> Source:
  """The tensors of a workdir, a checkpoint or a folder of Hugging Face, unread; UsageError if there are none.

  Args:
    path: where they are.
    num_hidden_layers: as many of the bottom layers are shown; None for all. In a folder of Hugging Face each layer has
      tensors of its own, and all of them are.
  """
  if find_checkpoint(path) is not None:
    return saved_source(open_saved(path), num_hidden_layers)
  if not is_remote(path) and huggingface.is_model_folder(pathlib.Path(path)):
    return hugging_face_source(path)
  raise UsageError(
    'nothing to load',
    where=str(path),
    fix='name a workdir with checkpoints/, one checkpoint in it, or a folder of Hugging Face with config.json',
  )


def architecture(path: epath.PathLike) -> RemBertConfig:
  """Of the model in a workdir, a checkpoint or a folder of Hugging Face; does not start JAX."""
  return open_saved(path).config if find_checkpoint(path) is not None else open_source(path).config


def saved_source(saved: SavedModel, num_hidden_layers: int | None = None) -> Source:
  """A checkpoint of this project; of its layers the bottom `num_hidden_layers`, None for all."""
  return Source(
    {path: _saved_tensor(saved, path, num_hidden_layers) for path in saved.shapes},
    saved.config,
    form=OURS,
    head=saved.head,
    labels=saved.labels,
    path=str(saved.folder),
    vocabulary=saved.vocabulary,
  )


def _saved_tensor(saved: SavedModel, path: str, num_layers: int | None) -> Tensor:
  """A parameter of our own checkpoint, without padding rows, and of the bottom layers only."""
  shape = saved.shapes[path]
  kept = shape[0]
  if path.startswith('encoder/layers/'):
    kept = num_layers or shape[0]
  elif has_row_per_piece(path):
    kept = saved.config.vocab_size
  return Tensor((kept, *shape[1:]), lambda: saved.read(path)[:kept])


def hugging_face_source(folder: epath.PathLike) -> Source:
  """A folder of Hugging Face; UsageError where it is damaged."""
  folder = pathlib.Path(folder)
  description = huggingface.read_description(folder)
  weights = huggingface.open_weights(folder)
  tensors = {
    name.removeprefix(ENCODER_PREFIX): tensor for name, tensor in weights.items() if not huggingface.is_buffer(name)
  }
  head = huggingface.head_of(list(tensors), description)
  tensors, config = _without_redundant(tensors, description.config)
  vocabulary = folder / 'sentencepiece.model'
  return Source(
    tensors,
    config,
    form=huggingface.FORM,
    head=head,
    labels=description.labels,
    path=str(folder),
    vocabulary=vocabulary if vocabulary.is_file() else None,
  )


def _without_redundant(tensors: dict[str, Tensor], config: RemBertConfig) -> tuple[dict[str, Tensor], RemBertConfig]:
  """Without what Hugging Face's model has in any case: a projection that changes nothing, a copy of a tied table."""
  projection, width = 'encoder.embedding_hidden_mapping_in.', config.hidden_size
  kernel, bias = (tensors.get(projection + name) for name in ('weight', 'bias'))
  word, decoder = (tensors.get(name) for name in ('embeddings.word_embeddings.weight', _DECODER))
  if config.always_project_embeddings and kernel and bias and kernel.shape == (width, width):
    is_identity = np.array_equal(kernel.read(), np.eye(width, dtype=np.float32))
    if is_identity and not np.any(bias.read()):
      config = dataclasses.replace(config, always_project_embeddings=False)
      tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(projection)}
  if config.tie_word_embeddings and word and decoder:
    if decoder.shape == word.shape and np.array_equal(decoder.read(), word.read()):
      tensors = {name: tensor for name, tensor in tensors.items() if name != _DECODER}
    else:
      config = dataclasses.replace(config, tie_word_embeddings=False)
  return tensors, config


# --- what is written --------------------------------------------------------------------------------------------------


def config_meta(name: str, config: Any, fields: Sequence[str] | None = None) -> dict:
  """Fields of a dataclass, all by default, as a checkpoint's `meta` holds them; `name` is gin's of the class."""
  values = dataclasses.asdict(config)
  return {f'{name}.{field}': values[field] for field in (values if fields is None else fields)}


def config_gin(config: RemBertConfig) -> str:
  """The configuration as a gin file: `--gin_file=WORKDIR/config.gin` gives the same model."""
  return ''.join(f'{name} = {value!r}\n' for name, value in config_meta(_MODEL, config).items())


def save_model(
  workdir: epath.PathLike,
  leaves: Mapping[str, np.ndarray],
  config: RemBertConfig,
  head: str | None,
  labels: tuple[str, ...] = (),
  **facts: Any,
) -> epath.Path:
  """Writes parameters, by path, as the checkpoint of step 0 of a new workdir, with `facts` (JSON) in `meta`.

  Returns the checkpoint's folder.
  """
  workdir = epath.Path(workdir)
  folder = absolute(workdir / 'checkpoints')
  silence_orbax()
  meta = {**config_meta(_MODEL, config), 'head': head, 'labels': list(labels), **facts}
  state = {'step': np.zeros((), np.int32), 'params': unflatten_dict(dict(leaves), sep='/')}
  # In small pieces: written whole, arrays and their compressed copies would be in memory three times.
  pieces = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), state)
  save = ocp.args.PyTreeSave(state, save_args=pieces, ocdbt_target_data_file_size=_FILE_BYTES)
  options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, cleanup_tmp_directories=True)
  with ocp.CheckpointManager(folder, options=options) as manager:
    manager.save(0, args=ocp.args.Composite(state=save, meta=ocp.args.JsonSave(with_description(meta, state))))
  return folder / '0'
