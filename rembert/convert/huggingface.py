"""A Hugging Face model directory: `config.json`, weights and, in an export, tokenizer files and a model card."""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import safetensors
import safetensors.numpy
from etils import epath

from rembert.convert.hub import TO_SAFETENSORS
from rembert.convert.tensor_names import AS_SAVED, ENCODER_PREFIX, OURS, Source, Tensor, Tensors, slots
from rembert.errors import UsageError
from rembert.files import inside, is_remote, parsed_json, read_text, write_errors
from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, POOLED
from rembert.tokenizer import find_vocabulary

FORM = 'hugging_face'
_ARCHITECTURES = {
  None: 'RemBertModel',
  'mlm': 'RemBertForMaskedLM',
  'regression': 'RemBertForSequenceClassification',  # with one label; `classification` in all other cases
  'classification': 'RemBertForSequenceClassification',
  'tagging': 'RemBertForTokenClassification',
  'qa': 'RemBertForQuestionAnswering',
  'multiple_choice': 'RemBertForMultipleChoice',
}
# Hugging Face's models with other heads have no pooler, and loading one would fail.
_POOLED = (None, *POOLED)
_ACTIVATIONS = {'gelu': 'gelu', 'gelu_pytorch_tanh': 'gelu_tanh', 'gelu_new': 'gelu_tanh', 'gelu_fast': 'gelu_tanh'}
_OURS_ALONE = ('pad_vocab_to_multiple_of', 'always_project_embeddings', 'hidden_act')
_SHARED_FIELDS = [field.name for field in dataclasses.fields(RemBertConfig) if field.name not in _OURS_ALONE]
_BUFFER = 'embeddings.position_ids'  # no parameter, but older versions of transformers saved it
_PROJECTION = 'encoder.embedding_hidden_mapping_in'
_WORD, _DECODER = 'embeddings.word_embeddings.weight', 'cls.predictions.decoder.weight'
_WEIGHTS, _FETCH = 'model.safetensors', 'fetch the file again'


def open_source(folder: pathlib.Path) -> Source:
  """The model of a directory, with any head, its tensors unread; UsageError if it is corrupt or not RemBERT."""
  description = read_description(folder)
  tensors = {
    name.removeprefix(ENCODER_PREFIX): tensor
    for name, tensor in open_weights(folder).items()
    if not name.endswith(_BUFFER)
  }
  head = _head_of(tensors, description.head)
  tensors, config = _without_redundant(tensors, description.config)
  labels = () if head in FIXED_LABELS else description.labels
  return dataclasses.replace(description, tensors=tensors, config=config, head=head, labels=labels)


def describe_source(folder: pathlib.Path) -> Source | None:
  """The model that `config.json` describes; its tensors have shapes and no values.

  None if the weights decide about the architecture: see `_without_redundant`.
  """
  described = read_description(folder)
  config = described.config
  if config.always_project_embeddings or config.tie_word_embeddings:
    return None

  def read() -> np.ndarray:
    raise AssertionError('the weights of a described model are not there')

  model = slots(config, described.head, num_labels=len(described.labels), has_pooler=True)
  tensors = {slot.name(FORM): Tensor(slot.shape_in(FORM), read) for slot in model}
  labels = () if described.head in FIXED_LABELS else described.labels
  # The tokenizer is fetched with the weights.
  vocabulary = epath.Path(folder / 'sentencepiece.model')
  return dataclasses.replace(described, tensors=tensors, labels=labels, vocabulary=vocabulary)


def _head_of(names: Iterable[str], described: str | None) -> str | None:
  """The head of the weights: names of tensors decide, the described head only between those with the same names."""
  modules = {name.partition('.')[0] for name in names}
  if 'cls' in modules:
    return 'mlm'
  if 'qa_outputs' in modules:
    return 'qa'
  if 'classifier' in modules:
    return described if described in ('tagging', 'multiple_choice', 'regression') else 'classification'
  return None


