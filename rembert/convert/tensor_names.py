"""Names of tensors here, in Hugging Face's RemBERT and in the original TensorFlow checkpoint: one table.

Torch stores a kernel as [out, in], this project and TensorFlow as [in, out]. Here heads have axes of their own, query,
key and value are one kernel, layers are stacked, and embeddings are stored with padding rows of zeros.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from etils import epath

from rembert.model.config import RemBertConfig
from rembert.model.heads import FIXED_LABELS, parameter_shapes

# Hugging Face's models with a head put this before the names of their encoder's tensors.
ENCODER_PREFIX = 'rembert.'
# The form of this project's checkpoints: each tensor is a parameter, named by its path.
OURS = 'leaf'
# The head of a model: whichever its checkpoint has.
AS_SAVED = 'as saved'

# Parameters of which the vocabulary is the first axis, stored with padding rows.
ROW_PER_PIECE = {'encoder/embeddings/word/embedding', 'mlm/output_embedding', 'mlm/bias'}


@dataclasses.dataclass(frozen=True)
class Slot:
  """The part of one of this project's parameters (a leaf) that holds one tensor of another form."""

  leaf: str  # path of the parameter, by `/`, from the root of a model with a head
  index: tuple[int | slice, ...]  # the part of the leaf, without padding rows
  shape: tuple[int, ...]  # of the tensor in this project
  hugging_face: str = ''  # name at Hugging Face, without `ENCODER_PREFIX`
  tensorflow: str = ''  # name in the original checkpoint
  transposed: tuple[str, ...] = ()  # forms that store it transposed

  def name(self, form: str) -> str:
    """The name in `form`: `hugging_face`, `tensorflow` or `OURS`."""
    return getattr(self, form)

  def shape_in(self, form: str) -> tuple[int, ...]:
    """The shape in `form`."""
    return self.shape[::-1] if form in self.transposed else self.shape

  def take(self, leaf: np.ndarray, form: str) -> np.ndarray:
    """The tensor in `form`, taken out of the parameter; contiguous."""
    tensor = leaf[self.index].reshape(self.shape)
    return np.ascontiguousarray(tensor.T if form in self.transposed else tensor)

  def put(self, leaf: np.ndarray, tensor: np.ndarray, form: str) -> None:
    """Writes a tensor in `form` into the parameter."""
    part = leaf[self.index]
    leaf[self.index] = (tensor.T if form in self.transposed else tensor).reshape(part.shape)


def slots(config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool) -> list[Slot]:
  """All tensors of a model, in the order of the computation; heads are those of `rembert.model.heads.HEADS`."""
  pieces, width = config.vocab_size, config.input_embedding_size
  hidden, inner = config.hidden_size, config.intermediate_size
  found: list[Slot] = []

  def add(leaf: str, names: tuple[str, str], shape: tuple[int, ...], index: tuple = (), transposed=()) -> None:
    index += (slice(pieces),) if leaf in ROW_PER_PIECE else ()
    found.append(Slot(leaf, index, shape, *names, transposed))

  # Modules by their names here and in Hugging Face's model; the original code spells those of the encoder the same.
  original = lambda name: 'bert/' + name.replace('.layer.', '.layer_').replace('.', '/')

  def dense(leaf, name, shape, layer=(), part=None, tensorflow='') -> None:
    tensorflow = tensorflow or original(name)
    of_kernel, of_bias = (layer, layer) if part is None else ((*layer, slice(None), part), (*layer, part))
    add(f'{leaf}/kernel', (f'{name}.weight', f'{tensorflow}/kernel'), shape, of_kernel, ('hugging_face',))
    add(f'{leaf}/bias', (f'{name}.bias', f'{tensorflow}/bias'), shape[1:], of_bias)

  def norm(leaf, name, size, layer=(), tensorflow='') -> None:
    tensorflow = tensorflow or original(name)
    add(f'{leaf}/scale', (f'{name}.weight', f'{tensorflow}/gamma'), (size,), layer)
    add(f'{leaf}/bias', (f'{name}.bias', f'{tensorflow}/beta'), (size,), layer)

  # --- encoder ---------------------------------------------------------------
  rows = {'word': pieces, 'position': config.max_position_embeddings, 'token_type': config.type_vocab_size}
  for kind, count in rows.items():
    name = f'embeddings.{kind}_embeddings'
    add(f'encoder/embeddings/{kind}/embedding', (f'{name}.weight', original(name)), (count, width))
  norm('encoder/embeddings/norm', 'embeddings.LayerNorm', width)
  if config.projects_embeddings:
    dense('encoder/projection', 'encoder.embedding_hidden_mapping_in', (width, hidden))
  for layer in range(config.num_hidden_layers):
    ours, theirs, at = 'encoder/layers', f'encoder.layer.{layer}', (layer,)
    for part, name in enumerate(('query', 'key', 'value')):
      dense(f'{ours}/attention/qkv', f'{theirs}.attention.self.{name}', (hidden, hidden), at, part)
    dense(f'{ours}/attention/output', f'{theirs}.attention.output.dense', (hidden, hidden), at)
    norm(f'{ours}/attention_norm', f'{theirs}.attention.output.LayerNorm', hidden, at)
    dense(f'{ours}/feed_forward/up', f'{theirs}.intermediate.dense', (hidden, inner), at)
    dense(f'{ours}/feed_forward/down', f'{theirs}.output.dense', (inner, hidden), at)
    norm(f'{ours}/output_norm', f'{theirs}.output.LayerNorm', hidden, at)
  if has_pooler:
    dense('encoder/pooler', 'pooler.dense', (hidden, hidden))

  # --- head ------------------------------------------------------------------
  if head == 'mlm':
    output, transform = config.output_embedding_size, 'cls/predictions/transform'
    dense('mlm/transform', 'cls.predictions.dense', (hidden, output), tensorflow=f'{transform}/dense')
    norm('mlm/norm', 'cls.predictions.LayerNorm', output, tensorflow=f'{transform}/LayerNorm')
    if not config.tie_word_embeddings:
      names = ('cls.predictions.decoder.weight', 'cls/predictions/output_embedding')
      add('mlm/output_embedding', names, (pieces, output))
    add('mlm/bias', ('cls.predictions.decoder.bias', 'cls/predictions/output_bias'), (pieces,))
  elif head is not None:
    name, tensorflow = ('qa_outputs', 'cls/squad/') if head == 'qa' else ('classifier', '')
    labels = FIXED_LABELS.get(head, num_labels) or 0
    both = ('hugging_face', 'tensorflow')  # BERT's classifiers are the exception, [out, in] in TensorFlow too
    add(f'{name}/kernel', (f'{name}.weight', f'{tensorflow}output_weights'), (hidden, labels), transposed=both)
    add(f'{name}/bias', (f'{name}.bias', f'{tensorflow}output_bias'), (labels,))
  return found


