"""Initialises the parameters of a run from another run or a Hugging Face model directory (`train.init_from`)."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint.load import open_source
from rembert.convert.importing import check, read_parameters
from rembert.convert.tensor_names import Slot, Source
from rembert.errors import Setting, UsageError
from rembert.model.config import RemBertConfig
from rembert.model.heads import POOLED
from rembert.train.state import TrainState

# With other values the same parameters compute another function, although all shapes match.
_FUNCTION_FIELDS = ('num_attention_heads', 'hidden_act', 'layer_norm_eps')
_SHAPE_FIELDS = ['vocab_size', 'input_embedding_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads']
_SHAPE_FIELDS += ['intermediate_size', 'max_position_embeddings', 'type_vocab_size']
_SHAPE_FIELDS_OF_MLM = ['output_embedding_size', 'tie_word_embeddings']


@dataclasses.dataclass(frozen=True)
class InitialParameters:
  """Parameters that match a run's model, not yet read; `fresh` are paths of those that stay randomly initialised."""

  source: Source
  slots: tuple[Slot, ...]
  fresh: tuple[str, ...] = ()

  def check_vocabulary(self, vocabulary: epath.PathLike) -> None:
    """Raises UsageError if the parameters were trained with another vocabulary than `vocabulary`."""
    theirs = self.source.vocabulary
    if theirs is not None and epath.Path(theirs).read_bytes() != epath.Path(vocabulary).read_bytes():
      raise UsageError(
        'the initial parameters were trained with another vocabulary',
        where=f'{theirs}, {vocabulary}',
        fix=[Setting('vocabulary.path', theirs), 'and a token store made with it if there is one'],
      )

  def put_into(self, state: TrainState, on_progress: Callable[[float], None] = lambda fraction: None) -> TrainState:
    """Replaces the parameters of `state`, freeing the old ones one by one.

    Every host reads each parameter and keeps its shards. At most one parameter is in a host's memory; the devices hold
    one more than the state does.
    """
    params = flatten_dict(state.params, sep='/')
    shapes = {leaf: fresh.shape for leaf, fresh in params.items()}
    for leaf, whole in read_parameters(self.source, self.slots, shapes, on_progress):
      sharding = params[leaf].sharding
      params[leaf].delete()
      params[leaf] = _in_shards(whole, sharding)
    return dataclasses.replace(state, params=unflatten_dict(params, sep='/'))


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
) -> InitialParameters:
  """Finds the parameters of the model at `path` (see `open_source`), for a model to be trained or evaluated.

  Args:
    path: the location, or the source that was opened there.
    parts: `all`; `encoder`, including the pooler if the head has one and it exists; or `available`, the encoder and
      what exists of the head.
    config: configuration of the model.
    head: head of the model, see `rembert.model.heads.HEADS`.
    num_labels: number of labels of a classifier.
    drops_layers: initialise a model of fewer layers from the bottom ones (paper, section 6.2); otherwise an error.

  Raises:
    UsageError: there is no model, or parameters are missing, of another shape, or of another architecture.
  """
  source = path if isinstance(path, Source) else open_source(path)
  if drops_layers and config.num_hidden_layers < source.config.num_hidden_layers:
    source = source.bottom_layers(config.num_hidden_layers)
  model = source.slots(config, head, num_labels, has_pooler=head in POOLED)
  pooler = source.names(model, 'encoder/pooler/')
  is_given = lambda slot: slot.name(source.form) not in pooler or pooler <= source.tensors.keys()
  is_there = lambda slot: parts == 'available' and slot.name(source.form) in source.tensors
  is_wanted = lambda slot: (slot.leaf.startswith('encoder/') and is_given(slot)) or is_there(slot)
  wanted = [slot for slot in model if parts == 'all' or is_wanted(slot)]
  is_mlm = parts != 'encoder' and head == 'mlm'
  theirs = lambda names: [
    f'--gin.RemBertConfig.{name}={getattr(source.config, name)}'
    for name in names
    if getattr(source.config, name) != getattr(config, name)
  ]
  try:
    check(source, wanted, allow_unexpected=True)
  except UsageError as error:
    fixes = theirs(_SHAPE_FIELDS + _SHAPE_FIELDS_OF_MLM * is_mlm)
    if is_mlm:
      fixes.append('--gin.train.init_from_parts=encoder initialises the head randomly')
    raise UsageError(error.what, where=source.path, fix=fixes or error.fix) from error
  if differing := theirs((*_FUNCTION_FIELDS, 'num_hidden_layers')):
    raise UsageError(
      'the initial parameters are of another architecture',
      where=source.path,
      fix='use its settings: ' + ' '.join(differing),
    )
  fresh = {slot.leaf for slot in model} - {slot.leaf for slot in wanted}
  return InitialParameters(source, tuple(wanted), tuple(sorted(fresh)))
