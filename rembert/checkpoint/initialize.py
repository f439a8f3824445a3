"""Initialises the parameters of a run from another run or a Hugging Face model directory (`train.init_from`).

With another vocabulary, tokens of both keep their rows and new ones get the mean of their old subwords: fast vocabulary
transfer (Gee et al., 2022, EMNLP Industry Track, arXiv:2402.09977), here for the input embedding, the output embedding
and the output bias.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
import sentencepiece
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint.load import check, open_source, read_parameters
from rembert.convert.tensor_names import ROW_PER_PIECE, Slot, Source, Tensor
from rembert.errors import Setting, UsageError
from rembert.model.config import RemBertConfig
from rembert.model.heads import POOLED
from rembert.tokenizer import load_vocabulary, parse_model
from rembert.train.state import TrainState

# With other values the same parameters compute another function, although all shapes match.
_FUNCTION_FIELDS = ('num_attention_heads', 'hidden_act', 'layer_norm_eps')
_SHAPE_FIELDS = ['vocab_size', 'input_embedding_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads']
_SHAPE_FIELDS += ['intermediate_size', 'max_position_embeddings', 'type_vocab_size']
_SHAPE_FIELDS_OF_MLM = ['output_embedding_size', 'tie_word_embeddings']
_SPACE = '\N{LOWER ONE EIGHTH BLOCK}'  # in tokens, at the beginning of a word


# --- another vocabulary ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class VocabularyTransfer:
  """Which old rows each new row is the mean of.

  `subwords` are old ids by new id: one for a token that both vocabularies have; () for a row to be initialised
  randomly, of a token that the old vocabulary has only [UNK] for, of a special one, or beyond the vocabulary.
  """

  subwords: tuple[tuple[int, ...], ...]
  copied: int  # number of tokens that both vocabularies have
  averaged: int
  initialised: int

  @functools.cached_property
  def is_new(self) -> np.ndarray:
    """Bool, [V]: which rows are initialised randomly."""
    return np.array([not ids for ids in self.subwords])

  def rows(self, old: np.ndarray) -> np.ndarray:
    """The new tensor, float32 [V, …], of the old one; rows that `is_new` are 0. Means are summed in float64."""
    new = np.zeros((len(self.subwords), *old.shape[1:]), np.float32)
    for row, ids in enumerate(self.subwords):
      if ids:
        new[row] = old[ids[0]] if len(ids) == 1 else old[list(ids)].mean(axis=0, dtype=np.float64)
    return new


def plan_transfer(old: epath.PathLike, new: epath.PathLike, rows: int) -> VocabularyTransfer:
  """The transfer from one SentencePiece model to another, whose embeddings have `rows`."""
  before, after = load_vocabulary(old), load_vocabulary(new)
  continued = _without_word_start(before)
  ids = {before.id_to_piece(index): index for index in range(before.get_piece_size())}
  subwords: list[tuple[int, ...]] = []
  copied = 0
  for index in range(after.get_piece_size()):
    token = after.id_to_piece(index)
    is_text = not (after.is_control(index) or after.is_unknown(index) or after.is_unused(index) or after.is_byte(index))
    if token in ids:
      subwords.append((ids[token],))
      copied += 1
    elif is_text:
      parts = continued.encode(token.replace(_SPACE, ' '))
      subwords.append(tuple(part for part in parts if part != before.unk_id()))
    else:
      subwords.append(())
  initialised = subwords.count(())
  averaged = len(subwords) - copied - initialised
  subwords += [()] * (rows - len(subwords))
  return VocabularyTransfer(tuple(subwords), copied, averaged, initialised)


def _without_word_start(processor: sentencepiece.SentencePieceProcessor) -> sentencepiece.SentencePieceProcessor:
  """A processor that puts no space before a text and keeps the one that is there: 'ing' and ' ing' stay different."""
  proto = parse_model(processor.serialized_model_proto())
  proto.normalizer_spec.add_dummy_prefix = False
  proto.normalizer_spec.remove_extra_whitespaces = False
  proto.ClearField('self_test_data')  # expects the other settings
  changed = sentencepiece.SentencePieceProcessor()
  changed.LoadFromSerializedProto(proto.SerializeToString())
  return changed


# --- another run ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class InitialParameters:
  """Parameters that match a run's model, not yet read; `fresh` are paths of those that stay randomly initialised.

  `transfer` says how embeddings are made of those of another vocabulary; None leaves them as they are.
  """

  source: Source
  slots: tuple[Slot, ...]
  fresh: tuple[str, ...] = ()
  transfer: VocabularyTransfer | None = None

  def check_vocabulary(self, vocabulary: epath.PathLike) -> None:
    """Raises UsageError if the parameters were trained with another vocabulary than `vocabulary`."""
    theirs = self.source.vocabulary
    if theirs is not None and epath.Path(theirs).read_bytes() != epath.Path(vocabulary).read_bytes():
      raise UsageError(
        'the initial parameters were trained with another vocabulary',
        where=f'{theirs}, {vocabulary}',
        fix=[Setting('vocabulary.path', theirs), 'and a token store made with it if there is one'],
      )

  def for_vocabulary(self, vocabulary: epath.PathLike) -> 'InitialParameters':
    """These parameters with embeddings for the tokens of `vocabulary`; the same if it is theirs, or they have none."""
    theirs, slots = self.source.vocabulary, _embedding_slots(self.slots)
    if theirs is None:
      return self
    rows = slots[0].shape[0]
    is_same = epath.Path(theirs).read_bytes() == epath.Path(vocabulary).read_bytes()
    if is_same and rows == self.source.config.vocab_size:
      return self
    transfer, tensors = plan_transfer(theirs, vocabulary, rows), dict(self.source.tensors)
    for name in self.source.names(slots):
      read = lambda old=tensors[name]: transfer.rows(old.read())
      tensors[name] = Tensor(tensors[name].shape, read)
    return dataclasses.replace(self, source=dataclasses.replace(self.source, tensors=tensors), transfer=transfer)

  def put_into(self, state: TrainState, on_progress: Callable[[float], None] = lambda fraction: None) -> TrainState:
    """Replaces the parameters of `state`, freeing the old ones one by one.

    Every host reads each parameter and keeps its shards. At most one parameter is in a host's memory; the devices hold
    one more than the state does.
    """
    params = flatten_dict(state.params, sep='/')
    averages = None if state.ema is None else flatten_dict(state.ema, sep='/')
    shapes = {leaf: fresh.shape for leaf, fresh in params.items()}
    for leaf, whole in read_parameters(self.source, self.slots, shapes, on_progress):
      sharding = params[leaf].sharding
      if self.transfer is not None and leaf in ROW_PER_PIECE:
        _keep_rows(whole, params[leaf], self.transfer.is_new)
      params[leaf].delete()
      params[leaf] = _in_shards(whole, sharding)
      if averages is not None:
        averages[leaf].delete()
        averages[leaf] = _in_shards(whole, sharding)
    ema = None if averages is None else unflatten_dict(averages, sep='/')
    return dataclasses.replace(state, params=unflatten_dict(params, sep='/'), ema=ema)


def _embedding_slots(slots: Sequence[Slot]) -> list[Slot]:
  return [slot for slot in slots if slot.leaf in ROW_PER_PIECE]


def _keep_rows(whole: np.ndarray, fresh: jax.Array, is_new: np.ndarray) -> None:
  """Writes those rows of `fresh` that are new into `whole`: this host's shards, which are all that it keeps."""
  is_kept = np.zeros(len(whole), bool)  # padding rows stay zero
  is_kept[: len(is_new)] = is_new
  for shard in fresh.addressable_shards:
    rows = is_kept[shard.index[0]]
    whole[shard.index][rows] = np.asarray(shard.data)[rows]


