import dataclasses

import numpy as np
import pytest

from benchmarks import finetune
from benchmarks.settings import write_random_model

TINY = dataclasses.replace(
  finetune.SETTINGS['xnli'].config,
  vocab_size=400,
  input_embedding_size=8,
  hidden_size=16,
  num_hidden_layers=1,
  intermediate_size=32,
  max_position_embeddings=32,
  classifier_dropout_prob=0.0,  # random numbers differ between implementations
)
SETTINGS = {
  name: dataclasses.replace(setting, config=TINY, rows=8, length=12) for name, setting in finetune.SETTINGS.items()
}


def reference_loss(setting, folder) -> float:
  """Cross-entropy of the loaded model's logits, float64."""
  from scipy.special import log_softmax

  from rembert.inference.model import load

  batch = finetune.random_batch(setting)
  logits = np.asarray(load(folder, setting.head)(batch['input_ids'], batch['token_type_ids']).logits, np.float64)
  logits = np.swapaxes(logits, 1, 2) if setting.head == 'qa' else logits  # [B, 2, S], or [B, n]
  return -np.take_along_axis(log_softmax(logits, axis=-1), batch['labels'][..., None], axis=-1).mean()


@pytest.mark.parametrize(
  ('name', 'prepare'),
  [
    *((name, finetune.prepare_ours) for name in ('xnli', 'squad')),
    *(pytest.param(name, finetune.prepare_torch, marks=pytest.mark.slow) for name in SETTINGS),
  ],
)
def test_the_first_loss_is_that_of_the_model_and_the_next_is_smaller(name, prepare, tmp_path):
  if prepare is finetune.prepare_torch:
    pytest.importorskip('torch', reason='`make bench` installs torch')
  setting, folder = SETTINGS[name], tmp_path / 'model'
  write_random_model(folder, TINY, setting.head, num_labels=setting.num_labels)
  is_float32, run = setting.dtype == 'float32', prepare(setting, folder)
  first, second = run()['loss'], run()['loss']
  assert first == pytest.approx(reference_loss(setting, folder), rel=1e-5 if is_float32 else 1e-2)
  if is_float32:
    assert second < first  # so small a step is lost in bfloat16


def test_all_candidates_start_from_the_weights_of_one_model(tmp_path):
  first, *others = finetune.candidates(finetune.SETTINGS['squad'], tmp_path)
  assert first.work['tokens'] == 8 * 384
  assert all(other.arguments == first.arguments for other in others)
