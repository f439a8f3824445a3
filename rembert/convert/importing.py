"""Into this project: a folder of Hugging Face, an original checkpoint or one of our own becomes parameters.

Whatever they come from, one function compares what there is with what the wanted model has, and assembles it.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from etils import epath

from rembert.checkpoint.load import SavedModel, config_gin, find_checkpoint, open_saved, save_model
from rembert.convert import huggingface
from rembert.convert.tensor_names import ENCODER_PREFIX, OURS, Slot, has_row_per_piece, own_slots, slots
from rembert.convert.tensors import Renamed, Resized, Tensors, assemble, check
from rembert.errors import UsageError
from rembert.files import is_remote, write_errors, write_whole
from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, HEADS, POOLED, parameter_shapes

AS_SAVED = 'as saved'


@dataclasses.dataclass(frozen=True)
class ImportOptions:
  """What may differ between a checkpoint and what is made of it.

  Attributes:
    head: one of `HEADS`, None for the encoder alone, or `AS_SAVED`.
    num_hidden_layers: layers to keep, from the bottom (paper, section 6.2); None keeps all.
    num_labels: of a classifier that the checkpoint does not have.
    allow_missing: draw parameters that the checkpoint lacks.
    allow_unexpected: leave out what the model has no place for.
    input_vocab_size: rows that the word embedding shall have; None as saved.
    output_vocab_size: rows that the output embedding and its bias shall have; None as saved.
  """

  head: str | None = AS_SAVED
  num_hidden_layers: int | None = None
  num_labels: int | None = None
  allow_missing: bool = False
  allow_unexpected: bool = False
  input_vocab_size: int | None = None
  output_vocab_size: int | None = None


@dataclasses.dataclass(frozen=True)
class ImportedModel:
  """Parameters by path, float32, and what they are the parameters of.

  Attributes:
    leaves: by path.
    config: the architecture.
    head: see `HEADS`.
    labels: of a classifier, by index.
    num_labels: of any head but `mlm`.
    missing: names that the checkpoint lacked, drawn anew.
    left_out: names of the checkpoint that the model has no place for.
    vocabulary: the SentencePiece model beside the checkpoint, if there is one.
  """

  leaves: Mapping[str, np.ndarray]
  config: RemBertConfig
  head: str | None
  labels: tuple[str, ...]
  num_labels: int | None
  missing: tuple[str, ...]
  left_out: tuple[str, ...]
  vocabulary: epath.PathLike | None


def read_hugging_face(
  folder: epath.PathLike,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> ImportedModel:
  """The model in a folder of Hugging Face, of any head; UsageError where it is damaged or does not fit."""
  return _import(_hugging_face_source(folder), options, on_progress)


def _hugging_face_source(folder: epath.PathLike) -> 'Source':
  folder = pathlib.Path(folder)
  description = huggingface.read_description(folder)
  weights = huggingface.open_weights(folder)
  names = {name.removeprefix(ENCODER_PREFIX): name for name in weights.shapes if not huggingface.is_buffer(name)}
  tensors, config = _without_redundant(Renamed(weights, names), description.config)
  vocabulary = folder / 'sentencepiece.model'
  return Source(
    tensors,
    config,
    form=huggingface.FORM,
    head=huggingface.head_of(list(names), description),
    labels=description.labels,
    path=str(folder),
    vocabulary=vocabulary if vocabulary.is_file() else None,
  )


def read_tensorflow(
  path: epath.PathLike,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
  **description,
) -> ImportedModel:
  """The model in an original checkpoint; `description` goes to `tensorflow.describe`."""
  from rembert.convert import tensorflow

  checkpoint = tensorflow.TensorFlowCheckpoint(path)
  vocabulary = epath.Path(checkpoint.prefix).parent / 'sentencepiece.model'
  source = Source(
    checkpoint,
    tensorflow.describe(checkpoint, **description),
    form=tensorflow.FORM,
    head=tensorflow.head_of(checkpoint.shapes),
    labels=(),
    path=checkpoint.prefix,
    vocabulary=vocabulary if vocabulary.exists() else None,
  )
  return _import(source, options, on_progress)


def read_saved(
  saved: SavedModel,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> ImportedModel:
  """The model in a checkpoint of this project."""
  return _import(_saved_source(saved, options.num_hidden_layers), options, on_progress)


def _saved_source(saved: SavedModel, num_hidden_layers: int | None = None) -> 'Source':
  return Source(
    _SavedTensors(saved, num_hidden_layers),
    saved.config,
    form=OURS,
    head=saved.head,
    labels=saved.labels,
    path=str(saved.folder),
    vocabulary=saved.vocabulary,
  )


def architecture(path: epath.PathLike) -> RemBertConfig:
  """Of the model in a workdir, a checkpoint or a folder of Hugging Face; does not start JAX."""
  return open_saved(path).config if find_checkpoint(path) is not None else open_source(path).config


def open_source(path: epath.PathLike, num_hidden_layers: int | None = None) -> 'Source':
  """The tensors of a workdir, a checkpoint or a folder of Hugging Face, unread; UsageError if there are none.

  Args:
    path: where they are.
    num_hidden_layers: as many of the bottom layers are shown; None for all. In a folder of Hugging Face each layer has
      tensors of its own, and all of them are.
  """
  if find_checkpoint(path) is not None:
    return _saved_source(open_saved(path), num_hidden_layers)
  if not is_remote(path) and huggingface.is_model_folder(pathlib.Path(path)):
    return _hugging_face_source(path)
  raise UsageError(
    'nothing to load',
    where=str(path),
    fix='name a workdir with checkpoints/, one checkpoint in it, or a folder of Hugging Face with config.json',
  )


def save(imported: ImportedModel, workdir: epath.PathLike, vocabulary: epath.PathLike | None, **facts: Any) -> None:
  """Writes a workdir: checkpoint of step 0, `config.gin`, vocabulary; UsageError if it holds checkpoints already.

  Args:
    imported: the model.
    workdir: a new folder, local or in a bucket.
    vocabulary: a SentencePiece model to put in; None if there is none.
    **facts: JSON, kept with the checkpoint: where the model came from.
  """
  workdir = epath.Path(workdir)
  if find_checkpoint(workdir):
    raise UsageError('the destination holds checkpoints', where=str(workdir), fix='name a new folder')
  is_new = not workdir.exists()
  with write_errors('the workdir', workdir), contextlib.ExitStack() as on_failure:
    if is_new:
      on_failure.callback(lambda: workdir.exists() and workdir.rmtree())
    if vocabulary is not None:
      write_whole(workdir / 'vocabulary' / 'sentencepiece.model', epath.Path(vocabulary).read_bytes())
    write_whole(workdir / 'config.gin', config_gin(imported.config))
    save_model(workdir, imported.leaves, imported.config, imported.head, imported.labels, **facts)
    on_failure.pop_all()  # all is well: nothing to take away


# --- sources ----------------------------------------------------------------------------------------------------------


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
    self, config: RemBertConfig, head: str | None, num_labels: int | None = 1, *, has_pooler: bool = True
  ) -> list[Slot]:
    """The tensors of a model; those of our own checkpoints are its very parameters."""
    find = own_slots if self.form == OURS else slots
    return find(config, head, num_labels=num_labels, has_pooler=has_pooler)

  def names(self, model: Iterable[Slot], prefix: str = '') -> set[str]:
    """What the tensors of a model, or of a part of it, are called here."""
    return {slot.name(self.form) for slot in model if slot.leaf.startswith(prefix)}


class _SavedTensors:
  """`Tensors` of our own checkpoint: parameters by path, without padding rows, and the bottom layers only."""

  def __init__(self, saved: SavedModel, num_layers: int | None):
    self._saved = saved
    self._parts = {}
    for path, shape in saved.shapes.items():
      if path.startswith('encoder/layers/'):
        self._parts[path] = num_layers or shape[0]
      elif has_row_per_piece(path):
        self._parts[path] = saved.config.vocab_size
    self.shapes = {path: (self._parts.get(path, shape[0]), *shape[1:]) for path, shape in saved.shapes.items()}

  def read(self, name: str) -> np.ndarray:
    """See `Tensors`."""
    return self._saved.read(name)[: self._parts.get(name)]


def _without_redundant(tensors: Renamed, config: RemBertConfig) -> tuple[Renamed, RemBertConfig]:
  """Without what Hugging Face's model has in any case: a projection that changes nothing, a copy of a tied table."""
  projection, word, decoder = (
    'encoder.embedding_hidden_mapping_in.',
    'embeddings.word_embeddings.weight',
    'cls.predictions.decoder.weight',
  )
  names, shapes = dict(tensors.names), tensors.shapes
  width = config.hidden_size
  if config.always_project_embeddings and shapes.get(f'{projection}weight') == (width, width):
    is_identity = np.array_equal(tensors.read(f'{projection}weight'), np.eye(width, dtype=np.float32))
    if is_identity and not np.any(tensors.read(f'{projection}bias')):
      config = dataclasses.replace(config, always_project_embeddings=False)
      names = {name: theirs for name, theirs in names.items() if not name.startswith(projection)}
  if config.tie_word_embeddings and decoder in names and word in names:
    if shapes[decoder] == shapes[word] and np.array_equal(tensors.read(decoder), tensors.read(word)):
      del names[decoder]
    else:
      config = dataclasses.replace(config, tie_word_embeddings=False)
  return Renamed(tensors.tensors, names), config


