"""Training here and in Hugging Face's torch RemBERT: the same losses step by step, and the same parameters at the end.

A few steps of what `docs.tools.training_parity` makes hundreds of. Torch is imported inside functions, as in
test_huggingface.py.
"""

import dataclasses

import pytest

from docs.tools.training_pairs import finetuning, pretraining, train_twice

pytestmark = pytest.mark.parity

# Of the difference of losses, in nats, and of the distance of the parameters, relative to what they have moved.
TOLERANCE = {'float32': 1e-5, 'float64': 1e-7}
MODEL = (
  'RemBertConfig.vocab_size=2000',
  'RemBertConfig.input_embedding_size=17',
  'RemBertConfig.output_embedding_size=43',
  'RemBertConfig.hidden_size=36',
  'RemBertConfig.num_hidden_layers=3',
  'RemBertConfig.num_attention_heads=3',
  'RemBertConfig.intermediate_size=50',
)
DATA = (
  "data.languages=('de', 'en', 'zh')",
  'vocabulary.character_coverage=0.98',
  'vocabulary.sample_characters=120000',
)
STEPS = ('train.steps=20', 'train.batch_size=8', 'optimizer.warmup_steps=4', 'optimizer.learning_rate=1e-3')


@pytest.fixture(scope='module')
def pretrained(tmp_path_factory):
  """Ten steps of pre-training, and the vocabulary."""
  return pretraining(tmp_path_factory.mktemp('parity'), 10, *MODEL, *DATA, *STEPS)


def assert_equal_training(training, dtype):
  steps, _ = train_twice(training, dtype)
  assert len(steps) == len(training.batches)
  assert steps[-1].loss < steps[0].loss
  assert max(abs(step.difference) for step in steps) <= TOLERANCE[dtype]
  assert steps[-1].distance <= TOLERANCE[dtype]


@pytest.mark.parametrize('bias_correction', [False, True], ids=["BERT's AdamW", "torch's AdamW"])
@pytest.mark.parametrize('dtype', TOLERANCE)
def test_masked_language_modelling_on_packed_rows(pretrained, bias_correction, dtype):
  training, _ = pretrained
  optimizer = dataclasses.replace(training.config.optimizer, bias_correction=bias_correction)
  config = dataclasses.replace(training.config, optimizer=optimizer)
  assert any(batch['segment_ids'].max() > 1 for batch in training.batches)
  assert_equal_training(dataclasses.replace(training, config=config), dtype)


@pytest.mark.parametrize('dtype', TOLERANCE)
@pytest.mark.parametrize('task', ['xnli', 'udpos', 'squad'])
def test_fine_tuning_on_pairs_tags_and_spans(pretrained, task, dtype):
  rows = ('train.sequence_length=64', 'xtreme.doc_stride=32', 'xtreme.max_query_length=16')
  assert_equal_training(finetuning(task, *pretrained, 5, *rows, *STEPS), dtype)
