"""What each tensor is called here, in Hugging Face's RemBERT and in the original TensorFlow checkpoint: one table.

Torch keeps a kernel as [out, in]; here and in TensorFlow it is [in, out]. Here heads have axes of their own, query, key
and value are one kernel, layers are stacked, and tables with a row per piece are stored with padding rows of zeros.
`Slot` says where in one of this project's parameters (a leaf) a tensor of theirs lies; `take` and `put` go both ways.

V vocabulary · I input embedding · E output embedding · H hidden · F feed-forward · P positions · T types · n labels
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, parameter_shapes

# Hugging Face's models with a head put this before the names of their encoder's tensors.
ENCODER_PREFIX = 'rembert.'
# The form of this project's own checkpoints: a tensor is a parameter, by its path.
OURS = 'leaf'


@dataclasses.dataclass(frozen=True)
class _Row:
  """One line of the table.

  Attributes:
    leaf: path of this project's parameter.
    hugging_face: their name, without `ENCODER_PREFIX`.
    tensorflow: the original name.
    shape: of the tensor in TensorFlow's layout, in the letters above; two letters of a kernel are [in, out].
    is_kernel: Hugging Face's tensor is the transposed one.
    part: which of query, key and value, where the leaf holds all three.
    is_tensorflow_transposed: BERT's classifiers are the exception, [out, in] in TensorFlow too.
  """

  leaf: str
  hugging_face: str
  tensorflow: str
  shape: str
  is_kernel: bool = False
  part: int | None = None
  is_tensorflow_transposed: bool = False


def _dense(leaf: str, hugging_face: str, tensorflow: str, shape: str, part: int | None = None) -> list[_Row]:
  return [
    _Row(f'{leaf}/kernel', f'{hugging_face}.weight', f'{tensorflow}/kernel', shape, is_kernel=True, part=part),
    _Row(f'{leaf}/bias', f'{hugging_face}.bias', f'{tensorflow}/bias', shape[-1], part=part),
  ]


def _norm(leaf: str, hugging_face: str, tensorflow: str, width: str) -> list[_Row]:
  return [
    _Row(f'{leaf}/scale', f'{hugging_face}.weight', f'{tensorflow}/gamma', width),
    _Row(f'{leaf}/bias', f'{hugging_face}.bias', f'{tensorflow}/beta', width),
  ]


def _classifier(leaf: str, hugging_face: str, tensorflow: str) -> list[_Row]:
  return [
    _Row(
      f'{leaf}/kernel',
      f'{hugging_face}.weight',
      f'{tensorflow}output_weights',
      'Hn',
      is_kernel=True,
      is_tensorflow_transposed=True,
    ),
    _Row(f'{leaf}/bias', f'{hugging_face}.bias', f'{tensorflow}output_bias', 'n'),
  ]


_EMBEDDINGS = [
  _Row('word/embedding', 'word_embeddings.weight', 'word_embeddings', 'VI'),
  _Row('position/embedding', 'position_embeddings.weight', 'position_embeddings', 'PI'),
  _Row('token_type/embedding', 'token_type_embeddings.weight', 'token_type_embeddings', 'TI'),
  *_norm('norm', 'LayerNorm', 'LayerNorm', 'I'),
]
_PROJECTION = _dense('projection', 'encoder.embedding_hidden_mapping_in', 'encoder/embedding_hidden_mapping_in', 'IH')
_LAYER = [
  *_dense('attention/qkv', 'attention.self.query', 'attention/self/query', 'HH', part=0),
  *_dense('attention/qkv', 'attention.self.key', 'attention/self/key', 'HH', part=1),
  *_dense('attention/qkv', 'attention.self.value', 'attention/self/value', 'HH', part=2),
  *_dense('attention/output', 'attention.output.dense', 'attention/output/dense', 'HH'),
  *_norm('attention_norm', 'attention.output.LayerNorm', 'attention/output/LayerNorm', 'H'),
  *_dense('feed_forward/up', 'intermediate.dense', 'intermediate/dense', 'HF'),
  *_dense('feed_forward/down', 'output.dense', 'output/dense', 'FH'),
  *_norm('output_norm', 'output.LayerNorm', 'output/LayerNorm', 'H'),
]
_POOLER = _dense('pooler', 'pooler.dense', 'pooler/dense', 'HH')
_MLM = [
  *_dense('transform', 'dense', 'transform/dense', 'HE'),
  *_norm('norm', 'LayerNorm', 'transform/LayerNorm', 'E'),
  _Row('output_embedding', 'decoder.weight', 'output_embedding', 'VE'),
  _Row('bias', 'decoder.bias', 'output_bias', 'V'),
]
_TASK_HEADS = {
  'classification': _classifier('classifier', 'classifier', ''),
  'tagging': _classifier('classifier', 'classifier', ''),
  'multiple_choice': _classifier('classifier', 'classifier', ''),
  'qa': _classifier('qa_outputs', 'qa_outputs', 'cls/squad/'),
}


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, not yet read.

  Attributes:
    shape: as the checkpoint has it.
    read: gives it, float32.
  """

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


