"""What a configuration is by default, what follows from it, and what it refuses."""

import dataclasses

import pytest

from rembert.errors import UsageError
from rembert.model.config import Execution, RemBertConfig


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
  assert RemBertConfig().head_dim == 64  # the paper's


def test_the_vocabulary_is_rounded_up_to_the_multiple():
  for vocab_size, multiple, padded in ((250_300, 128, 250_368), (256, 128, 256), (257, 128, 384), (99, 1, 99)):
    config = RemBertConfig(vocab_size=vocab_size, pad_vocab_to_multiple_of=multiple)
    assert config.padded_vocab_size == padded


def test_embeddings_are_projected_only_where_the_widths_differ_and_tied_only_where_they_do_not():
  assert RemBertConfig().projects_embeddings
  assert not RemBertConfig(input_embedding_size=1152).projects_embeddings
  assert RemBertConfig(input_embedding_size=1152, always_project_embeddings=True).projects_embeddings
  with pytest.raises(UsageError, match='tied embeddings must have equal sizes'):
    RemBertConfig(tie_word_embeddings=True)
  assert RemBertConfig(input_embedding_size=1664, tie_word_embeddings=True).tie_word_embeddings


def test_wrong_heads_are_answered_with_heads_that_divide():
  with pytest.raises(UsageError) as error:
    RemBertConfig(num_attention_heads=17)
  assert error.value.where.startswith('RemBertConfig.num_attention_heads')
  suggested = [int(word) for word in error.value.fix[0].split(' heads')[0].split() if word.isdigit()]
  assert suggested
  assert all(1152 % heads == 0 for heads in suggested)


def test_fused_attention_has_no_dropout_and_cudnn_needs_bfloat16_and_heads_of_a_multiple_of_8_units():
  dropping, narrow = RemBertConfig(attention_probs_dropout_prob=0.1), RemBertConfig(num_attention_heads=96)
  Execution().check_model(dropping)
  with pytest.raises(UsageError, match='computes in bfloat16, not float32'):
    Execution(attention='cudnn')
  for attention in 'cudnn', 'splash':
    execution = Execution(dtype='bfloat16', attention=attention)
    execution.check_model(RemBertConfig())
    with pytest.raises(UsageError, match='does not support attention dropout') as error:
      execution.check_model(dropping)
    assert 'execution.attention=einsum' in error.value.fix[0]
  execution.check_model(narrow)
  with pytest.raises(UsageError, match='multiple of 8, not 12'):
    Execution(dtype='bfloat16', attention='cudnn').check_model(narrow)
