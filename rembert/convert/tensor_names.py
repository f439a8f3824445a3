"""What each tensor is called here, in Hugging Face's RemBERT and in the original TensorFlow checkpoint: one table.

Torch keeps a kernel as [out, in]; here and in TensorFlow it is [in, out]. Here heads have axes of their own, query, key
and value are one kernel, layers are stacked, and tables with a row per piece are stored with padding rows of zeros.
A `Slot` is the part of one of this project's parameters (a leaf) that holds a tensor of theirs.

V vocabulary · I input embedding · E output embedding · H hidden · F feed-forward · P positions · T types · n labels
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from etils import epath

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
    shape: in the letters above, as here; two letters of a kernel are [in, out].
    part: which of query, key and value, where the leaf holds all three.
    transposed: forms in which the tensor is the other way round.
  """

  leaf: str
  hugging_face: str
  tensorflow: str
  shape: str
  part: int | None = None
  transposed: tuple[str, ...] = ()


def _dense(leaf: str, hugging_face: str, tensorflow: str, shape: str, part: int | None = None) -> list[_Row]:
  return [
    _Row(f'{leaf}/kernel', f'{hugging_face}.weight', f'{tensorflow}/kernel', shape, part, transposed=('hugging_face',)),
    _Row(f'{leaf}/bias', f'{hugging_face}.bias', f'{tensorflow}/bias', shape[-1], part),
  ]


def _norm(leaf: str, hugging_face: str, tensorflow: str, width: str) -> list[_Row]:
  return [
    _Row(f'{leaf}/scale', f'{hugging_face}.weight', f'{tensorflow}/gamma', width),
    _Row(f'{leaf}/bias', f'{hugging_face}.bias', f'{tensorflow}/beta', width),
  ]


def _classifier(name: str, tensorflow: str) -> list[_Row]:
  both = ('hugging_face', 'tensorflow')  # BERT's classifiers are the exception, [out, in] in TensorFlow too
  return [
    _Row(f'{name}/kernel', f'{name}.weight', f'{tensorflow}output_weights', 'Hn', transposed=both),
    _Row(f'{name}/bias', f'{name}.bias', f'{tensorflow}output_bias', 'n'),
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
_CLASSIFIER = _classifier('classifier', '')
_QA = _classifier('qa_outputs', 'cls/squad/')
# Parameters of which the vocabulary is the first axis, stored with padding rows.
ROW_PER_PIECE = {'encoder/embeddings/word/embedding', 'mlm/output_embedding', 'mlm/bias'}


@dataclasses.dataclass(frozen=True)
class Slot:
  """A tensor of theirs as a part of a parameter of ours.

  Attributes:
    leaf: path of the parameter, by `/`, from the root of a model with a head.
    index: the part of the leaf, without padding rows.
    shape: of the tensor, as here.
    hugging_face: its name there, without `ENCODER_PREFIX`.
    tensorflow: its name there.
    transposed: forms in which it is the other way round.
  """

  leaf: str
  index: tuple[int | slice, ...]
  shape: tuple[int, ...]
  hugging_face: str = ''
  tensorflow: str = ''
  transposed: tuple[str, ...] = ()

  def name(self, form: str) -> str:
    """The name in `form`: `hugging_face`, `tensorflow` or `OURS`."""
    return getattr(self, form)

  def shape_in(self, form: str) -> tuple[int, ...]:
    """The shape in `form`."""
    return self.shape[::-1] if form in self.transposed else self.shape

  def take(self, leaf: np.ndarray, form: str) -> np.ndarray:
    """Their tensor out of our parameter, contiguous."""
    tensor = leaf[self.index].reshape(self.shape)
    return np.ascontiguousarray(tensor.T if form in self.transposed else tensor)

  def put(self, leaf: np.ndarray, tensor: np.ndarray, form: str) -> None:
    """Their tensor into our parameter, in place."""
    part = leaf[self.index]
    leaf[self.index] = (tensor.T if form in self.transposed else tensor).reshape(part.shape)


def slots(config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool) -> list[Slot]:
  """Every tensor of a model, in the order of the computation; heads are those of `rembert.model.heads.HEADS`."""
  sizes = {
    'V': config.vocab_size,
    'I': config.input_embedding_size,
    'E': config.output_embedding_size,
    'H': config.hidden_size,
    'F': config.intermediate_size,
    'P': config.max_position_embeddings,
    'T': config.type_vocab_size,
    'n': FIXED_LABELS.get(head or '', num_labels) or 0,
  }
  found: list[Slot] = []

  def add(rows: list[_Row], ours: str, hugging_face: str, tensorflow: str, layer: int | None = None) -> None:
    for row in rows:
      index: tuple[int | slice, ...] = () if layer is None else (layer,)
      if row.part is not None:
        index += (slice(None), row.part) if len(row.shape) == 2 else (row.part,)
      if row.shape[0] == 'V':
        index += (slice(config.vocab_size),)
      shape = tuple(sizes[letter] for letter in row.shape)
      names = (hugging_face + row.hugging_face, tensorflow + row.tensorflow)
      found.append(Slot(ours + row.leaf, index, shape, *names, row.transposed))

  add(_EMBEDDINGS, 'encoder/embeddings/', 'embeddings.', 'bert/embeddings/')
  if config.projects_embeddings:
    add(_PROJECTION, 'encoder/', '', 'bert/')
  for layer in range(config.num_hidden_layers):
    add(_LAYER, 'encoder/layers/', f'encoder.layer.{layer}.', f'bert/encoder/layer_{layer}/', layer)
  if has_pooler:
    add(_POOLER, 'encoder/', '', 'bert/')
  if head == 'mlm':
    rows = [row for row in _MLM if row.leaf != 'output_embedding' or not config.tie_word_embeddings]
    add(rows, 'mlm/', 'cls.predictions.', 'cls/predictions/')
  elif head is not None:
    add(_QA if head == 'qa' else _CLASSIFIER, '', '', '')
  return found


def own_slots(
  config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool
) -> list[Slot]:
  """`slots` in the form `OURS`: each parameter as a whole, but for padding rows."""
  shapes, rows = parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler), config.vocab_size
  return [
    Slot(leaf, (slice(rows),), (rows, *shape[1:])) if leaf in ROW_PER_PIECE else Slot(leaf, (), shape)
    for leaf, shape in shapes.items()
  ]


