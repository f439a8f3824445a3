"""A Hugging Face model folder: its configuration and weights, read and written."""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from rembert.convert.tensor_names import Tensor, Tensors
from rembert.errors import UsageError, first_line
from rembert.files import inside, parsed_json
from rembert.model.config import RemBertConfig

FORM = 'hugging_face'
_ARCHITECTURES = {
  None: 'RemBertModel',
  'mlm': 'RemBertForMaskedLM',
  'classification': 'RemBertForSequenceClassification',
  'tagging': 'RemBertForTokenClassification',
  'qa': 'RemBertForQuestionAnswering',
  'multiple_choice': 'RemBertForMultipleChoice',
}
_ACTIVATIONS = {'gelu': 'gelu', 'gelu_pytorch_tanh': 'gelu_tanh', 'gelu_new': 'gelu_tanh', 'gelu_fast': 'gelu_tanh'}
_OURS_ALONE = ('pad_vocab_to_multiple_of', 'always_project_embeddings', 'hidden_act')
_SHARED_FIELDS = [field.name for field in dataclasses.fields(RemBertConfig) if field.name not in _OURS_ALONE]
_SAFE_TORCH = (2, 6)  # before, `weights_only` could be got round (CVE-2025-32434)


# --- configuration ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Description:
  """What `config.json` says.

  Attributes:
    config: with a projection in any case: Hugging Face's model has one even where I = H.
    head: of the architecture, None for an encoder alone.
    labels: of a classifier, by index; empty where there are none.
  """

  config: RemBertConfig
  head: str | None
  labels: tuple[str, ...]


def is_model_folder(path: pathlib.Path) -> bool:
  """Whether a path looks like one."""
  return (path / 'config.json').is_file()


def read_description(folder: pathlib.Path) -> Description:
  """`config.json`; UsageError if it is not that of a RemBERT encoder."""
  file = folder / 'config.json'
  try:
    content = parsed_json(file.read_bytes(), file)
  except OSError as error:
    raise UsageError(
      f'no model: {error.strerror or error}', where=str(file), fix='name a folder with config.json and the weights'
    ) from error
  if not isinstance(content, dict) or content.get('model_type') != 'rembert':
    found = content.get('model_type') if isinstance(content, dict) else None
    raise UsageError(f'the model is {found!r}, not a rembert', where=str(file), fix='only RemBERT can be converted')
  if content.get('is_decoder'):
    raise UsageError('the model is a decoder', where=f'{file}: is_decoder', fix='only encoders can be converted')
  activation = content.get('hidden_act', 'gelu')
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    raise UsageError(f'unknown activation {activation!r}', where=str(file), fix=f'one of {", ".join(_ACTIVATIONS)}')
  fields = {name: content[name] for name in _SHARED_FIELDS if content.get(name) is not None}
  try:
    config = RemBertConfig(**fields, hidden_act=_ACTIVATIONS[activation], always_project_embeddings=True)
  except UsageError as error:  # which speaks of gin, and this is a file
    where = error.where.replace('RemBertConfig.', '')
    raise UsageError(error.what, where=f'{file}: {where}', fix='fetch the file again, or correct it') from error
  for name in ('pad_token_id', 'bos_token_id', 'eos_token_id'):
    if name in fields and fields[name] >= config.vocab_size:
      raise UsageError(
        f'{name} must be below vocab_size, {config.vocab_size}',
        where=f'{file}: {name} = {fields[name]}',
        fix='fetch the file again, or correct it',
      )
  heads = {architecture: head for head, architecture in _ARCHITECTURES.items()}
  architectures = content.get('architectures') or [None]
  architecture = architectures[0] if isinstance(architectures, list) else None
  labels = content.get('id2label') or {}
  if not (isinstance(labels, dict) and all(index.isdecimal() for index in labels)):
    raise UsageError(
      'id2label must map numbers to names', where=f'{file}: id2label', fix='"id2label": {"0": "no", "1": "yes"}'
    )
  return Description(
    # Where I ≠ H there is one anyway: two ways to say the same would be two models to a checkpoint.
    config=dataclasses.replace(config, always_project_embeddings=config.input_embedding_size == config.hidden_size),
    head=heads.get(architecture) if isinstance(architecture, str) else None,
    labels=tuple(str(labels[index]) for index in sorted(labels, key=int)),
  )


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
  return content


def head_of(names: Sequence[str], description: Description) -> str | None:
  """Which head the weights hold: what they are called decides, the architecture only where it is needed."""
  if any(name.startswith('cls.predictions.') for name in names):
    return 'mlm'
  if any(name.startswith('qa_outputs.') for name in names):
    return 'qa'
  if any(name.startswith('classifier.') for name in names):
    return description.head if description.head in ('tagging', 'multiple_choice') else 'classification'
  return None


# --- reading weights --------------------------------------------------------------------------------------------------


def is_buffer(name: str) -> bool:
  """Whether a tensor is no parameter; older versions of transformers saved one such."""
  return name.endswith('embeddings.position_ids')