# A checkpoint, by name.
Tensors = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Slot:
  """A tensor of theirs as a part of a parameter of ours.

  Attributes:
    leaf: path of the parameter, by `/`, from the root of a model with a head.
    index: the part of the leaf, without padding rows.
    shape: of the tensor as [in, out] or as it is; what `take` gives and `put` wants, but for the transposition.
    hugging_face: name in Hugging Face's encoder, or in the head. See `ENCODER_PREFIX`.
    tensorflow: name in the original checkpoint.
    transposed: for each of the two formats, whether it keeps the tensor the other way round.
    has_row_per_piece: whether the vocabulary is the tensor's first axis.
  """

  leaf: str
  index: tuple[int | slice, ...]
  shape: tuple[int, ...]
  hugging_face: str
  tensorflow: str
  transposed: Mapping[str, bool]
  has_row_per_piece: bool

  def name(self, form: str) -> str:
    """The name in `form`: `hugging_face`, `tensorflow` or `OURS`."""
    return getattr(self, form)

  def shape_in(self, form: str) -> tuple[int, ...]:
    """The shape in `form`."""
    return self.shape[::-1] if self.transposed.get(form) else self.shape

  def take(self, leaf: np.ndarray, form: str) -> np.ndarray:
    """Their tensor out of our parameter, contiguous."""
    tensor = leaf[self.index].reshape(self.shape)
    return np.ascontiguousarray(tensor.T if self.transposed.get(form) else tensor)

  def put(self, leaf: np.ndarray, tensor: np.ndarray, form: str) -> None:
    """Their tensor into our parameter, in place."""
    part = leaf[self.index]
    leaf[self.index] = (tensor.T if self.transposed.get(form) else tensor).reshape(part.shape)


def slots(config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool) -> list[Slot]:
  """Every tensor of a model, in the order of the computation.

  Args:
    config: of the model.
    head: see `rembert.model.heads.HEADS`.
    num_labels: of `classification` and `tagging`.
    has_pooler: whether the encoder has one.
  """
  return list(_slots(config, head, num_labels, has_pooler))


def _slots(config, head, num_labels, has_pooler) -> Iterator[Slot]:
  sizes = {
    'V': config.vocab_size,
    'I': config.input_embedding_size,
    'E': config.output_embedding_size,
    'H': config.hidden_size,
    'F': config.intermediate_size,
    'P': config.max_position_embeddings,
    'T': config.type_vocab_size,
    'n': FIXED_LABELS.get(head, num_labels),
  }

  def slot(row, ours, hugging_face, tensorflow, layer=None):
    index = () if layer is None else (layer,)
    if row.part is not None:
      index += (slice(None), row.part) if row.is_kernel else (row.part,)
    if row.shape[0] == 'V':
      index += (slice(config.vocab_size),)
    return Slot(
      leaf=ours + row.leaf,
      index=index,
      shape=tuple(sizes[letter] for letter in row.shape),
      hugging_face=hugging_face + row.hugging_face,
      tensorflow=tensorflow + row.tensorflow,
      has_row_per_piece=row.shape[0] == 'V',
      transposed={'hugging_face': row.is_kernel, 'tensorflow': row.is_tensorflow_transposed},
    )

  for row in _EMBEDDINGS:
    yield slot(row, 'encoder/embeddings/', 'embeddings.', 'bert/embeddings/')
  for row in _PROJECTION if config.projects_embeddings else ():
    yield slot(row, 'encoder/', '', 'bert/')
  for layer in range(config.num_hidden_layers):
    for row in _LAYER:
      yield slot(row, 'encoder/layers/', f'encoder.layer.{layer}.', f'bert/encoder/layer_{layer}/', layer)
  for row in _POOLER if has_pooler else ():
    yield slot(row, 'encoder/', '', 'bert/')
  if head == 'mlm':
    for row in _MLM:
      if row.leaf != 'output_embedding' or not config.tie_word_embeddings:
        yield slot(row, 'mlm/', 'cls.predictions.', 'cls/predictions/')
  for row in _TASK_HEADS.get(head, ()):
    yield slot(row, '', '', '')


def has_row_per_piece(leaf: str) -> bool:
  """Whether the vocabulary is the first axis of a parameter."""
  rows = [f'encoder/embeddings/{row.leaf}' for row in _EMBEDDINGS if row.shape[0] == 'V']
  return leaf in [*rows, *(f'mlm/{row.leaf}' for row in _MLM if row.shape[0] == 'V')]


def own_slots(
  config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool
) -> list[Slot]:
  """`slots` in the form `OURS`: each parameter as a whole, but for padding rows."""
  found = []
  for leaf, shape in parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler).items():
    is_table = has_row_per_piece(leaf)
    found.append(
      Slot(
        leaf=leaf,
        index=(slice(config.vocab_size),) if is_table else (),
        shape=(config.vocab_size, *shape[1:]) if is_table else shape,
        hugging_face='',
        tensorflow='',
        transposed={},
        has_row_per_piece=is_table,
      )
    )
  return found
