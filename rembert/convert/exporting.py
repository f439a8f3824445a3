"""Out of this project: a checkpoint becomes a folder that Hugging Face's libraries load."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable

import numpy as np
from etils import epath

from rembert.checkpoint.load import SavedModel
from rembert.convert import huggingface
from rembert.convert.importing import AS_SAVED
from rembert.convert.model_card import model_card
from rembert.convert.tensor_names import ENCODER_PREFIX, Slot, slots
from rembert.convert.tokenizer_files import write_tokenizer
from rembert.errors import UsageError
from rembert.files import is_remote, write_errors

_POOLED = (None, 'classification', 'multiple_choice')


@dataclasses.dataclass(frozen=True)
class Export:
  """What was written.

  Attributes:
    head: of the exported model.
    parameters: their number.
    left_out: parameters of the checkpoint that the exported model has no place for.
    has_tokenizer: whether a vocabulary was there to make tokenizer files of.
  """

  head: str | None
  parameters: int
  left_out: tuple[str, ...]
  has_tokenizer: bool


def export(
  saved: SavedModel,
  folder: epath.PathLike,
  *,
  head: str | None = AS_SAVED,
  vocabulary: epath.PathLike | None = None,
  shard_bytes: int = 5_000_000_000,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> Export:
  """Writes `config.json`, weights, tokenizer files and a model card; all of them, or nothing.

  Args:
    saved: the model.
    folder: a new local folder.
    head: that of the checkpoint, or None to leave it out.
    vocabulary: a SentencePiece model; by default that of the checkpoint's run.
    shard_bytes: larger weights are split into files of this size. One such is in memory at a time.
    on_progress: told the share of the bytes that are written.

  Raises:
    UsageError: the checkpoint lacks the head, the folder exists, or it is in a bucket.
  """
  if is_remote(folder):
    raise UsageError('safetensors are written to local disks', where=str(folder), fix='export here, then copy')
  head = saved.head if head == AS_SAVED else head
  if head not in (None, saved.head):
    raise UsageError(
      f'the checkpoint has {"no head" if saved.head is None else f"a head for {saved.head}"}, not for {head}',
      where=str(saved.folder),
      fix='leave --head out, or --head=none for the encoder alone',
    )
  model, left_out = exported_slots(saved, head)
  tensors = _Tensors(saved, model, head)
  vocabulary = saved.vocabulary if vocabulary is None else epath.Path(vocabulary)
  folder = pathlib.Path(folder)
  with write_errors('the export', folder), huggingface.new_folder(folder) as partial:
    content = huggingface.config_json(saved.config, head, saved.labels)
    (partial / 'config.json').write_text(json.dumps(content, indent=2))
    if vocabulary is not None:
      write_tokenizer(vocabulary, partial, longest=saved.config.max_position_embeddings)
    (partial / 'README.md').write_text(model_card(saved, head, name=folder.name))
    huggingface.write_weights(partial, tensors.bytes, tensors.read, shard_bytes=shard_bytes, on_progress=on_progress)
  parameters = sum(math.prod(slot.shape) for slot in model)
  return Export(head, parameters, tuple(left_out), vocabulary is not None)


def exported_slots(saved: SavedModel, head: str | None) -> tuple[list[Slot], list[str]]:
  """The tensors of the exported model, and the parameters of the checkpoint that are none of them.

  Hugging Face's models for masked words, tokens and questions have no pooler: theirs would refuse it.
  """
  num_labels = saved.shapes['classifier/bias'][0] if 'classifier/bias' in saved.shapes else None
  has_pooler = head in _POOLED and 'encoder/pooler/kernel' in saved.shapes
  model = slots(saved.config, head, num_labels=num_labels, has_pooler=has_pooler)
  wanted = {slot.leaf for slot in model}
  lacking = sorted(wanted - saved.shapes.keys())
  if lacking:
    raise UsageError(
      f'the checkpoint lacks {len(lacking)} parameters, {lacking[0]} for one',
      where=str(saved.folder),
      fix='it was written by another version, or is damaged: try an earlier step',
    )
  return model, sorted(saved.shapes.keys() - wanted)


class _Tensors:
  """Hugging Face's tensors out of a checkpoint; the parameter that was read last is kept: the next is often in it."""

  def __init__(self, saved: SavedModel, model: list[Slot], head: str | None):
    self._saved = saved
    self._leaf: tuple[str | None, np.ndarray] = (None, np.empty(0))
    prefix = '' if head is None else ENCODER_PREFIX
    name = lambda slot: (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face
    self._slots = {name(slot): slot for slot in model}
    self._given: dict[str, Callable[[], np.ndarray]] = {}
    config = saved.config
    if not config.projects_embeddings:
      # Theirs projects in any case: here by a product that changes nothing, to the bit.
      projection = f'{prefix}encoder.embedding_hidden_mapping_in'
      self._given[f'{projection}.weight'] = lambda: np.eye(config.hidden_size, dtype=np.float32)
      self._given[f'{projection}.bias'] = lambda: np.zeros(config.hidden_size, np.float32)
    if head == 'mlm' and config.tie_word_embeddings:
      word = next(tensor for tensor, slot in self._slots.items() if slot.leaf == 'encoder/embeddings/word/embedding')
      self._given['cls.predictions.decoder.weight'] = lambda: self.read(word)
    shapes = {tensor: slot.shape for tensor, slot in self._slots.items()}
    # Parameter by parameter, not layer by layer: each is then read once.
    order = sorted(shapes, key=lambda tensor: self._slots[tensor].leaf)
    self.bytes = {tensor: 4 * math.prod(shapes[tensor]) for tensor in order}
    self.bytes |= {tensor: make().nbytes for tensor, make in self._given.items()}

  def read(self, tensor: str) -> np.ndarray:
    """One tensor."""
    if tensor in self._given:
      return self._given[tensor]()
    slot = self._slots[tensor]
    if self._leaf[0] != slot.leaf:
      self._leaf = (slot.leaf, self._saved.read(slot.leaf))
    return slot.take(self._leaf[1], huggingface.FORM)
