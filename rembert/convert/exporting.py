"""Out of this project: a checkpoint becomes a directory that Hugging Face's libraries load."""

import functools
import json
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from etils import epath

from rembert.convert import huggingface
from rembert.convert.importing import AS_SAVED
from rembert.convert.model_card import model_card
from rembert.convert.tensor_names import ENCODER_PREFIX, OURS, Slot, Source, Tensor, slots
from rembert.convert.tokenizer_files import write_tokenizer
from rembert.errors import UsageError
from rembert.files import is_remote, write_errors
from rembert.model.heads import POOLED

# Hugging Face's models for masked words, tokens and questions have no pooler: theirs would refuse it.
_POOLED = (None, *POOLED)


class Export(NamedTuple):
  """What was written: a model with this head and number of parameters; tokenizer files if there was a vocabulary.

  `left_out` are parameters of the checkpoint that it has no place for.
  """

  head: str | None
  parameters: int
  left_out: tuple[str, ...]
  has_tokenizer: bool


def export(
  source: Source,
  folder: epath.PathLike,
  *,
  head: str | None = AS_SAVED,
  vocabulary: epath.PathLike | None = None,
  name: str | None = None,
  shard_bytes: int = 5_000_000_000,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> Export:
  """Writes `config.json`, weights, tokenizer files and a model card; all of them, or nothing.

  Args:
    source: a checkpoint of this project.
    folder: a new local directory.
    head: that of the checkpoint, or None to leave it out.
    vocabulary: a SentencePiece model; by default that of the checkpoint's run.
    name: in the model card, an id of the Hub; by default that of the folder.
    shard_bytes: see `huggingface.write_weights`.
    on_progress: see there.

  Raises:
    UsageError: it is not such a checkpoint, or lacks the head; the directory exists, or is in a bucket.
  """
  if is_remote(folder):
    raise UsageError('safetensors are written to local disks', where=str(folder), fix='export here, then copy')
  if source.form != OURS:
    raise UsageError(
      'the model is not a checkpoint of this project', where=source.path, fix='name a workdir, or a checkpoint of one'
    )
  head = source.head if head == AS_SAVED else head
  if head not in (None, source.head):
    raise UsageError(
      f'the checkpoint has {"no head" if source.head is None else f"a head for {source.head}"}, not for {head}',
      where=source.path,
      fix='leave --head out, or --head=none for the encoder alone',
    )
  model = _exported_slots(source, head)
  vocabulary = source.vocabulary if vocabulary is None else epath.Path(vocabulary)
  folder = pathlib.Path(folder)
  with write_errors('the export', folder), huggingface.new_folder(folder) as partial:
    content = huggingface.config_json(source.config, head, source.labels)
    (partial / 'config.json').write_text(json.dumps(content, indent=2))
    if vocabulary is not None:
      write_tokenizer(vocabulary, partial, longest=source.config.max_position_embeddings)
    (partial / 'README.md').write_text(model_card(source, head, name=name or folder.name))
    tensors = _exported_tensors(source, model, head)
    huggingface.write_weights(partial, tensors, shard_bytes=shard_bytes, on_progress=on_progress)
  parameters = sum(math.prod(slot.shape) for slot in model)
  left_out = sorted(source.tensors.keys() - {slot.leaf for slot in model})
  return Export(head, parameters, tuple(left_out), vocabulary is not None)


def _exported_slots(source: Source, head: str | None) -> list[Slot]:
  """The tensors of the exported model; UsageError if the checkpoint lacks parameters of it."""
  labels = source.tensors.get('classifier/bias')
  has_pooler = head in _POOLED and 'encoder/pooler/kernel' in source.tensors
  model = slots(source.config, head, num_labels=labels.shape[0] if labels else None, has_pooler=has_pooler)
  if lacking := sorted({slot.leaf for slot in model} - source.tensors.keys()):
    raise UsageError(
      f'the checkpoint lacks {len(lacking)} parameters, for example {lacking[0]}',
      where=source.path,
      fix='it was written by another version, or is damaged: try an earlier step',
    )
  return model


def _exported_tensors(source: Source, model: list[Slot], head: str | None) -> dict[str, Tensor]:
  """Hugging Face's tensors out of a checkpoint, in the order in which each parameter is read once."""
  prefix = '' if head is None else ENCODER_PREFIX
  name = lambda slot: (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face
  read = functools.lru_cache(maxsize=1)(lambda leaf: source.tensors[leaf].read())  # often the next tensor's too
  take = lambda slot: slot.take(read(slot.leaf), huggingface.FORM)
  tensors = {
    name(slot): Tensor(slot.shape_in(huggingface.FORM), functools.partial(take, slot))
    for slot in sorted(model, key=lambda slot: slot.leaf)
  }
  config, width = source.config, source.config.hidden_size
  if not config.projects_embeddings:
    # Theirs projects in any case: here by the identity, which changes no bit.
    projection = f'{prefix}encoder.embedding_hidden_mapping_in'
    tensors[f'{projection}.weight'] = Tensor((width, width), lambda: np.eye(width, dtype=np.float32))
    tensors[f'{projection}.bias'] = Tensor((width,), lambda: np.zeros(width, np.float32))
  if head == 'mlm' and config.tie_word_embeddings:
    tensors['cls.predictions.decoder.weight'] = tensors[f'{prefix}embeddings.word_embeddings.weight']
  return tensors