def _without_redundant(tensors: dict[str, Tensor], config: RemBertConfig) -> tuple[dict[str, Tensor], RemBertConfig]:
  """Without what Hugging Face's model always has: a projection that changes nothing, a copy of a tied embedding."""
  width = config.hidden_size
  kernel, bias = (tensors.get(f'{_PROJECTION}.{name}') for name in ('weight', 'bias'))
  word, decoder = tensors.get(_WORD), tensors.get(_DECODER)
  if config.always_project_embeddings and kernel and bias and kernel.shape == (width, width):
    is_identity = np.array_equal(kernel.read(), np.eye(width, dtype=np.float32))
    if is_identity and not np.any(bias.read()):
      config = dataclasses.replace(config, always_project_embeddings=False)
      tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PROJECTION)}
  if config.tie_word_embeddings and word and decoder:
    if decoder.shape == word.shape and np.array_equal(decoder.read(), word.read()):
      tensors = {name: tensor for name, tensor in tensors.items() if name != _DECODER}
    else:
      config = dataclasses.replace(config, tie_word_embeddings=False)
  return tensors, config


# --- configuration ----------------------------------------------------------------------------------------------------


def read_description(folder: pathlib.Path) -> Source:
  """The model of `config.json`, without tensors; UsageError if it is not a RemBERT encoder.

  It always has a projection, as Hugging Face's model has even if I = H; the head is that of the architecture.
  """
  file = folder / 'config.json'

  def refuse(what: str, field: str, fix: str = f'{_FETCH}, or fix it') -> NoReturn:
    raise UsageError(what, where=f'{file}: {field}', fix=fix)

  content = parsed_json(read_text(file, what='the configuration', fix='name a Hugging Face model directory'), file)
  kind = content.get('model_type') if isinstance(content, dict) else None
  if kind != 'rembert':
    refuse(f'the model is {kind!r}, not a rembert', 'model_type', 'only RemBERT can be converted')
  if content.get('is_decoder'):
    refuse('the model is a decoder', 'is_decoder', 'only encoders can be converted')
  activation = content.get('hidden_act', 'gelu')
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    refuse(f'unknown activation {activation!r}', 'hidden_act', f'one of {", ".join(_ACTIVATIONS)}')
  fields = {name: content[name] for name in _SHARED_FIELDS if content.get(name) is not None}
  try:
    config = RemBertConfig(**fields, hidden_act=_ACTIVATIONS[activation], always_project_embeddings=True)
  except UsageError as error:  # names gin's fields, and this is a file
    refuse(error.what, error.where.replace('RemBertConfig.', ''))
  for name in ('pad_token_id', 'bos_token_id', 'eos_token_id'):
    if fields.get(name, 0) >= config.vocab_size:
      refuse(f'{name} must be below vocab_size, {config.vocab_size}', f'{name} = {fields[name]}')
  labels = content.get('id2label') or {}
  if not (isinstance(labels, dict) and all(index.isdecimal() for index in labels)):
    refuse('id2label must map numbers to names', 'id2label', '"id2label": {"0": "no", "1": "yes"}')
  # If I ≠ H there is one anyway, and two ways to say the same would be two models to a checkpoint.
  config = dataclasses.replace(config, always_project_embeddings=config.input_embedding_size == config.hidden_size)
  architectures = content.get('architectures')
  named = architectures[0] if isinstance(architectures, list) and architectures else None
  head = next((head for head, name in reversed(_ARCHITECTURES.items()) if name == named), None)
  if head == 'classification' and len(labels) == 1 and content.get('problem_type') in (None, 'regression'):
    head = 'regression'  # as transformers decides
  names = tuple(str(labels[index]) for index in sorted(labels, key=int))
  return Source(str(folder), FORM, {}, config, head, names, find_vocabulary(folder))


