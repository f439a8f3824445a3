"""The original TensorFlow checkpoint of google-research, read by TensorFlow's own reader, one variable at a time."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Collection

import numpy as np
from etils import epath

from rembert.convert.tensor_names import Source, Tensor, Tensors
from rembert.errors import UsageError, first_line
from rembert.files import parsed_json, read_text
from rembert.model.config import RemBertConfig
from rembert.tokenizer import find_vocabulary

FORM = 'tensorflow'
# Adam's moments (two thirds of the file) and the counters of the optimizer.
_NO_PARAMETER = re.compile(
  r'(^|[/_])adam_[mv]$|/Adam(_1)?$|^(global_step|beta[12]_power|save_counter)$|^_CHECKPOINTABLE'
)
# The name of the output embedding is known in part only: the loaders that exist skip it, by this word.
_OUTPUT_EMBEDDING = 'output_embedding'
_TABLE_NAME = 'cls/predictions/output_embedding'


def open_source(
  path: epath.PathLike,
  *,
  config_file: pathlib.Path | None = None,
  num_attention_heads: int | None = None,
  hidden_act: str = 'gelu_tanh',
) -> Source:
  """The model in an original checkpoint, its tensors unread.

  Args:
    path: the prefix (`model.ckpt-1760000`), its `.index` file, or a directory with a `checkpoint` file.
    config_file: BERT's JSON, for settings that shapes do not show: heads, dropout.
    num_attention_heads: has priority over `config_file`; without either, heads of size 64 as in the paper.
    hidden_act: the original code has the tanh approximation, Hugging Face's copy erf.

  Raises:
    UsageError: it cannot be read, or is not RemBERT.
  """
  prefix, tensors = _open_tensors(path)
  config = _config(tensors, prefix, config_file, num_attention_heads, hidden_act)
  return Source(prefix, FORM, tensors, config, _head_of(tensors), vocabulary=find_vocabulary(epath.Path(prefix).parent))


def _open_tensors(path: epath.PathLike) -> tuple[str, dict[str, Tensor]]:
  """The prefix of a checkpoint, and its tensors but the optimizer's; the output embedding under the table's name."""
  import tensorflow as tf

  prefix = str(path).removesuffix('.index')
  if tf.io.gfile.isdir(prefix):
    prefix = tf.train.latest_checkpoint(prefix) or prefix
  try:
    reader = tf.train.load_checkpoint(prefix)
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
  except (tf.errors.OpError, ValueError, RuntimeError) as error:
    raise UsageError(
      f'TensorFlow cannot read the checkpoint: {first_line(error)}',
      where=prefix,
      fix='name the prefix that its .index and .data files have in common, or their folder',
    ) from error
  names = [name for name in sorted(shapes) if not _NO_PARAMETER.search(name)]
  tensors = {name: Tensor(shapes[name], functools.partial(_read, reader, prefix, name)) for name in names}
  tables = [name for name in names if _OUTPUT_EMBEDDING in name and len(shapes[name]) == 2]
  if len(tables) == 1:
    tensors[_TABLE_NAME] = tensors.pop(tables[0])
  table, transform = tensors.get(_TABLE_NAME), tensors.get('cls/predictions/transform/dense/bias')
  if table and transform and transform.shape == table.shape[:1] != table.shape[1:]:
    # It was written as the kernel of a layer, the other way round.
    read = table.read
    tensors[_TABLE_NAME] = Tensor(table.shape[::-1], lambda: read().T)
  return prefix, tensors


def _read(reader, prefix: str, name: str) -> np.ndarray:
  try:
    return np.asarray(reader.get_tensor(name), np.float32)
  except Exception as error:  # a truncated data file shows only here
    raise UsageError(f'a damaged checkpoint: {first_line(error)}', where=prefix, fix='fetch its files again') from error


def _config(
  tensors: Tensors, prefix: str, config_file: pathlib.Path | None, num_attention_heads: int | None, hidden_act: str
) -> RemBertConfig:
  """The configuration, from the shapes of the variables; see `open_source`."""
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  try:
    vocab_size, width = shapes['bert/embeddings/word_embeddings']
    positions, _ = shapes['bert/embeddings/position_embeddings']
    types, _ = shapes['bert/embeddings/token_type_embeddings']
    layers = {int(found[1]) for name in shapes if (found := re.match(r'bert/encoder/layer_(\d+)/', name))}
    hidden, intermediate = shapes[f'bert/encoder/layer_{min(layers)}/intermediate/dense/kernel']
  except (KeyError, ValueError) as error:
    raise UsageError(
      f'no RemBERT: {error} is not among its {len(shapes)} variables',
      where=prefix,
      fix='the variables of the original checkpoint begin bert/embeddings/ and bert/encoder/layer_0/',
    ) from error
  given = {} if config_file is None else parsed_json(read_text(config_file, what='the configuration'), config_file)
  output = shapes.get('cls/predictions/transform/dense/bias')
  has_projection = 'bert/encoder/embedding_hidden_mapping_in/kernel' in shapes
  known = {field.name for field in dataclasses.fields(RemBertConfig)}
  fields = {name: value for name, value in given.items() if name in known} | {
    'vocab_size': vocab_size,
    'input_embedding_size': width,
    'hidden_size': hidden,
    'num_hidden_layers': max(layers) + 1,
    'num_attention_heads': num_attention_heads or given.get('num_attention_heads') or max(1, hidden // 64),
    'intermediate_size': intermediate,
    'max_position_embeddings': positions,
    'type_vocab_size': types,
    'tie_word_embeddings': output is not None and _TABLE_NAME not in shapes,
    'always_project_embeddings': has_projection and width == hidden,
    'hidden_act': hidden_act,
  }
  if output is not None:  # without the MLM head no shape tells
    fields['output_embedding_size'] = output[0]
  return RemBertConfig(**fields)


def _head_of(names: Collection[str]) -> str | None:
  """Which head the variables belong to; BERT's classifiers share one name."""
  if any(name.startswith('cls/predictions/') for name in names):
    return 'mlm'
  if 'cls/squad/output_weights' in names:
    return 'qa'
  return 'classification' if 'output_weights' in names else None
