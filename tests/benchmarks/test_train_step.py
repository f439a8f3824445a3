import dataclasses
import math

import pytest

from benchmarks import train_step
from benchmarks.interleaved import Measurement, Unavailable
from benchmarks.settings import SMALL, Setting, random_batch
from rembert.aot import flops

# Of the first loss: before training all tokens are equally likely, but for logits of 0.14 (a row of E = 48 numbers of
# 0.02 times one of length √48); over 24 positions that makes 0.03.
EXPECTED = pytest.approx(math.log(500), abs=0.1)
TINY = Setting(
  dataclasses.replace(
    SMALL, vocab_size=500, hidden_size=32, num_hidden_layers=1, intermediate_size=64, output_embedding_size=48
  ),
  rows=8,
  length=16,
  slots=3,
)


@pytest.mark.parametrize(
  ('way', 'dtype'),
  [
    ('ours', 'float32'),
    ('sketch', 'float32'),
    pytest.param('torch', 'float32', marks=pytest.mark.slow),
    pytest.param('torch', 'bfloat16', marks=pytest.mark.slow),
  ],
)
def test_a_step_is_made_and_the_next_one_starts_from_it(way, dtype):
  if way == 'torch':
    pytest.importorskip('torch', reason='`make bench` installs torch')
  run = getattr(train_step, f'prepare_{way}')(dataclasses.replace(TINY, dtype=dtype))
  first, *_, last = [run()['loss'] for _ in range(10)]
  assert first == EXPECTED
  assert last < first  # the same batch every time


def test_masked_positions_have_the_targets_as_labels_and_nothing_else_has():
  batch = random_batch(TINY)
  labels = [row[row >= 0].tolist() for row in batch['labels']]
  assert labels == batch['targets'].tolist()


def test_useful_work_is_that_of_the_trimmed_model():
  setting = train_step.SETTINGS['small']
  counted = flops.train_flops_per_row(setting.config, setting.length, setting.slots, last_queries=setting.slots)
  assert setting.work == {'tokens': 2048, train_step.USEFUL: pytest.approx(16 * counted / 1e9)}


@pytest.mark.parametrize(
  ('setting', 'ours', 'torch'),
  [
    ('small', [], [train_step.TORCH, train_step.TORCH_COMPILED]),
    ('base', [], [train_step.TORCH]),
    ('base_compiled', [], [train_step.TORCH_COMPILED]),
    ('small_bfloat16', [train_step.IN_FLOAT32], [*train_step.TORCH_BF16]),
    ('base_bfloat16', [], [*train_step.TORCH_BF16]),
  ],
)
def test_torch_is_compared_in_our_dtype_eager_and_compiled(setting, ours, torch, tmp_path):
  first, *others = train_step.candidates(train_step.SETTINGS[setting], tmp_path)
  assert first.name == train_step.OURS
  assert [other.name for other in others if other.name.startswith('…')] == ours
  theirs = [other for other in others if other.prepare is train_step.prepare_torch]
  assert [other.name for other in theirs] == torch
  for other in theirs:
    assert other.arguments[0].dtype == first.arguments[0].dtype
    assert ('bfloat16' in other.name) == (first.arguments[0].dtype == 'bfloat16')
    assert other.arguments[1:] == ((True,) if 'compiled' in other.name else ())


def test_the_large_settings_need_a_gpu(tmp_path, monkeypatch):
  benchmark = train_step.TRAIN_STEP
  monkeypatch.setattr('pathlib.Path.exists', lambda path: False)
  for name in (name for name in benchmark.settings if name.startswith('large')):
    with pytest.raises(Unavailable, match='no NVIDIA GPU'):
      benchmark.candidates(benchmark.settings[name], tmp_path)
  monkeypatch.setattr('pathlib.Path.exists', lambda path: True)
  for name in (name for name in benchmark.settings if name.startswith('large')):
    candidates = benchmark.candidates(benchmark.settings[name], tmp_path)
    assert {each.arguments[0].platform for each in candidates} == {'cuda'}
    execution = candidates[0].arguments[0].execution
    assert (execution.dtype, execution.attention) == ('bfloat16', 'cudnn')


def test_on_a_gpu_the_share_of_its_peak_is_reported():
  large, ours = train_step.SETTINGS['large'], train_step.OURS
  useful, (eager, compiled) = large.work[train_step.USEFUL], train_step.TORCH_BF16
  measured = {
    ours: Measurement([useful / 500e3] * 5, [1.0] * 5, {train_step.PEAK: 1000.0}),
    eager: Measurement([useful / 200e3] * 5, [1.0] * 5),
    compiled: Measurement(failure='gone'),
  }
  assert train_step.utilization(large, measured) == (
    'Of 1000 TFLOP/s, useful: 50.0% this project, 20.0% torch, bfloat16 autocast'
  )
  assert train_step.utilization(train_step.SETTINGS['small'], {ours: Measurement([1.0], [1.0])}) == ''