def config_json(config: RemBertConfig, head: str | None, labels: Sequence[str]) -> dict[str, Any]:
  """The content of `config.json` for an export."""
  hugging_face = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
  content = {
    'architectures': [_ARCHITECTURES[head]],
    'model_type': 'rembert',
    **{name: getattr(config, name) for name in _SHARED_FIELDS},
    'hidden_act': hugging_face[config.hidden_act],
    'cls_token_id': config.bos_token_id,
    'sep_token_id': config.eos_token_id,
    'dtype': 'float32',
    'torch_dtype': 'float32',
  }
  if head in ('classification', 'tagging'):
    content['id2label'] = {str(index): label for index, label in enumerate(labels)}
    content['label2id'] = {label: index for index, label in enumerate(labels)}
  if head == 'regression':
    content |= {'problem_type': 'regression', 'id2label': {'0': 'LABEL_0'}, 'label2id': {'LABEL_0': 0}}
  return content


# --- weights ----------------------------------------------------------------------------------------------------------


def open_weights(folder: pathlib.Path) -> dict[str, Tensor]:
  """The tensors of `model.safetensors` or its shards, mapped into memory; UsageError if one is missing or corrupt."""
  index_file, files = folder / f'{_WEIGHTS}.index.json', [folder / _WEIGHTS]
  if not files[0].is_file() and index_file.is_file():
    try:
      weight_map = parsed_json(index_file.read_bytes(), index_file)['weight_map']
      files = sorted({pathlib.Path(inside(folder, shard, where=index_file)) for shard in weight_map.values()})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
      raise UsageError(f'not an index of shards: {error!r}', where=str(index_file), fix=_FETCH) from error
  if absent := [file.name for file in files if not file.is_file()]:
    raise UsageError(
      f'{len(absent)} of {len(files)} weights files are missing: {", ".join(absent)}',
      where=str(folder),
      fix=['fetch them into the same directory', f'from other formats: {TO_SAFETENSORS}'],
    )
  tensors = {}
  for file in files:
    try:
      handle = safetensors.safe_open(file, framework='np')
      for name in list(handle.keys()):
        shape = tuple(handle.get_slice(name).get_shape())
        read = lambda handle=handle, name=name: handle.get_tensor(name).astype(np.float32, copy=False)
        tensors[name] = Tensor(shape, read)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
      raise UsageError(f'a damaged safetensors file: {error}', where=str(file), fix=_FETCH) from error
  return tensors


