"""Into this project: tensors of whatever format become the parameters of a model.

What is missing, unexpected or of another shape is listed before anything is read. `import_model` may change the model
(head, layers), `rembert.checkpoint.initialize` takes parameters for a model that is given.
"""

import contextlib
import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.checkpoint.load import config_gin, find_checkpoint, save_model
from rembert.convert.tensor_names import Slot, Source, Tensor, slots
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, HEADS, POOLED, parameter_shapes

AS_SAVED = 'as saved'
_CLASSIFIERS = ('classification', 'tagging')
_LISTED = 12


@dataclasses.dataclass(frozen=True)
class ImportedModel:
  """Parameters by path, float32, and what they are the parameters of.

  Attributes:
    leaves: by path.
    config: the architecture.
    head: see `HEADS`.
    labels: of a classifier, by index.
    num_labels: of any head but `mlm`.
    missing: names that the checkpoint lacked, newly initialised.
    left_out: names of the checkpoint that the model has no place for.
    source: the checkpoint.
  """

  leaves: Mapping[str, np.ndarray]
  config: RemBertConfig
  head: str | None
  labels: tuple[str, ...]
  num_labels: int | None
  missing: tuple[str, ...]
  left_out: tuple[str, ...]
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
    allow_unexpected: leave out tensors that the model has no place for.
    on_progress: called with the fraction that has been read.

  Raises:
    UsageError: tensors are missing, unexpected or of another shape, or damaged.
  """
  form, config = source.form, source.config
  is_as_saved, head = head == AS_SAVED, source.head if head == AS_SAVED else head
  num_labels = _num_labels(source, head, num_labels)
  # A request for one head, or for fewer layers, leaves out the rest; other heads have no use for a pooler.
  everything = [slot for any_head in HEADS for slot in _all_slots(config, any_head)]
  not_wanted = source.names(everything, 'encoder/pooler/' if is_as_saved else '')

  # --- layers ----------------------------------------------------------------
  if num_hidden_layers is not None:
    if not 0 < num_hidden_layers <= config.num_hidden_layers:
      raise UsageError(
        f'{num_hidden_layers} layers cannot be kept of {config.num_hidden_layers}',
        where='num_hidden_layers',
        fix=f'1 to {config.num_hidden_layers}',
      )
    not_wanted |= source.names(everything, 'encoder/layers/')
    source = source.bottom_layers(num_hidden_layers)
    config = source.config

  # --- existing and expected tensors -----------------------------------------
  tensors = source.tensors
  pooler = source.names(_all_slots(config, None), 'encoder/pooler/')
  has_pooler = head in POOLED or (head in (None, 'mlm') and pooler <= tensors.keys())
  model = source.slots(config, head, num_labels, has_pooler=has_pooler)
  not_wanted -= source.names(model)
  kept = {name: tensor for name, tensor in tensors.items() if name not in not_wanted}
  found = dataclasses.replace(source, tensors=kept)
  missing, unexpected = check(found, model, allow_missing=allow_missing, allow_unexpected=allow_unexpected)

  # --- parameters ------------------------------------------------------------
  labels = tuple(f'LABEL_{index}' for index in range(num_labels or 0)) if head in _CLASSIFIERS else ()
  if len(source.labels) == len(labels):
    labels = source.labels
  initial = {slot.name(form): _initial(slot, form, config) for slot in model if slot.name(form) in missing}
  found = dataclasses.replace(source, tensors=kept | initial)
  shapes = parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler)
  return ImportedModel(
    leaves=dict(read_parameters(found, model, shapes, on_progress)),
    config=config,
    head=head,
    labels=labels,
    num_labels=num_labels,
    missing=tuple(missing),
    left_out=(*unexpected, *sorted(not_wanted & tensors.keys())),
    source=source,
  )


def save(imported: ImportedModel, workdir: epath.PathLike, vocabulary: epath.PathLike | None, /, **facts: Any) -> None:
  """Writes a workdir: checkpoint of step 0 with `facts` (JSON), `config.gin`, and the vocabulary if there is one.

  Raises:
    UsageError: the workdir holds checkpoints already.
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
    on_failure.pop_all()  # success: nothing to remove


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


# --- from tensors to parameters ---------------------------------------------------------------------------------------


def check(
  source: Source, slots: Sequence[Slot], *, allow_missing: bool = False, allow_unexpected: bool = False
) -> tuple[list[str], list[str]]:
  """Names of the tensors that the checkpoint lacks, and of those that the model has no place for.

  Raises:
    UsageError: anything missing or unexpected that is not allowed, or of another shape.
  """
  form = source.form
  wanted = {slot.name(form): slot for slot in slots}
  found = {name: tensor.shape for name, tensor in source.tensors.items()}
  missing = [name for name in wanted if name not in found]
  unexpected = [name for name in found if name not in wanted]
  misshaped = [
    f'{name} is {list(found[name])}, not {list(slot.shape_in(form))}'
    for name, slot in wanted.items()
    if name in found and found[name] != slot.shape_in(form)
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

  The source is checked; `shapes` are those of the parameters, by path. Several slots make a parameter where it holds
  all layers, or query, key and value.
  """
  done = 0
  for leaf, parts in itertools.groupby(sorted(slots, key=lambda slot: slot.leaf), key=lambda slot: slot.leaf):
    parameter = np.zeros(shapes[leaf], np.float32)
    for slot in parts:
      slot.put(parameter, source.tensors[slot.name(source.form)].read(), source.form)
      done += 1
    yield leaf, parameter
    on_progress(done / len(slots))


def _initial(slot: Slot, form: str, config: RemBertConfig) -> Tensor:
  """A tensor that the checkpoint lacks: LayerNorm scales 1, biases 0, kernels and tables from the initialiser.

  That is cut at two standard deviations, and the same for the same part of a parameter.
  """
  shape = slot.shape_in(form)
  if slot.leaf.endswith('/scale'):
    return Tensor(shape, lambda: np.ones(shape, np.float32))
  if slot.leaf.endswith('/bias'):
    return Tensor(shape, lambda: np.zeros(shape, np.float32))

  def truncated_normal() -> np.ndarray:
    import jax

    key = jax.random.fold_in(jax.random.key(0), zlib.crc32((slot.leaf + str(slot.index)).encode()))
    return np.array(jax.random.truncated_normal(key, -2, 2, shape)) * np.float32(config.initializer_range)

  return Tensor(shape, truncated_normal)