def _in_shards(whole: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
  # A copy: a shard must not share memory with an array that Python may reuse.
  return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index].copy())


def open_initial(
  path: epath.PathLike | Source,
  parts: str,
  config: RemBertConfig,
  *,
  head: str = 'mlm',
  num_labels: int | None = None,
  drops_layers: bool = False,
  any_vocabulary: bool = False,
) -> InitialParameters:
  """Finds the parameters of the model at `path` (see `open_source`), for a model to be trained or evaluated.

  Args:
    path: the location, or the source that was opened there.
    parts: `all`; `encoder`, including the pooler if the head has one and it exists; or `available`, the encoder and
      what exists of the head.
    config: of the model, as are `head` and `num_labels`.
    drops_layers: initialise a model of fewer layers from the bottom ones (paper, section 6.2); otherwise an error.
    any_vocabulary: accept another `vocab_size`; `InitialParameters.for_vocabulary` must be called then.

  Raises:
    UsageError: there is no model, or parameters are missing, of another shape, or of another architecture; or the
      model has another `vocab_size`, and the source has no vocabulary.
  """
  source = path if isinstance(path, Source) else open_source(path)
  if drops_layers and config.num_hidden_layers < source.config.num_hidden_layers:
    source = source.bottom_layers(config.num_hidden_layers)
  model = source.slots(config, head, num_labels, has_pooler=head in POOLED)
  if any_vocabulary and config.vocab_size != source.config.vocab_size:
    source = _with_rows(source, _embedding_slots(model), config.vocab_size)
  pooler = source.names(model, 'encoder/pooler/')
  has_pooler = pooler <= source.tensors.keys()

  def is_wanted(slot: Slot) -> bool:
    name = slot.name(source.form)
    if slot.leaf.startswith('encoder/'):
      return parts == 'all' or name not in pooler or has_pooler
    return parts == 'all' or (parts == 'available' and name in source.tensors)

  def settings(names: Sequence[str]) -> list[str]:
    """Those of the source's that the configuration sets otherwise."""
    values = {name: getattr(source.config, name) for name in names}
    return [f'--gin.RemBertConfig.{name}={value}' for name, value in values.items() if value != getattr(config, name)]

  wanted = [slot for slot in model if is_wanted(slot)]
  is_mlm = parts != 'encoder' and head == 'mlm'
  try:
    check(source, wanted, allow_unexpected=True)
  except UsageError as error:
    fixes = settings(_SHAPE_FIELDS + _SHAPE_FIELDS_OF_MLM * is_mlm)
    if is_mlm:
      fixes.append('--gin.train.init_from_parts=encoder initialises the head randomly')
    raise UsageError(error.what, where=source.path, fix=fixes or error.fix) from error
  if differing := settings((*_FUNCTION_FIELDS, 'num_hidden_layers')):
    raise UsageError(
      'the initial parameters are of another architecture',
      where=source.path,
      fix='use its settings: ' + ' '.join(differing),
    )
  fresh = {slot.leaf for slot in model} - {slot.leaf for slot in wanted}
  return InitialParameters(source, tuple(wanted), tuple(sorted(fresh)))


def _with_rows(source: Source, slots: Sequence[Slot], rows: int) -> Source:
  """`source`, whose embeddings have the shapes of a vocabulary of `rows`; UsageError if it has none."""
  if source.vocabulary is None:
    size = source.config.vocab_size
    raise UsageError(
      f'the model has {rows:,} tokens and the parameters to begin with {size:,}, whose vocabulary is not there',
      where=f'RemBertConfig.vocab_size, train.init_from: {source.path}',
      fix=[
        'put its sentencepiece.model into vocabulary/ of the workdir, or into the Hugging Face model directory',
        Setting('RemBertConfig.vocab_size', size),
      ],
    )
  tensors = dict(source.tensors)
  for name in source.names(slots) & tensors.keys():
    tensors[name] = Tensor((rows, *tensors[name].shape[1:]), tensors[name].read)
  return dataclasses.replace(source, tensors=tensors)