def write_weights(
  folder: pathlib.Path,
  tensors: Tensors,
  *,
  shard_bytes: int,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> None:
  """Writes `model.safetensors`, or shards with their index if it would be larger than `shard_bytes`.

  One shard is in memory at a time; a shard is larger only if it is a single tensor. `on_progress` receives the
  fraction written.
  """
  import huggingface_hub

  size_of = lambda tensor: 4 * math.prod(tensor.shape)
  split = huggingface_hub.split_state_dict_into_shards_factory(
    dict(tensors), get_storage_size=size_of, filename_pattern='model{suffix}.safetensors', max_shard_size=shard_bytes
  )
  written, total = 0, split.metadata['total_size']
  for file, names in split.filename_to_tensors.items():
    content = {name: tensors[name].read() for name in names}
    safetensors.numpy.save_file(content, folder / file, metadata={'format': 'pt'})
    (folder / file).chmod(0o644)  # the library writes for the owner alone
    written += sum(size_of(tensors[name]) for name in names)
    on_progress(written / total)
  if split.is_sharded:
    index = {'metadata': split.metadata, 'weight_map': split.tensor_to_filename}
    (folder / 'model.safetensors.index.json').write_text(json.dumps(index, indent=2))


# --- export -----------------------------------------------------------------------------------------------------------


class Export(NamedTuple):
  """What was written: a model with this head and number of parameters; tokenizer files if there was a vocabulary.

  `left_out` are parameters of the checkpoint that the model has no place for.
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
  """Writes `config.json`, weights, tokenizer files and a model card to a new local directory; all of them, or nothing.

  Args:
    source: a checkpoint of this project.
    head: that of the checkpoint, or None to leave it out.
    vocabulary: a SentencePiece model; by default that of the checkpoint's run.
    name: an id of the Hub, for the model card; by default the name of the directory.
    shard_bytes: see `write_weights`.
    on_progress: see `write_weights`.

  Raises:
    UsageError: it is not such a checkpoint, or lacks the head or parameters; the directory exists, or is in a bucket.
  """
  from rembert.convert.model_card import model_card
  from rembert.convert.tokenizer_files import write_tokenizer

  if is_remote(folder):
    raise UsageError('safetensors are written to local disks', where=str(folder), fix='export here, then copy')
  if source.form != OURS:
    raise UsageError(
      'the model is not a checkpoint of this project', where=source.path, fix='name a workdir, or a checkpoint of one'
    )
  folder, head = pathlib.Path(folder), source.head if head == AS_SAVED else head
  if head not in (None, source.head):
    raise UsageError(
      f'the checkpoint has {"no head" if source.head is None else f"a head for {source.head}"}, not for {head}',
      where=source.path,
      fix='leave --head out, or --head=none for the encoder alone',
    )
  bias = source.tensors.get('classifier/bias')
  has_pooler = head in _POOLED and 'encoder/pooler/kernel' in source.tensors
  model = slots(source.config, head, num_labels=bias.shape[0] if bias else None, has_pooler=has_pooler)
  leaves = {slot.leaf for slot in model}
  if lacking := sorted(leaves - source.tensors.keys()):
    raise UsageError(
      f'the checkpoint lacks {len(lacking)} parameters, for example {lacking[0]}',
      where=source.path,
      fix='it was written by another version, or is corrupt: try an earlier step',
    )

  # --- tensors, in the order in which each parameter is read once ---------------
  config, width = source.config, source.config.hidden_size
  prefix = '' if head is None else ENCODER_PREFIX
  read = functools.lru_cache(maxsize=1)(lambda leaf: source.tensors[leaf].read())  # often the next tensor's too
  their_name = lambda slot: (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face
  take = lambda slot: slot.take(read(slot.leaf), FORM)
  tensors = {
    their_name(slot): Tensor(slot.shape_in(FORM), functools.partial(take, slot))
    for slot in sorted(model, key=lambda slot: slot.leaf)
  }
  if not config.projects_embeddings:
    # Hugging Face's model always projects: here by the identity, which changes no bit.
    tensors[f'{prefix}{_PROJECTION}.weight'] = Tensor((width, width), lambda: np.eye(width, dtype=np.float32))
    tensors[f'{prefix}{_PROJECTION}.bias'] = Tensor((width,), lambda: np.zeros(width, np.float32))
  if head == 'mlm' and config.tie_word_embeddings:
    tensors[_DECODER] = tensors[prefix + _WORD]

  # --- files -----------------------------------------------------------------
  vocabulary = source.vocabulary if vocabulary is None else epath.Path(vocabulary)
  with write_errors('the export', folder), _new_folder(folder) as partial:
    (partial / 'config.json').write_text(json.dumps(config_json(config, head, source.labels), indent=2))
    if vocabulary is not None:
      write_tokenizer(vocabulary, partial, longest=config.max_position_embeddings)
    (partial / 'README.md').write_text(model_card(source, head, name=name or folder.name))
    write_weights(partial, tensors, shard_bytes=shard_bytes, on_progress=on_progress)
  parameters = sum(math.prod(slot.shape) for slot in model)
  return Export(head, parameters, tuple(sorted(source.tensors.keys() - leaves)), vocabulary is not None)


@contextlib.contextmanager
def _new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A directory that appears under its name if the block succeeds, and is deleted otherwise."""
  if path.exists() and (not path.is_dir() or any(path.iterdir())):
    raise UsageError('the destination exists', where=str(path), fix='name a new folder')
  partial = path.with_name(f'{path.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  try:
    partial.mkdir(parents=True)
    yield partial
    if path.exists():
      path.rmdir()
    partial.replace(path)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
