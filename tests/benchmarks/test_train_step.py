import dataclasses
import math

import pytest

from benchmarks import train_step
from benchmarks.settings import SMALL, Setting, random_batch
from benchmarks.turns import Measurement, NotHere
from rembert.training import flops

# Of the first loss: before anything is learned all pieces are alike, but for logits of 0.14 (a row of E = 48 numbers of
# 0.02 times one of length √48); over 24 positions that makes 0.03.
EXPECTED = pytest.approx(math.log(500), abs=0.1)
TINY = Setting(
  dataclasses.replace(
    SMALL, vocab_size=500, hidden_size=32, num_hidden_layers=2, intermediate_size=64, output_embedding_size=48
  ),
  rows=8,
  length=16,
  slots=3,
)


@pytest.mark.parametrize(
  ('prepare', 'dtype'),
  [(train_step.prepare_ours, 'float32'), (train_step.prepare_ours, 'bfloat16'), (train_step.prepare_sketch, 'float32')],
)
def test_a_step_is_made_and_the_next_one_knows_it(prepare, dtype):
  run = prepare(dataclasses.replace(TINY, dtype=dtype))
  first, *_, last = [run()['loss'] for _ in range(30)]
  assert first == EXPECTED
  assert last < first  # the same batch again and again is learned by heart


@pytest.mark.parametrize('options', [(False,), (True,)], ids=['float32', 'bfloat16'])
def test_torch_makes_the_same_step(options):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  run = train_step.prepare_torch(TINY, *options)
  first, *_, last = [run()['loss'] for _ in range(30)]
  assert first == EXPECTED
  assert last < first  # the same batch again and again is learned by heart


def test_masked_positions_have_the_targets_as_labels_and_nothing_else_has():
  batch = random_batch(TINY)
  labels = [row[row >= 0].tolist() for row in batch['labels']]
  assert labels == batch['targets'].tolist()


def test_useful_work_is_that_of_the_trimmed_model(tmp_path):
  ours, *others = train_step.contestants('small', tmp_path)
  setting = train_step.SETTINGS['small']
  counted = flops.train_flops_per_row(setting.config, setting.length, setting.slots, last_queries=setting.slots)
  assert ours.work['tokens'] == 2048
  assert ours.work[train_step.USEFUL] == pytest.approx(16 * counted / 1e9)
  assert all(other.work == ours.work for other in others if not other.name.startswith('('))


@pytest.mark.parametrize(
  ('setting', 'ours', 'torch'),
  [
    ('small', [train_step.GIVEN_BACK], [train_step.TORCH, train_step.TORCH_COMPILED]),
    ('base', [], [train_step.TORCH]),
    ('base_compiled', [], [train_step.TORCH_COMPILED]),
    ('small_bfloat16', [train_step.IN_FLOAT32], [train_step.TORCH_BF16, train_step.TORCH_BF16_COMPILED]),
    ('base_bfloat16', [], [train_step.TORCH_BF16, train_step.TORCH_BF16_COMPILED]),
  ],
)
def test_torch_stands_beside_us_in_our_dtype_as_it_is_and_compiled(setting, ours, torch, tmp_path):
  first, *others = train_step.contestants(setting, tmp_path)
  assert first.name == train_step.OURS
  assert [other.name for other in others if other.name.startswith('…')] == ours
  theirs = [other for other in others if other.prepare is train_step.prepare_torch]
  assert [other.name for other in theirs] == torch
  for other in theirs:
    _, autocast, *rest = other.arguments
    assert autocast == (first.arguments[0].dtype == 'bfloat16') == ('bfloat16' in other.name)
    assert rest == (['cpu', True] if 'compiled' in other.name else [])


@pytest.mark.parametrize('setting', train_step.ON_GPU)
def test_the_large_settings_are_for_a_gpu(setting, tmp_path, monkeypatch):
  monkeypatch.setattr('pathlib.Path.exists', lambda path: False)
  with pytest.raises(NotHere, match='no NVIDIA GPU'):
    train_step.contestants(setting, tmp_path)
  monkeypatch.setattr('pathlib.Path.exists', lambda path: True)
  ours, *torch = train_step.contestants(setting, tmp_path)
  execution = train_step.execution_of(*ours.arguments)
  assert (execution.dtype, execution.attention) == ('bfloat16', 'cudnn')
  assert [other.arguments[2] for other in torch] == ['cuda', 'cuda']


def test_on_a_gpu_the_share_of_its_peak_is_said():
  useful = train_step.work_of(train_step.SETTINGS['large'])[train_step.USEFUL]
  measured = {
    train_step.OURS: Measurement([useful / 500e3] * 5, [1.0] * 5, {train_step.PEAK: 1000.0}),
    train_step.TORCH_BF16: Measurement([useful / 200e3] * 5, [1.0] * 5),
    train_step.TORCH_BF16_COMPILED: Measurement(failure='gone'),
  }
  assert train_step.conclusion('large', measured) == (
    'Of 1000 TFLOP/s, useful: 50.0% this project, 20.0% torch, bfloat16 autocast'
  )
  assert train_step.conclusion('small', {train_step.OURS: Measurement([1.0], [1.0])}) == ''