# --- from tensors to parameters ---------------------------------------------------------------------------------------


def _import(source: Source, options: ImportOptions, on_progress) -> ImportedModel:
  form, tensors, config = source.form, source.tensors, source.config
  head = source.head if options.head == AS_SAVED else options.head
  num_labels = _num_labels(source, head, options.num_labels)
  # Who asks for one head, or for fewer layers, asks to leave out the rest; no head has a use for a pooler but these.
  everything = [slot for any_head in HEADS for slot in source.slots(_untied(config), any_head)]
  not_wanted = source.names(everything, 'encoder/pooler/' if options.head == AS_SAVED else '')

  # --- layers ----------------------------------------------------------------
  if options.num_hidden_layers is not None:
    if not 0 < options.num_hidden_layers <= config.num_hidden_layers:
      raise UsageError(
        f'{options.num_hidden_layers} layers cannot be kept of {config.num_hidden_layers}',
        where='num_hidden_layers',
        fix=f'1 to {config.num_hidden_layers}',
      )
    not_wanted |= source.names(everything, 'encoder/layers/')
    config = dataclasses.replace(config, num_hidden_layers=options.num_hidden_layers)

  # --- vocabulary ------------------------------------------------------------
  rows = {}
  for slot in source.slots(_untied(config), 'mlm'):
    size = options.output_vocab_size if slot.leaf.startswith('mlm/') else options.input_vocab_size
    if slot.has_row_per_piece and size and slot.name(form) in tensors.shapes:
      rows[slot.name(form)] = size
  tensors = Resized(tensors, rows, config.initializer_range)
  config = dataclasses.replace(config, vocab_size=options.input_vocab_size or config.vocab_size)

  # --- what there is, and what is wanted -------------------------------------
  pooler = source.names(source.slots(config, None), 'encoder/pooler/')
  has_pooler = head in POOLED or (head in (None, 'mlm') and pooler <= tensors.shapes.keys())
  model = source.slots(config, head, num_labels, has_pooler=has_pooler)
  not_wanted -= source.names(model)
  kept = Renamed(tensors, {name: name for name in tensors.shapes if name not in not_wanted})
  missing, unexpected = check(
    kept,
    model,
    form,
    where=source.path,
    allow_missing=options.allow_missing,
    allow_unexpected=options.allow_unexpected,
  )

  # --- parameters ------------------------------------------------------------
  leaves = assemble(
    kept,
    model,
    form,
    shapes=parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler),
    missing=missing,
    config=config,
    on_progress=on_progress,
  )
  return ImportedModel(
    leaves=leaves,
    config=config,
    head=head,
    labels=_labels(source, head, num_labels),
    num_labels=num_labels,
    missing=tuple(missing),
    left_out=(*unexpected, *sorted(not_wanted & tensors.shapes.keys())),
    vocabulary=source.vocabulary,
  )


_CLASSIFIERS = ('classification', 'tagging')


def _untied(config: RemBertConfig) -> RemBertConfig:
  """With every tensor that there can be."""
  return dataclasses.replace(config, tie_word_embeddings=False)


def _num_labels(source: Source, head: str | None, asked_for: int | None) -> int | None:
  if head not in _CLASSIFIERS:
    return FIXED_LABELS.get(head)
  [bias] = source.names(source.slots(source.config, head), 'classifier/bias')
  num_labels = asked_for or (source.tensors.shapes.get(bias) or (None,))[0]
  if num_labels is None:
    raise UsageError(
      f'the checkpoint has no head for {head} to take the number of labels from',
      where=source.path,
      fix=['--num_labels=N --allow_missing', 'in Python: num_labels=N, new_head=True'],
    )
  return num_labels


def _labels(source: Source, head: str | None, num_labels: int | None) -> tuple[str, ...]:
  if head not in _CLASSIFIERS:
    return ()
  if len(source.labels) == num_labels:
    return source.labels
  return tuple(f'LABEL_{index}' for index in range(num_labels))
