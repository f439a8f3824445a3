"""`rembert.load`: a trained model from a workdir, a checkpoint, or a Hugging Face directory or Hub id; fills masks."""

import dataclasses
import functools
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint.load import ImportedModel, import_model, read_newest
from rembert.convert.tensor_names import OURS, ROW_PER_PIECE, Tensor
from rembert.errors import UsageError
from rembert.kernels import resolve_dtype
from rembert.model.config import Execution
from rembert.model.encoder import ModelOutput, RemBertEncoder
from rembert.model.heads import (
  RemBertForMaskedLM,
  RemBertForTask,
  build_model,
  check_head,
  chosen_layer,
  sentence_embeddings,
)
from rembert.tokenizer import MASK, TextEncoder, check_vocabulary

Model = RemBertEncoder | RemBertForMaskedLM | RemBertForTask


class LoadedModel:
  """A model with its parameters; calls are compiled once per input shape.

  Attributes:
    config: the architecture.
    head: see `rembert.model.heads.HEADS`; None for the encoder only.
    labels: names of a classifier's labels, by index.
    vocabulary: path of the SentencePiece model next to the parameters, or None.
    module: the Flax NNX module, with parameters; for fine-tuning or a custom forward pass.
    encoder: the encoder inside.
  """

  def __init__(self, imported: ImportedModel, execution: Execution):
    self.config, self.head, self.labels = imported.config, imported.head, imported.labels
    self.vocabulary, self._source = imported.source.vocabulary, imported.source
    execution = resolve_dtype(execution, jax.default_backend())
    build = lambda: build_model(
      imported.head,
      imported.config,
      execution,
      num_labels=imported.num_labels,
      add_pooler='encoder/pooler/kernel' in imported.leaves,
      rngs=nnx.Rngs(0),
    )
    self._graphdef = cast(nnx.GraphDef[Model], nnx.graphdef(nnx.eval_shape(build)))
    parameters = unflatten_dict({path: jnp.asarray(leaf) for path, leaf in imported.leaves.items()}, sep='/')
    self.module = nnx.merge(self._graphdef, parameters if imported.head else parameters['encoder'])
    self.encoder = _encoder(self.module)
    self._parameters = nnx.state(self.module)

  def __call__(
    self,
    input_ids: np.ndarray | Sequence,
    token_type_ids: np.ndarray | Sequence | None = None,
    attention_mask: np.ndarray | Sequence | None = None,
    *,
    output_hidden_states: bool = False,
  ) -> ModelOutput:
    """Runs the model without dropout.

    Args:
      input_ids: int ids [B, S] ([B, C, S] for multiple choice).
      token_type_ids: 0 for the first text, 1 for the second; default 0.
      attention_mask: 1 for tokens, 0 for padding; default all tokens.
      output_hidden_states: also return the output of every layer, [L + 1, B, S, H].

    Returns:
      A `ModelOutput`; the logits of `mlm` are [B, S, V].

    Raises:
      UsageError: inputs have other shapes, are not integers, are empty or outside the model's ranges.
    """
    given = {'input_ids': input_ids, 'token_type_ids': token_type_ids, 'attention_mask': attention_mask}
    return self._run(self._parameters, *self._checked(given), output_hidden_states)

  def embed(
    self, input_ids: np.ndarray | Sequence, attention_mask: np.ndarray | Sequence, *, layer: int | None = None
  ) -> jax.Array:
    """Sentence embeddings, float32 [B, H], of ids and mask [B, S]; see `rembert.model.heads.sentence_embeddings`.

    `layer` 0 is the projected embeddings, L the last layer; None is the last. UsageError as for a call, or if there is
    no such layer.
    """
    inputs = self._checked({'input_ids': input_ids, 'attention_mask': attention_mask}, rank=2)
    chosen_layer(self.config, layer)
    return self._embed(self._parameters, *inputs, layer)

  def push_to_hub(self, name: str, *, private: bool = False) -> str:
    """Uploads the model, with the current parameters of `module`, its tokenizer and a model card; returns its URL.

    `name` is `org/name` on the Hugging Face Hub; a new repository is private if `private`. UsageError if it is not an
    id, or the Hub refuses it or cannot be reached.
    """
    from rembert.convert import hub
    from rembert.convert.huggingface import export

    hub.check_upload(name)
    leaves = flatten_dict(nnx.to_pure_dict(nnx.state(self.module)), sep='/')
    prefix, rows = '' if self.head else 'encoder/', self.config.vocab_size
    tensors = {prefix + path: Tensor(leaf.shape, functools.partial(np.asarray, leaf)) for path, leaf in leaves.items()}
    tensors |= {path: tensors[path].rows(rows) for path in ROW_PER_PIECE & tensors.keys()}
    model = dataclasses.replace(
      self._source, form=OURS, tensors=tensors, config=self.config, head=self.head, labels=self.labels
    )
    with tempfile.TemporaryDirectory() as folder:
      exported = pathlib.Path(folder) / 'model'
      export(model, exported, name=name)
      return hub.upload(exported, name, private=private)

  def _checked(self, given: Mapping[str, Any], rank: int | None = None) -> list[np.ndarray | None]:
    """The inputs as int32 arrays of one shape, `input_ids` first; UsageError for anything else."""
    rank = rank or (3 if self.head == 'multiple_choice' else 2)
    axes = ('[B, S]', '[B, C, S]')[rank - 2]
    limits = {'token_type_ids': self.config.type_vocab_size, 'attention_mask': 2}
    shape: tuple[int, ...] | None = None
    arrays: list[np.ndarray | None] = []
    for name, value in given.items():
      if value is None and name != 'input_ids':
        arrays.append(None)
        continue
      try:
        array = np.asarray(value)
      except ValueError:
        raise UsageError('sequences of different lengths', where=name, fix=f'pad them to one length: {axes}') from None
      shape = shape or array.shape
      what, fix = '', ''
      if array.ndim != rank or not array.size:
        what, fix = f'of shape {list(array.shape)}', f'pass {axes}, with at least one token'
      elif array.shape != shape:
        what, fix = f'of shape {list(array.shape)} but input_ids of {list(shape)}', f'the same shape: {axes}'
      elif array.dtype.kind not in 'iub' and not (name == 'attention_mask' and array.dtype.kind == 'f'):
        what, fix = f'of {array.dtype}', 'whole numbers: .astype(numpy.int32)'
      elif name in limits and not np.isin(array, range(limits[name])).all():
        what, fix = f'from {array.min()} to {array.max()}', f'whole numbers from 0 to {limits[name] - 1}'
      if what:
        raise UsageError(f'{name} {what}', where=name, fix=fix)
      if name == 'input_ids':
        self.check_ids(array)
      arrays.append(array.astype(np.int32))
    return arrays

  def check_ids(self, ids: np.ndarray) -> None:
    """UsageError for ids [..., S] that are outside the vocabulary, or at more positions than the model has."""
    if ids.shape[-1] > self.config.max_position_embeddings:
      raise UsageError(
        f"{ids.shape[-1]} positions exceed the model's {self.config.max_position_embeddings}",
        where='input_ids',
        fix='truncate or split the text',
      )
    if ids.size and not 0 <= ids.min() <= ids.max() < self.config.vocab_size:
      raise UsageError(
        f"ids from {ids.min()} to {ids.max()} exceed the model's 0 to {self.config.vocab_size - 1}",
        where='input_ids',
        fix='use the vocabulary that the model was trained with',
      )

  @functools.cached_property
  def _run(self):
    def run(parameters, input_ids, token_type_ids, attention_mask, output_hidden_states):
      module = nnx.merge(self._graphdef, parameters)
      output = module(input_ids, token_type_ids, attention_mask, output_hidden_states=output_hidden_states)
      if self.head == 'mlm' and output.logits is not None:  # without the padding of the vocabulary
        output.logits = output.logits[..., : self.config.vocab_size]
      return output

    return jax.jit(run, static_argnums=4)

  @functools.cached_property
  def _embed(self):
    def embed(parameters, input_ids, attention_mask, layer):
      encoder = _encoder(nnx.merge(self._graphdef, parameters))
      return sentence_embeddings(encoder, input_ids, attention_mask, layer=layer)

    return jax.jit(embed, static_argnums=3)


