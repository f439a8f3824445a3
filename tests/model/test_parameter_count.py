"""Counts to the digit (first principles: A.1 of the paper); the paper's own models are in tests/test_presets.py."""

import dataclasses
import math

import pytest

from rembert.model.config import RemBertConfig
from rembert.model.heads import parameter_shapes
from rembert.model.parameter_count import count_parameters

# The ablations' mBERT architecture (paper, A.2).
MBERT = RemBertConfig(
  vocab_size=120_000,
  input_embedding_size=128,
  output_embedding_size=128,
  hidden_size=768,
  num_hidden_layers=12,
  num_attention_heads=12,
  intermediate_size=3072,
)
COUPLED = dataclasses.replace(MBERT, input_embedding_size=768, output_embedding_size=768, tie_word_embeddings=True)
ENGLISH = dataclasses.replace(MBERT, vocab_size=30_522)
REMBERT = RemBertConfig()
LAYER = 12 * 768**2 + 13 * 768


def test_counts_of_rembert_are_those_of_first_principles_and_those_published():
  for fields, pre_training, fine_tuning in (
    ({}, 994_591_804, 575_920_384),
    ({'vocab_size': 250_000}, 994_015_504, 575_843_584),
    ({'output_embedding_size': 1536}, 962_405_564, 575_920_384),
  ):
    counts = count_parameters(dataclasses.replace(REMBERT, **fields))
    assert (counts.pre_training, counts.fine_tuning) == (pre_training, fine_tuning)
  shapes = parameter_shapes('mlm', dataclasses.replace(REMBERT, pad_vocab_to_multiple_of=1), add_pooler=False)
  sizes = {path: math.prod(shape) for path, shape in shapes.items()}
  assert sum(size for path, size in sizes.items() if path.startswith('encoder/')) == 574_592_128
  assert sum(sizes.values()) == 993_263_548


@pytest.mark.parametrize('config', [REMBERT, COUPLED, MBERT], ids=['released', 'coupled', 'ablation'])
def test_every_part_has_the_size_that_its_formula_says(config):
  i, e, h = config.input_embedding_size, config.output_embedding_size, config.hidden_size
  f, v, layers = config.intermediate_size, config.vocab_size, config.num_hidden_layers
  expected = {
    'word embedding': v * i,
    'position and type embeddings': (config.max_position_embeddings + config.type_vocab_size) * i + 2 * i,
    'embedding projection': 0 if i == h else i * h + h,
    'Transformer layers': layers * (4 * (h * h + h) + 2 * h * f + f + h + 4 * h),
    'pooler': h * h + h,
    'MLM transform': h * e + e + 2 * e,
    'output embedding': 0 if config.tie_word_embeddings else v * e,
    'output bias': v,
  }
  counts = count_parameters(config)
  assert dict(counts.by_part) == expected
  assert counts.pre_training == sum(expected.values())
  head = expected['MLM transform'] + expected['output embedding'] + expected['output bias']
  assert counts.fine_tuning == counts.pre_training - head


def test_layers_that_fine_tuning_drops_count_in_pre_training_alone():
  deep = dataclasses.replace(MBERT, num_hidden_layers=23)
  counts = count_parameters(deep, kept_layers=12)
  assert counts.pre_training == count_parameters(MBERT).pre_training + 11 * LAYER
  assert counts.fine_tuning == count_parameters(MBERT).fine_tuning
  for kept_layers in (None, 23, 24):
    assert count_parameters(deep, kept_layers=kept_layers).fine_tuning == counts.fine_tuning + 11 * LAYER


def test_padding_the_vocabulary_adds_no_parameters():
  counts = {
    count_parameters(dataclasses.replace(ENGLISH, pad_vocab_to_multiple_of=n)).pre_training for n in (1, 128, 1024)
  }
  assert counts == {93_753_018}
