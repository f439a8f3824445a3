import numpy as np
import pytest

from benchmarks import head

TINY = head.at_vocabulary(500, rows=2, length=16, slots=3)


def reference_loss(setting) -> float:
  """Logits at the masked positions and their cross-entropy, float64."""
  from scipy.special import erf, log_softmax

  given = head.problem(setting)
  states = np.take_along_axis(given['states'], given['masked_positions'][..., None], axis=1).astype(np.float64)
  x = states @ given['transform']
  x = 0.5 * x * (1 + erf(x / np.sqrt(2)))
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + setting.config.layer_norm_eps)
  scores = log_softmax(x @ given['output_embedding'].T, axis=-1)
  return -np.take_along_axis(scores, given['targets'][..., None], axis=-1).mean()


@pytest.mark.parametrize('way', head.WAYS)
def test_all_ways_have_the_same_loss(way):
  run = head.prepare_ours(TINY, way)
  assert run()['loss'] == pytest.approx(reference_loss(TINY), rel=1e-5)


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize('only_masked', [False, True])
def test_torch_has_the_same_problem(only_masked):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  run = head.prepare_torch(TINY, only_masked)
  assert run()['loss'] == run()['loss'] == pytest.approx(reference_loss(TINY), rel=1e-5)


def test_useful_work_is_three_products_at_the_masked_positions(tmp_path):
  first, *_ = head.candidates(head.SETTINGS['v32k'], tmp_path)
  assert first.work[head.USEFUL] == pytest.approx(6 * 160 * 512 * (256 + 32_000) / 1e9)