def _encoder(module: Model) -> RemBertEncoder:
  return module if isinstance(module, RemBertEncoder) else module.encoder


def load(
  path: epath.PathLike,
  head: str | None = None,
  *,
  step: int | None = None,
  num_hidden_layers: int | None = None,
  num_labels: int | None = None,
  new_head: bool = False,
  ema: bool = True,
  execution: Execution = Execution(),
) -> LoadedModel:
  """Loads a model from a workdir, a checkpoint of one, a Hugging Face model directory or the Hub.

  Args:
    path: see `rembert.checkpoint.load.open_source`.
    head: None for the encoder only, `mlm`, `classification`, `tagging`, `qa` or `multiple_choice`.
    step: which checkpoint of a workdir; the newest by default.
    num_hidden_layers: keep this many layers, from the bottom (paper, section 6.2).
    num_labels: number of labels of a new classifier.
    new_head: randomly initialise a head that the checkpoint lacks, for fine-tuning; otherwise that is an error.
    ema: load the moving average of the parameters if the checkpoint has one; False loads the trained parameters.
    execution: dtype, kernels and other choices of the computation.

  Raises:
    UsageError: there is no model, or it lacks the head.
  """
  check_head(head)
  read = lambda source: import_model(
    source, head=head, num_hidden_layers=num_hidden_layers, num_labels=num_labels, allow_missing=new_head
  )
  return LoadedModel(read_newest(path, step, read, ema=ema), execution)


