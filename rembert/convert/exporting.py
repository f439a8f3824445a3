"""Out of this project: a checkpoint becomes a folder that Hugging Face's libraries load."""

import dataclasses
import functools
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
from rembert.convert.tensor_names import ENCODER_PREFIX, Slot, Tensor, slots
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
  tensors = exported_tensors(saved, model, head)
  vocabulary = saved.vocabulary if vocabulary is None else epath.Path(vocabulary)
  folder = pathlib.Path(folder)
  with write_errors('the export', folder), huggingface.new_folder(folder) as partial:
    content = huggingface.config_json(saved.config, head, saved.labels)
    (partial / 'config.json').write_text(json.dumps(content, indent=2))
    if vocabulary is not None:
      write_tokenizer(vocabulary, partial, longest=saved.config.max_position_embeddings)
    (partial / 'README.md').write_text(model_card(saved, head, name=folder.name))
    huggingface.write_weights(partial, tensors, shard_bytes=shard_bytes, on_progress=on_progress)
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


def exported_tensors(saved: SavedModel, model: list[Slot], head: str | None) -> dict[str, Tensor]:
  """Hugging Face's tensors out of a checkpoint, in the order in which each parameter is read once."""
  prefix = '' if head is None else ENCODER_PREFIX
  name = lambda slot: (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face
  read = functools.lru_cache(maxsize=1)(saved.read)  # the next tensor is often in the same parameter
  take = lambda slot: slot.take(read(slot.leaf), huggingface.FORM)
  tensors = {
    name(slot): Tensor(slot.shape_in(huggingface.FORM), functools.partial(take, slot))
    for slot in sorted(model, key=lambda slot: slot.leaf)
  }
  config, width = saved.config, saved.config.hidden_size
  if not config.projects_embeddings:
    # Theirs projects in any case: here by a product that changes nothing, to the bit.
    projection = f'{prefix}encoder.embedding_hidden_mapping_in'
    tensors[f'{projection}.weight'] = Tensor((width, width), lambda: np.eye(width, dtype=np.float32))
    tensors[f'{projection}.bias'] = Tensor((width,), lambda: np.zeros(width, np.float32))
  if head == 'mlm' and config.tie_word_embeddings:
    tensors['cls.predictions.decoder.weight'] = tensors[f'{prefix}embeddings.word_embeddings.weight']
  return tensors
