"""Into this project: a folder of Hugging Face, an original checkpoint or one of our own becomes parameters.

Whatever they come from, one function compares what there is with what the wanted model has, and assembles it.
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.checkpoint.load import (
  Source,
  config_gin,
  find_checkpoint,
  hugging_face_source,
  open_source,
  read_newest,
  save_model,
  saved_source,
)
from rembert.convert.tensor_names import Slot, Tensor, Tensors, slots
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
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


def read_model(
  path: epath.PathLike,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
  *,
  step: int | None = None,
) -> ImportedModel:
  """The model in a workdir (at `step`, else the newest), a checkpoint or a folder of Hugging Face.

  UsageError where there is none, or it is damaged or does not fit.
  """
  if find_checkpoint(path, step) is None:
    return _import(open_source(path), options, on_progress)
  read = lambda saved: _import(saved_source(saved, options.num_hidden_layers), options, on_progress)
  return read_newest(path, step, read)


def read_hugging_face(
  folder: epath.PathLike,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> ImportedModel:
  """The model in a folder of Hugging Face, of any head; UsageError where it is damaged or does not fit."""
  return _import(hugging_face_source(folder), options, on_progress)


def read_tensorflow(
  path: epath.PathLike,
  options: ImportOptions = ImportOptions(),
  on_progress: Callable[[float], None] = lambda fraction: None,
  **description,
) -> ImportedModel:
  """The model in an original checkpoint; `description` goes to `tensorflow.describe`."""
  from rembert.convert import tensorflow

  prefix, tensors = tensorflow.open_checkpoint(path)
  vocabulary = epath.Path(prefix).parent / 'sentencepiece.model'
  source = Source(
    tensors,
    tensorflow.describe(tensors, prefix, **description),
    form=tensorflow.FORM,
    head=tensorflow.head_of(tensors),
    labels=(),
    path=prefix,
    vocabulary=vocabulary if vocabulary.exists() else None,
  )
  return _import(source, options, on_progress)


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


# --- from tensors to parameters ---------------------------------------------------------------------------------------


def _import(source: Source, options: ImportOptions, on_progress) -> ImportedModel:
  form, config = source.form, source.config
  head = source.head if options.head == AS_SAVED else options.head
  num_labels = _num_labels(source, head, options.num_labels)
  # Who asks for one head, or for fewer layers, asks to leave out the rest; no head has a use for a pooler but these.
  everything = [slot for any_head in HEADS for slot in _all_slots(config, any_head)]
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
  tensors = dict(source.tensors)
  for slot in _all_slots(config, 'mlm'):
    size = options.output_vocab_size if slot.leaf.startswith('mlm/') else options.input_vocab_size
    if slot.has_row_per_piece and size and (name := slot.name(form)) in tensors:
      tensors[name] = resized(name, tensors[name], size, config.initializer_range)
  config = dataclasses.replace(config, vocab_size=options.input_vocab_size or config.vocab_size)

  # --- what there is, and what is wanted -------------------------------------
  pooler = source.names(_all_slots(config, None), 'encoder/pooler/')
  has_pooler = head in POOLED or (head in (None, 'mlm') and pooler <= tensors.keys())
  model = source.slots(config, head, num_labels, has_pooler=has_pooler)
  not_wanted -= source.names(model)
  kept = {name: tensor for name, tensor in tensors.items() if name not in not_wanted}
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
    left_out=(*unexpected, *sorted(not_wanted & tensors.keys())),
    vocabulary=source.vocabulary,
  )


_CLASSIFIERS = ('classification', 'tagging')


def _all_slots(config: RemBertConfig, head: str | None) -> list[Slot]:
  """Every tensor that there can be, for their names: their shapes may be others."""
  return slots(dataclasses.replace(config, tie_word_embeddings=False), head, num_labels=1, has_pooler=True)


def _num_labels(source: Source, head: str | None, asked_for: int | None) -> int | None:
  if head not in _CLASSIFIERS:
    return None if head is None else FIXED_LABELS.get(head)
  [name] = source.names(_all_slots(source.config, head), 'classifier/bias')
  bias = source.tensors.get(name)
  num_labels = asked_for or (bias.shape[0] if bias and bias.shape else None)
  if num_labels is None:
    raise UsageError(
      f'the checkpoint has no head for {head} to take the number of labels from',
      where=source.path,
      fix=['--num_labels=N --allow_missing', 'in Python: num_labels=N, new_head=True'],
    )
  return num_labels


def _labels(source: Source, head: str | None, num_labels: int | None) -> tuple[str, ...]:
  if num_labels is None or head not in _CLASSIFIERS:
    return ()
  if len(source.labels) == num_labels:
    return source.labels
  return tuple(f'LABEL_{index}' for index in range(num_labels))


# --- checked, resized, assembled --------------------------------------------------------------------------------------


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