# --- tensors of a checkpoint ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, not yet read.

  Attributes:
    shape: as the checkpoint has it.
    read: returns it, float32.
  """

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]

  def rows(self, count: int) -> 'Tensor':
    """The first `count` rows."""
    return Tensor((count, *self.shape[1:]), lambda: self.read()[:count])


# A checkpoint, by name.
Tensors = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Source:
  """A model in any format: what it is, and its tensors, not yet read.

  Attributes:
    path: the checkpoint, the directory of Hugging Face, or the prefix of the original checkpoint.
    form: in which the tensors are named: `OURS`, `hugging_face` or `tensorflow`.
    tensors: by name; those of this project are whole parameters without padding rows.
    config: the architecture.
    head: see `rembert.model.heads.HEADS`; None is an encoder alone.
    labels: of a classifier, by index.
    vocabulary: the SentencePiece model that comes with it, if there is one.
    step: updates made when it was saved; 0 for a model from elsewhere.
    meta: everything that a checkpoint of this project states about itself.
  """

  path: str
  form: str
  tensors: Tensors
  config: RemBertConfig
  head: str | None
  labels: tuple[str, ...] = ()
  vocabulary: epath.Path | None = None
  step: int = 0
  meta: Mapping = dataclasses.field(default_factory=dict)

  @property
  def workdir(self) -> epath.Path:
    """The run that a checkpoint of this project belongs to."""
    return epath.Path(self.path).parent.parent

  def slots(
    self, config: RemBertConfig, head: str | None, num_labels: int | None = None, *, has_pooler: bool
  ) -> list[Slot]:
    """The tensors of a model; those of our own checkpoints are its very parameters."""
    find = own_slots if self.form == OURS else slots
    return find(config, head, num_labels=num_labels, has_pooler=has_pooler)

  def names(self, model: Iterable[Slot], prefix: str = '') -> set[str]:
    """What the tensors of a model, or of a part of it, are called here."""
    return {slot.name(self.form) for slot in model if slot.leaf.startswith(prefix)}

  def bottom_layers(self, count: int) -> 'Source':
    """The model without the layers above. Where each layer has tensors of its own, all tensors are still listed."""
    config = dataclasses.replace(self.config, num_hidden_layers=count)
    if self.form != OURS:
      return dataclasses.replace(self, config=config)
    cut = lambda name, tensor: tensor.rows(count) if name.startswith('encoder/layers/') else tensor
    tensors = {name: cut(name, tensor) for name, tensor in self.tensors.items()}
    return dataclasses.replace(self, config=config, tensors=tensors)
