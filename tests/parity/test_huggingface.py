"""The same weights in Hugging Face's torch RemBERT and in this one: outputs and gradients agree to float32 rounding.

Weights are random and nothing is downloaded. Torch is imported inside functions: the suite can be collected without it,
but this comparison, once asked for, fails where torch is missing; it is never skipped in silence.
"""

import dataclasses

import numpy as np
import pytest
from hugging_face_cases import CASES, CONFIGURATIONS, TOLERANCE, Outputs, as_our_tree, batch, differences, run_ours

from rembert.model.config import RemBertConfig

pytestmark = pytest.mark.parity


@dataclasses.dataclass
class Pair:
  name: str
  config: RemBertConfig
  ours: Outputs
  theirs: Outputs


@pytest.fixture(scope='module', params=CASES, ids=lambda case: f'{case[1]}, {case[0]}')
def pair(request) -> Pair:
  import hugging_face_models

  name, head = request.param
  config = CONFIGURATIONS[name]
  inputs = batch(config, head)
  model = hugging_face_models.random_model(config, head)
  theirs = hugging_face_models.run(model, inputs, head)
  parameters = as_our_tree(hugging_face_models.weights(model), config)
  return Pair(f'{head}, {name}', config, run_ours(config, head, inputs, parameters), theirs)


def test_outputs_loss_and_the_gradient_of_every_parameter_agree(pair, figures):
  found = differences(pair.ours, pair.theirs, pair.config)
  for quantity, by_tensor in found.items():
    figures.enter(pair.name, quantity, by_tensor)
  too_far = {
    f'{quantity} {tensor}': figure
    for quantity, by_tensor in found.items()
    for tensor, figure in by_tensor.items()
    if not figure <= TOLERANCE
  }
  assert not too_far


def test_rows_that_pad_the_vocabulary_get_no_gradient(pair):
  tables = [pair.ours.gradients['encoder']['embeddings']['word']['embedding']]
  if 'mlm' in pair.ours.gradients:
    tables += [pair.ours.gradients['mlm'][name] for name in ('output_embedding', 'bias')]
  for table in tables:
    assert not np.any(table[pair.config.vocab_size :])
