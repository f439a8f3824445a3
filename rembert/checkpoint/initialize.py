"""What a run begins with when it is given parameters: those of another run, or of a folder of Hugging Face."""

import dataclasses
import itertools
from collections.abc import Callable

import jax
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from rembert.checkpoint.load import Source, open_source
from rembert.convert.importing import check
from rembert.convert.tensor_names import Slot
from rembert.errors import Setting, UsageError
from rembert.model.config import RemBertConfig
from rembert.model.heads import POOLED
from rembert.train.state import TrainState

# With other values the same parameters are another function, though every shape fits.
_FUNCTION_FIELDS = ('num_attention_heads', 'hidden_act', 'layer_norm_eps')


@dataclasses.dataclass(frozen=True)
class InitialParameters:
  """Parameters that fit a run's model, not yet read."""

  source: Source
  slots: tuple[Slot, ...]

  def check_vocabulary(self, vocabulary: epath.PathLike) -> None:
    """Raises UsageError if the parameters are rows for other pieces than those of `vocabulary`."""
    theirs = self.source.vocabulary
    if theirs is not None and epath.Path(theirs).read_bytes() != epath.Path(vocabulary).read_bytes():
      raise UsageError(
        'the parameters to begin with were trained with another vocabulary',
        where=f'{theirs}, {vocabulary}',
        fix=[Setting('vocabulary.path', theirs), 'and a token store made with it if there is one'],
      )

  def put_into(self, state: TrainState, on_progress: Callable[[float], None] = lambda fraction: None) -> TrainState:
    """`state` with these parameters in the place of its own, whose memory is given up one by one.

    Each is read by all hosts and laid down in shards. In a host's memory there is one at a time; on the devices there
    is one more than the state holds.
    """
    params = flatten_dict(state.params, sep='/')
    by_leaf = [(leaf, list(slots)) for leaf, slots in itertools.groupby(self.slots, key=lambda slot: slot.leaf)]
    for number, (leaf, slots) in enumerate(by_leaf, 1):
      fresh = params[leaf]
      whole = np.zeros(fresh.shape, np.float32)
      for slot in slots:
        slot.put(whole, self.source.tensors[slot.name(self.source.form)].read(), self.source.form)
      sharding = fresh.sharding
      fresh.delete()
      params[leaf] = _in_shards(whole, sharding)
      on_progress(number / len(by_leaf))
    return dataclasses.replace(state, params=unflatten_dict(params, sep='/'))


def _in_shards(whole: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
  # A copy, since what is laid down must not share memory with an array that Python may reuse.
  return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index].copy())


def open_initial(
  path: epath.PathLike,
  parts: str,
  config: RemBertConfig,
  *,
  head: str = 'mlm',
  num_labels: int | None = None,
  drops_layers: bool = False,
) -> InitialParameters:
  """The parameters of a workdir, a checkpoint or a folder of Hugging Face, for a model to be trained or judged.

  Args:
    path: where they are.
    parts: `all`, or `encoder`: with the pooler then, if the head has one and there is one.
    config: of the model.
    head: of the model, see `rembert.model.heads.HEADS`.
    num_labels: of a classifier.
    drops_layers: a model with fewer layers gets the bottom ones (paper, section 6.2); otherwise that is an error.

  Raises:
    UsageError: nothing is there, or parameters are missing, of another shape, or of another architecture.
  """
  source = open_source(path)
  drops_layers &= config.num_hidden_layers < source.config.num_hidden_layers
  if drops_layers:
    source = open_source(path, config.num_hidden_layers)
  model = source.slots(config, head, num_labels, has_pooler=head in POOLED)
  pooler = source.names(model, 'encoder/pooler/')
  is_given = lambda slot: slot.name(source.form) not in pooler or pooler <= source.tensors.keys()
  wanted = [slot for slot in model if parts == 'all' or (slot.leaf.startswith('encoder/') and is_given(slot))]
  differing = [
    f'--gin.RemBertConfig.{field.name}={getattr(source.config, field.name)}'
    for field in dataclasses.fields(RemBertConfig)
    if field.name in _FUNCTION_FIELDS and getattr(source.config, field.name) != getattr(config, field.name)
  ]
  if source.config.num_hidden_layers != config.num_hidden_layers and not drops_layers:
    differing.append(f'--gin.RemBertConfig.num_hidden_layers={source.config.num_hidden_layers}')
  try:
    check(source.tensors, wanted, source.form, where=source.path, allow_unexpected=True)
  except UsageError as error:
    fields = _shape_fields(with_mlm=parts == 'all' and head == 'mlm')
    shapes = [field for field in fields if getattr(source.config, field) != getattr(config, field)]
    fixes = [f'--gin.RemBertConfig.{field}={getattr(source.config, field)}' for field in shapes]
    if parts == 'all' and head == 'mlm':
      fixes.append('--gin.train.init_from_parts=encoder begins with a fresh head')
    raise UsageError(error.what, where=source.path, fix=fixes or error.fix) from error
  if differing:
    raise UsageError(
      'the parameters to begin with are of another architecture',
      where=source.path,
      fix='take theirs: ' + ' '.join(differing),
    )
  # The layers of a folder of Hugging Face come one by one, and each of our parameters holds all of them.
  return InitialParameters(source, tuple(sorted(wanted, key=lambda slot: slot.leaf)))


def _shape_fields(*, with_mlm: bool) -> list[str]:
  encoder = ['vocab_size', 'input_embedding_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads']
  encoder += ['intermediate_size', 'max_position_embeddings', 'type_vocab_size']
  return encoder + (['output_embedding_size', 'tie_word_embeddings'] if with_mlm else [])