def _open_safetensors(files: Sequence[pathlib.Path]) -> dict[str, Tensor]:
  """The tensors of one or several files, mapped into memory."""
  tensors = {}
  for file in files:
    try:
      handle = safetensors.safe_open(file, framework='np')
      for name in list(handle.keys()):
        shape = tuple(handle.get_slice(name).get_shape())
        tensors[name] = Tensor(shape, functools.partial(_read_safetensor, handle, name))
    except (safetensors.SafetensorError, OSError, ValueError) as error:
      raise UsageError(
        f'a damaged safetensors file: {error}', where=str(file), fix='fetch or export the file again'
      ) from error
  return tensors


def _read_safetensor(handle, name: str) -> np.ndarray:
  return handle.get_tensor(name).astype(np.float32, copy=False)


def _open_torch(files: Sequence[pathlib.Path]) -> dict[str, Tensor]:
  """The tensors of `pytorch_model.bin`, by torch itself and with `weights_only`: nothing in the file is executed."""
  try:
    import torch
  except ImportError as error:
    raise UsageError(
      'only torch can read pytorch_model.bin, and it is not installed',
      where=str(files[0]),
      fix=['take the model.safetensors of the same model', 'or pip install torch'],
    ) from error
  if tuple(int(part) for part in torch.__version__.split('.')[:2]) < _SAFE_TORCH:
    raise UsageError(
      f'torch {torch.__version__} can be made to run what a file of weights holds',
      where=str(files[0]),
      fix=['pip install torch==2.13.0', 'or take the model.safetensors of the same model'],
    )
  loaded = {}
  for file in files:
    try:
      loaded |= torch.load(file, map_location='cpu', weights_only=True, mmap=True)
    except Exception as error:  # torch has no exception of its own for it
      reason = first_line(error)
      raise UsageError(
        f'torch cannot read the weights: {reason}', where=str(file), fix='fetch the file again'
      ) from error
  read = lambda tensor: tensor.float().numpy()
  return {name: Tensor(tuple(tensor.shape), functools.partial(read, tensor)) for name, tensor in loaded.items()}


_WEIGHTS = {'model.safetensors': _open_safetensors, 'pytorch_model.bin': _open_torch}


def open_weights(folder: pathlib.Path) -> dict[str, Tensor]:
  """The weights of a folder, in one file or in shards; UsageError where one is missing or damaged."""
  for name, open_files in _WEIGHTS.items():
    if (folder / name).is_file():
      return open_files([folder / name])
    index_file = folder / f'{name}.index.json'
    if index_file.is_file():
      try:
        weight_map = parsed_json(index_file.read_bytes(), index_file)['weight_map']
        files = sorted({pathlib.Path(inside(folder, shard, where=index_file)) for shard in weight_map.values()})
      except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
          f'not an index of shards: {error!r}', where=str(index_file), fix='fetch the file again'
        ) from error
      absent = [file.name for file in files if not file.is_file()]
      if absent:
        raise UsageError(
          f'{len(absent)} of {len(files)} shards are missing: {", ".join(absent)}',
          where=str(folder),
          fix='fetch them into the same folder',
        )
      tensors = open_files(files)
      lost = [tensor for tensor in weight_map if tensor not in tensors] if open_files is _open_safetensors else []
      if lost:
        raise UsageError(
          f'the index names {len(lost)} tensors that no shard holds, {lost[0]} for one',
          where=str(files[0].parent),
          fix='fetch the shards again',
        )
      return tensors
  raise UsageError(
    'no weights', where=f'{folder}: none of {", ".join(_WEIGHTS)}, nor an index of shards', fix='fetch the weights'
  )


# --- writing weights --------------------------------------------------------------------------------------------------


def write_weights(
  folder: pathlib.Path,
  tensors: Tensors,
  *,
  shard_bytes: int,
  on_progress: Callable[[float], None] = lambda fraction: None,
) -> None:
  """Writes `model.safetensors`, or shards with their index where it would be larger than `shard_bytes`.

  Args:
    folder: where to.
    tensors: in order; one shard is in memory at a time.
    shard_bytes: a file holds no more, unless it is one tensor.
    on_progress: told the share of the bytes that are written.
  """
  shards: list[list[str]] = [[]]
  filled = 0
  sizes = {name: 4 * math.prod(tensor.shape) for name, tensor in tensors.items()}
  for name, size in sizes.items():
    if shards[-1] and filled + size > shard_bytes:
      shards.append([])
      filled = 0
    shards[-1].append(name)
    filled += size
  weight_map, written, total = {}, 0, sum(sizes.values())
  for number, names in enumerate(shards, 1):
    file = 'model.safetensors' if len(shards) == 1 else f'model-{number:05}-of-{len(shards):05}.safetensors'
    safetensors.numpy.save_file(
      {name: tensors[name].read() for name in names}, folder / file, metadata={'format': 'pt'}
    )
    (folder / file).chmod(0o644)  # the library writes for the owner alone
    weight_map |= dict.fromkeys(names, file)
    written += sum(sizes[name] for name in names)
    on_progress(written / total)
  if len(shards) > 1:
    index = {'metadata': {'total_size': total}, 'weight_map': weight_map}
    (folder / 'model.safetensors.index.json').write_text(json.dumps(index, indent=2))


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A folder that appears under its name when all is in it, or not at all."""
  import shutil

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
