"""What a configuration is by default, what follows from it, and what it refuses."""

import dataclasses

import pytest

from rembert.errors import UsageError
from rembert.model.config import ACTIVATIONS, ATTENTION_BACKENDS, REMAT_POLICIES, Execution, RemBertConfig


def test_the_default_is_the_released_rembert():
  # config.json of google/rembert; classifier_dropout_prob is the default of Hugging Face's class.
  released = {
    'attention_probs_dropout_prob': 0,
    'bos_token_id': 312,
    'classifier_dropout_prob': 0.1,
    'eos_token_id': 313,
    'hidden_act': 'gelu',
    'hidden_dropout_prob': 0,
    'hidden_size': 1152,
    'initializer_range': 0.02,
    'input_embedding_size': 256,
    'intermediate_size': 4608,
    'layer_norm_eps': 1e-12,
    'max_position_embeddings': 512,
    'num_attention_heads': 18,
    'num_hidden_layers': 32,
    'output_embedding_size': 1664,
    'pad_token_id': 0,
    'tie_word_embeddings': False,
    'type_vocab_size': 2,
    'vocab_size': 250_300,
  }
  ours = dataclasses.asdict(RemBertConfig())
  del ours['pad_vocab_to_multiple_of']  # how tables are stored, not what the model is
  assert not ours.pop('always_project_embeddings')  # theirs always does; it matters only where I = H
  assert ours == released


def test_head_dim_is_the_papers_64():
  assert RemBertConfig().head_dim == 64


@pytest.mark.parametrize(
  ('vocab_size', 'multiple', 'padded'),
  [(250_300, 128, 250_368), (250_000, 128, 250_112), (256, 128, 256), (257, 128, 384), (99, 1, 99), (1, 128, 128)],
)
def test_the_vocabulary_is_rounded_up_to_the_multiple(vocab_size, multiple, padded):
  config = RemBertConfig(vocab_size=vocab_size, pad_vocab_to_multiple_of=multiple)
  assert config.padded_vocab_size == padded


def test_embeddings_are_projected_only_where_the_widths_differ():
  assert RemBertConfig().projects_embeddings
  assert not RemBertConfig(input_embedding_size=1152).projects_embeddings
  assert RemBertConfig(input_embedding_size=1152, always_project_embeddings=True).projects_embeddings


def test_configurations_cannot_be_changed():
  with pytest.raises(dataclasses.FrozenInstanceError):
    RemBertConfig().hidden_size = 1
  with pytest.raises(dataclasses.FrozenInstanceError):
    Execution().dtype = 'bfloat16'


@pytest.mark.parametrize(
  ('fields', 'where'),
  [
    ({'num_attention_heads': 17}, 'RemBertConfig.num_attention_heads'),
    ({'num_attention_heads': 0}, 'RemBertConfig.num_attention_heads'),
    ({'vocab_size': 0}, 'RemBertConfig.vocab_size'),
    ({'vocab_size': 250_300.0}, 'RemBertConfig.vocab_size'),
    ({'hidden_size': '1152'}, 'RemBertConfig.hidden_size'),
    ({'num_hidden_layers': -1}, 'RemBertConfig.num_hidden_layers'),
    ({'pad_vocab_to_multiple_of': 0}, 'RemBertConfig.pad_vocab_to_multiple_of'),
    ({'tie_word_embeddings': True}, 'RemBertConfig.tie_word_embeddings'),
    ({'hidden_act': 'relu'}, 'RemBertConfig.hidden_act'),
  ],
)
def test_a_model_that_cannot_be_is_refused_with_its_field(fields, where):
  with pytest.raises(UsageError) as error:
    RemBertConfig(**fields)
  assert error.value.where.startswith(where)
  assert all(error.value.fix)


def test_wrong_heads_are_answered_with_heads_that_divide():
  with pytest.raises(UsageError) as error:
    RemBertConfig(num_attention_heads=17)
  suggested = [int(word) for word in error.value.fix[0].split(' heads')[0].split() if word.isdigit()]
  assert suggested
  assert all(1152 % heads == 0 for heads in suggested)


def test_tying_needs_one_width():
  assert RemBertConfig(input_embedding_size=1664, tie_word_embeddings=True).tie_word_embeddings


@pytest.mark.parametrize('activation', ACTIVATIONS)
def test_both_gelus_are_known(activation):
  assert RemBertConfig(hidden_act=activation).hidden_act == activation


@pytest.mark.parametrize(
  ('fields', 'where'),
  [
    ({'dtype': 'float16'}, 'execution.dtype'),
    ({'remat': 'some'}, 'execution.remat'),
    ({'unroll': 0}, 'execution.unroll'),
    ({'attention': 'flash'}, 'execution.attention'),
    ({'kernels': 'fast'}, 'execution.kernels'),
    ({'loss_chunk': -1}, 'execution.loss_chunk'),
    ({'loss_chunk': 0.5}, 'execution.loss_chunk'),
    ({'loss_chunk': True}, 'execution.loss_chunk'),
    ({'attention': 'cudnn', 'dtype': 'float32'}, 'execution.attention'),
  ],
)
def test_an_execution_that_cannot_be_is_refused_with_its_field(fields, where):
  with pytest.raises(UsageError) as error:
    Execution(**fields)
  assert error.value.where.startswith(where)


def test_every_remat_policy_is_accepted():
  assert [Execution(remat=remat).remat for remat in REMAT_POLICIES] == [
    'none',
    'dots',
    'dots_and_attention',
    'full',
    'offload',
  ]


@pytest.mark.parametrize('attention', ATTENTION_BACKENDS)
def test_attention_weights_are_dropped_by_einsum_alone(attention):
  execution = Execution(dtype='bfloat16', attention=attention)
  execution.check_model(RemBertConfig())
  dropping = RemBertConfig(attention_probs_dropout_prob=0.1)
  if attention == 'einsum':
    execution.check_model(dropping)
  else:
    with pytest.raises(UsageError, match='cannot drop attention weights') as error:
      execution.check_model(dropping)
    assert 'execution.attention=einsum' in error.value.fix[0]


def test_cudnn_needs_heads_of_a_multiple_of_8_units():
  narrow = RemBertConfig(hidden_size=120, num_attention_heads=10)
  with pytest.raises(UsageError, match='multiple of 8 units, not 12'):
    Execution(dtype='bfloat16', attention='cudnn').check_model(narrow)
  Execution(dtype='bfloat16', attention='splash').check_model(narrow)
