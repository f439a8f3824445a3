"""The paper's models, counted to the digit (first principles: A.1 of the paper; pooler and whole MLM head included)."""

import dataclasses
import math

import jax
import pytest

from rembert.model.config import RemBertConfig
from rembert.model.parameter_counts import abstract_parameters, count_parameters

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
ENGLISH = dataclasses.replace(MBERT, vocab_size=30_522)
REMBERT = RemBertConfig()
WIDE = {'hidden_size': 1024, 'num_attention_heads': 16, 'intermediate_size': 4096}

# Name, configuration in pre-training, layers kept for fine-tuning, parameters in pre-training and in fine-tuning.
ROWS = [
  (
    'Table 2 coupled',
    dataclasses.replace(MBERT, input_embedding_size=768, output_embedding_size=768, tie_word_embeddings=True),
    12,
    178_913_472,
    178_201_344,
  ),
  (
    'Table 2 decoupled',
    dataclasses.replace(MBERT, input_embedding_size=768, output_embedding_size=768),
    12,
    271_073_472,
    178_201_344,
  ),
  ('Table 3 in 768 out 128', dataclasses.replace(MBERT, input_embedding_size=768), 12, 193_780_032, 178_201_344),
  ('Table 4 out 128', MBERT, 12, 116_748_864, 101_170_176),
  ('Table 4 out 768', dataclasses.replace(MBERT, output_embedding_size=768), 12, 194_042_304, 101_170_176),
  ('Table 4 out 3072', dataclasses.replace(MBERT, output_embedding_size=3072), 12, 472_298_688, 101_170_176),
  ('Table 5 23 to 12 layers', dataclasses.replace(MBERT, num_hidden_layers=23), 12, 194_715_456, 101_170_176),
  ('Table 6 H 1024', dataclasses.replace(MBERT, output_embedding_size=768, **WIDE), 12, 260_831_168, 167_762_432),
  (
    'Table 6 L 23',
    dataclasses.replace(MBERT, output_embedding_size=768, num_hidden_layers=23),
    23,
    272_008_896,
    179_136_768,
  ),
  ('Table 12 tied 128', dataclasses.replace(MBERT, tie_word_embeddings=True), 12, 101_388_864, 101_170_176),
  ('Table 13 out 128', ENGLISH, 12, 93_753_018, 89_716_992),
  ('Table 13 out 768', dataclasses.replace(ENGLISH, output_embedding_size=768), 12, 113_780_538, 89_716_992),
  ('Table 13 out 3072', dataclasses.replace(ENGLISH, output_embedding_size=3072), 12, 185_879_610, 89_716_992),
  ('Table 13 15 to 12 layers', dataclasses.replace(ENGLISH, num_hidden_layers=15), 12, 115_016_634, 89_716_992),
  ('Table 13 24 to 12 layers', dataclasses.replace(ENGLISH, num_hidden_layers=24), 12, 178_807_482, 89_716_992),
  ('RemBERT as released', REMBERT, 32, 994_591_804, 575_920_384),
  ('RemBERT V 250,000', dataclasses.replace(REMBERT, vocab_size=250_000), 32, 994_015_504, 575_843_584),
  ('RemBERT out 1536', dataclasses.replace(REMBERT, output_embedding_size=1536), 32, 962_405_564, 575_920_384),
  (
    'RemBERT as printed',
    dataclasses.replace(REMBERT, vocab_size=250_000, output_embedding_size=1536),
    32,
    961_867_664,
    575_843_584,
  ),
]


@pytest.mark.parametrize(
  ('config', 'kept_layers', 'pre_training', 'fine_tuning'), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_counts_are_the_papers_to_the_digit(config, kept_layers, pre_training, fine_tuning):
  assert count_parameters(config).pre_training == pre_training
  kept = dataclasses.replace(config, num_hidden_layers=kept_layers)
  assert count_parameters(kept).fine_tuning == fine_tuning


@pytest.mark.parametrize('config', [REMBERT, ROWS[0][1], MBERT], ids=['released', 'coupled', 'ablation'])
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


def test_rembert_without_its_pooler_has_the_published_counts():
  parameters = abstract_parameters(dataclasses.replace(REMBERT, pad_vocab_to_multiple_of=1), add_pooler=False)
  size = lambda tree: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
  assert size(parameters['encoder']) == 574_592_128
  assert size(parameters) == 993_263_548


def test_padding_the_vocabulary_adds_no_parameters():
  counts = {
    count_parameters(dataclasses.replace(ENGLISH, pad_vocab_to_multiple_of=n)).pre_training for n in (1, 128, 1024)
  }
  assert counts == {93_753_018}


def test_counting_a_billion_parameters_allocates_nothing():
  before = {id(array) for array in jax.live_arrays()}
  count_parameters(dataclasses.replace(REMBERT, output_embedding_size=4096))
  assert sum(array.size for array in jax.live_arrays() if id(array) not in before) == 0