def own_slots(
  config: RemBertConfig, head: str | None, *, num_labels: int | None = None, has_pooler: bool
) -> list[Slot]:
  """`slots` in the form `OURS`: whole parameters without padding rows."""
  shapes, rows = parameter_shapes(head, config, num_labels=num_labels, add_pooler=has_pooler), config.vocab_size
  return [
    Slot(leaf, (slice(rows),), (rows, *shape[1:])) if leaf in ROW_PER_PIECE else Slot(leaf, (), shape)
    for leaf, shape in shapes.items()
  ]


# --- tensors of a checkpoint ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint with its shape; `read` returns it, float32."""

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]

  def rows(self, count: int) -> 'Tensor':
    """The first `count` rows."""
    return Tensor((count, *self.shape[1:]), lambda: self.read()[:count])


Tensors = Mapping[str, Tensor]  # by name


@dataclasses.dataclass(frozen=True)
class Source:
  """A model in any form: its description, and its tensors, not yet read."""

  path: str  # of the checkpoint or the Hugging Face model directory, or the prefix of the original checkpoint
  form: str  # `OURS`, `hugging_face` or `tensorflow`: how tensors are named and stored
  tensors: Tensors  # by name; those of this project are whole parameters without padding rows
  config: RemBertConfig
  head: str | None  # see `rembert.model.heads.HEADS`; None is an encoder alone
  labels: tuple[str, ...] = ()  # of a classifier, by index
  vocabulary: epath.Path | None = None  # the SentencePiece model next to it, if there is one
  step: int = 0  # number of updates when it was saved; 0 for a model from elsewhere
  meta: Mapping = dataclasses.field(default_factory=dict)  # the item `meta` of a checkpoint of this project

  @property
  def workdir(self) -> epath.Path:
    """The run that a checkpoint of this project belongs to."""
    return epath.Path(self.path).parent.parent

  def slots(
    self, config: RemBertConfig, head: str | None, num_labels: int | None = None, *, has_pooler: bool
  ) -> list[Slot]:
    """The tensors of a model of this form."""
    find = own_slots if self.form == OURS else slots
    return find(config, head, num_labels=num_labels, has_pooler=has_pooler)

  def names(self, model: Iterable[Slot], prefix: str = '') -> set[str]:
    """Names in this form of a model's tensors, or of those below a path."""
    return {slot.name(self.form) for slot in model if slot.leaf.startswith(prefix)}

  def bottom_layers(self, count: int) -> 'Source':
    """The model of the first `count` layers; if each layer has its own tensors, those of the others stay listed."""
    config = dataclasses.replace(self.config, num_hidden_layers=count)
    if self.form != OURS:
      return dataclasses.replace(self, config=config)
    cut = lambda name, tensor: tensor.rows(count) if name.startswith('encoder/layers/') else tensor
    tensors = {name: cut(name, tensor) for name, tensor in self.tensors.items()}
    return dataclasses.replace(self, config=config, tensors=tensors)