# --- text -------------------------------------------------------------------------------------------------------------


def text_encoder(
  model: LoadedModel,
  vocabulary: str | None = None,
  say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> TextEncoder:
  """The tokenizer of a model; UsageError if it has none, or it does not match the model.

  A vocabulary with fewer tokens than the model has embeddings is reported, since it may be a wrong one.
  """
  file = vocabulary or model.vocabulary
  if file is None:
    raise UsageError('no sentencepiece.model next to the model', where='--vocabulary', fix='--vocabulary=FILE')
  check_vocabulary(file, model.config.vocab_size)
  encoder = TextEncoder(file)
  if len(encoder) < model.config.vocab_size:
    say(f'{file} has {len(encoder):,} tokens, the model {model.config.vocab_size:,}')
  return encoder


class FilledMask(NamedTuple):
  """One candidate for a mask: its token, id and probability."""

  piece: str
  id: int
  probability: float


def fill_masks(model: LoadedModel, encoder: TextEncoder, text: str, top_k: int = 5) -> list[list[FilledMask]]:
  """The `top_k` most probable tokens for each `[MASK]` of a text, in order.

  Probabilities are over the whole vocabulary, as in Hugging Face's pipeline. UsageError if the text has no mask, or
  exceeds the model's positions.
  """
  ids = np.asarray([encoder.encode(text)])
  masks = np.flatnonzero(ids[0] == encoder.special.mask)
  if not masks.size:
    raise UsageError(f'no {MASK} in the text', where=repr(text), fix=f'write {MASK} where a token is to be predicted')
  logits_BxSxV = model(ids).logits
  assert logits_BxSxV is not None  # the head is `mlm`
  logits_MxV = np.asarray(logits_BxSxV[0, masks], np.float64)
  probabilities_MxV = np.exp(logits_MxV - logits_MxV.max(-1, keepdims=True))
  probabilities_MxV /= probabilities_MxV.sum(-1, keepdims=True)
  best_MxK = np.argsort(-logits_MxV, axis=-1, kind='stable')[:, :top_k]
  return [
    [FilledMask(encoder.piece(piece), int(piece), float(row[piece])) for piece in best]
    for row, best in zip(probabilities_MxV, best_MxK, strict=True)
  ]
