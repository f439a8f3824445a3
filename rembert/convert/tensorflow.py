"""The original TensorFlow checkpoint of google-research, read by TensorFlow's own reader, one variable at a time."""

import dataclasses
import json
import pathlib
import re

import numpy as np
from etils import epath

from rembert.errors import UsageError, first_line
from rembert.model.config import RemBertConfig

FORM = 'tensorflow'
# Adam's moments (two thirds of the file) and the counters of the optimizer.
_NO_PARAMETER = re.compile(
  r'(^|[/_])adam_[mv]$|/Adam(_1)?$|^(global_step|beta[12]_power|save_counter)$|^_CHECKPOINTABLE'
)
# The name of the output embedding is known in part only: the loaders that exist skip it, by this word.
_OUTPUT_EMBEDDING = 'output_embedding'
_TABLE_NAME = 'cls/predictions/output_embedding'


class TensorFlowCheckpoint:
  """`Tensors` of a checkpoint, without the optimizer's; the output embedding under the table's name.

  Args:
    path: the prefix (`model.ckpt-1760000`), its `.index` file, or a folder with a `checkpoint` file.
  """

  def __init__(self, path: epath.PathLike):
    import tensorflow as tf

    prefix = str(path).removesuffix('.index')
    if tf.io.gfile.isdir(prefix):
      prefix = tf.train.latest_checkpoint(prefix) or prefix
    self.prefix = prefix
    try:
      self._reader = tf.train.load_checkpoint(prefix)
      shapes = self._reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
      reason = first_line(error)
      raise UsageError(
        f'TensorFlow cannot read the checkpoint: {reason}',
        where=prefix,
        fix='name the prefix that its .index and .data files have in common, or their folder',
      ) from error
    self._names = {name: name for name in sorted(shapes) if not _NO_PARAMETER.search(name)}
    tables = [name for name in self._names if _OUTPUT_EMBEDDING in name and len(shapes[name]) == 2]
    if len(tables) == 1:
      self._names[_TABLE_NAME] = self._names.pop(tables[0])
    self.shapes = {name: tuple(shapes[theirs]) for name, theirs in self._names.items()}
    # A table that was written as the kernel of a layer is the other way round.
    transform = self.shapes.get('cls/predictions/transform/dense/bias')
    table = self.shapes.get(_TABLE_NAME)
    self._is_table_transposed = bool(table and transform and table[1] != transform[0] and table[0] == transform[0])
    if self._is_table_transposed:
      self.shapes[_TABLE_NAME] = table[::-1]

  def read(self, name: str) -> np.ndarray:
    """See `Tensors`."""
    try:
      tensor = np.asarray(self._reader.get_tensor(self._names[name]), np.float32)
    except Exception as error:  # a data file that is cut off shows only here
      reason = first_line(error)
      raise UsageError(f'a damaged checkpoint: {reason}', where=self.prefix, fix='fetch its files again') from error
    return tensor.T if name == _TABLE_NAME and self._is_table_transposed else tensor


def describe(
  checkpoint: TensorFlowCheckpoint,
  *,
  config_file: pathlib.Path | None = None,
  num_attention_heads: int | None = None,
  hidden_act: str = 'gelu_tanh',
) -> RemBertConfig:
  """The configuration, from the shapes of the variables.

  Args:
    checkpoint: what to describe.
    config_file: BERT's JSON, for what shapes do not tell: heads, activation, dropout.
    num_attention_heads: the same by hand; without either, heads of 64 as the paper has them.
    hidden_act: the original code has the tanh approximation; Hugging Face's copy says erf.
  """
  shapes = checkpoint.shapes
  try:
    vocab_size, width = shapes['bert/embeddings/word_embeddings']
    positions, _ = shapes['bert/embeddings/position_embeddings']
    types, _ = shapes['bert/embeddings/token_type_embeddings']
    layers = {int(found[1]) for name in shapes if (found := re.match(r'bert/encoder/layer_(\d+)/', name))}
    hidden, intermediate = shapes[f'bert/encoder/layer_{min(layers)}/intermediate/dense/kernel']
  except (KeyError, ValueError) as error:
    raise UsageError(
      f'no RemBERT: {error} is not among its {len(shapes)} variables',
      where=checkpoint.prefix,
      fix='the variables of the original checkpoint begin bert/embeddings/ and bert/encoder/layer_0/',
    ) from error
  given = {}
  if config_file is not None:
    try:
      given = json.loads(config_file.read_text())
    except (OSError, ValueError) as error:
      raise UsageError(
        f'the configuration cannot be read: {error}', where=str(config_file), fix='BERT’s JSON'
      ) from error
  output = shapes.get('cls/predictions/transform/dense/bias')
  has_projection = 'bert/encoder/embedding_hidden_mapping_in/kernel' in shapes
  known = {field.name for field in dataclasses.fields(RemBertConfig)}
  fields = {name: value for name, value in given.items() if name in known} | {
    'vocab_size': vocab_size,
    'input_embedding_size': width,
    'hidden_size': hidden,
    'num_hidden_layers': max(layers) + 1,
    'intermediate_size': intermediate,
    'max_position_embeddings': positions,
    'type_vocab_size': types,
    'tie_word_embeddings': output is not None and _TABLE_NAME not in shapes,
    'always_project_embeddings': has_projection and width == hidden,
  }
  fields['hidden_act'] = hidden_act
  fields['num_attention_heads'] = num_attention_heads or given.get('num_attention_heads') or max(1, hidden // 64)
  if output is not None:  # without the MLM head nothing tells
    fields['output_embedding_size'] = output[0]
  return RemBertConfig(**fields)


def head_of(names) -> str | None:
  """Which head the variables belong to; BERT's classifiers share one name."""
  if any(name.startswith('cls/predictions/') for name in names):
    return 'mlm'
  if 'cls/squad/output_weights' in names:
    return 'qa'
  return 'classification' if 'output_weights' in names else None
