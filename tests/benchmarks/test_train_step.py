import dataclasses
import math

import numpy as np
import pytest
from gin_files import configured
from scipy.special import erf, log_softmax

from benchmarks import train_step
from benchmarks.interleaved import Measurement, Unavailable
from benchmarks.settings import SMALL, Setting, write_random_model
from rembert.aot import flops

NO_TORCH = '`make bench` installs torch'

# --- masked language modelling ----------------------------------------------------------------------------------------

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
    ('pretraining', 'float32'),
    pytest.param('sketch', 'float32', marks=pytest.mark.slow),
    pytest.param('torch', 'float32', marks=pytest.mark.slow),
    pytest.param('torch', 'bfloat16', marks=pytest.mark.slow),
  ],
)
def test_a_step_is_made_and_the_next_one_starts_from_it(way, dtype):
  if way == 'torch':
    pytest.importorskip('torch', reason=NO_TORCH)
  run = getattr(train_step, f'prepare_{way}')(dataclasses.replace(TINY, dtype=dtype))
  first, *_, last = [run()['loss'] for _ in range(10)]
  assert first == EXPECTED
  assert last < first  # the same batch every time


def test_masked_positions_have_the_targets_as_labels_and_nothing_else_has():
  batch = train_step.masked_batch(TINY)
  labels = [row[row >= 0].tolist() for row in batch['labels']]
  assert labels == batch['targets'].tolist()


def test_useful_work_is_that_of_the_trimmed_model():
  setting = train_step.PRETRAINING['small']
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
  first, *others = train_step.pretraining_candidates(train_step.PRETRAINING[setting], tmp_path)
  assert first.name == train_step.OURS
  assert [other.name for other in others if other.name.startswith('…')] == ours
  theirs = [other for other in others if other.prepare is train_step.prepare_torch]
  assert [other.name for other in theirs] == torch
  for other in theirs:
    assert other.arguments[0].dtype == first.arguments[0].dtype
    assert ('bfloat16' in other.name) == (first.arguments[0].dtype == 'bfloat16')
    assert other.arguments[1:] == ((None, True) if 'compiled' in other.name else ())


def test_the_large_settings_need_a_gpu(tmp_path, monkeypatch):
  benchmark = train_step.TRAIN_STEP
  monkeypatch.setattr('pathlib.Path.exists', lambda path: False)
  for name in (name for name in benchmark.settings if name.startswith('large')):
    with pytest.raises(Unavailable, match='no NVIDIA GPU'):
      benchmark.candidates(benchmark.settings[name], tmp_path)
  monkeypatch.setattr('pathlib.Path.exists', lambda path: True)
  for name in (name for name in benchmark.settings if name.startswith('large')):
    candidates = benchmark.candidates(benchmark.settings[name], tmp_path)
    assert {each.arguments[0].platform for each in candidates if isinstance(each.arguments[0], Setting)} == {'cuda'}
    assert candidates[-1].arguments[-1] == 'cuda'  # the matmuls alone
    config = configured('gin/pretrain_large.gin', 'gin/hardware/h200.gin')
    assert candidates[0].arguments[0].execution == config.execution
    assert candidates[0].environment['XLA_FLAGS'] == ' '.join(config.hardware.xla_flags)


def test_on_a_gpu_the_share_of_its_peak_is_reported():
  large, ours = train_step.PRETRAINING['large'], train_step.OURS
  useful, (eager, compiled) = large.work[train_step.USEFUL], train_step.TORCH_BF16
  measured = {
    ours: Measurement([useful / 500e3] * 5, [1.0] * 5, {train_step.PEAK: 1000.0}),
    eager: Measurement([useful / 200e3] * 5, [1.0] * 5),
    compiled: Measurement(failure='gone'),
  }
  assert train_step.utilization(large, measured) == (
    'Of 1000 TFLOP/s, useful: 50.0% this project, 20.0% torch, bfloat16 autocast'
  )
  assert train_step.utilization(train_step.PRETRAINING['small'], {ours: Measurement([1.0], [1.0])}) == ''


# --- fine-tuning ------------------------------------------------------------------------------------------------------

ENCODER = dataclasses.replace(
  SMALL,
  vocab_size=400,
  input_embedding_size=8,
  hidden_size=16,
  num_hidden_layers=1,
  intermediate_size=32,
  max_position_embeddings=32,
  classifier_dropout_prob=0.0,  # random numbers differ between implementations
)
LABELLED = {
  name: dataclasses.replace(setting, config=ENCODER, rows=8, length=12)
  for name, setting in train_step.FINETUNING.items()
  if setting.platform == 'cpu'
}


def mean_label_loss(setting, folder) -> float:
  """Cross-entropy of the loaded model's logits, float64."""
  from rembert.inference.model import load

  batch = train_step.labelled_batch(setting)
  logits = np.asarray(load(folder, setting.head)(batch['input_ids'], batch['token_type_ids']).logits, np.float64)
  logits = np.swapaxes(logits, 1, 2) if setting.head == 'qa' else logits  # [B, 2, S], or [B, n]
  return -np.take_along_axis(log_softmax(logits, axis=-1), batch['labels'][..., None], axis=-1).mean()


@pytest.mark.parametrize(
  ('name', 'prepare'),
  [
    pytest.param('xnli', train_step.prepare_finetuning, marks=pytest.mark.slow),
    pytest.param('squad', train_step.prepare_finetuning, marks=pytest.mark.slow),
    *(pytest.param(name, train_step.prepare_torch, marks=pytest.mark.slow) for name in LABELLED),
  ],
)
def test_the_first_loss_is_that_of_the_model_and_the_next_is_smaller(name, prepare, tmp_path):
  if prepare is train_step.prepare_torch:
    pytest.importorskip('torch', reason=NO_TORCH)
  setting, folder = LABELLED[name], tmp_path / 'model'
  write_random_model(folder, ENCODER, setting.head, num_labels=setting.num_labels)
  is_float32, run = setting.dtype == 'float32', prepare(setting, folder)
  first, second = run()['loss'], run()['loss']
  assert first == pytest.approx(mean_label_loss(setting, folder), rel=1e-5 if is_float32 else 1e-2)
  if is_float32:
    assert second < first  # so small a step is lost in bfloat16


def test_all_candidates_start_from_the_weights_of_one_model(tmp_path):
  first, *others, _, _ = train_step.finetuning_candidates(LABELLED['squad'], tmp_path)  # the last two only multiply
  assert first.work['tokens'] == 8 * 12
  assert all(other.arguments == first.arguments for other in others)


# --- the head ---------------------------------------------------------------------------------------------------------

HEAD = train_step.head_setting(500, rows=2, length=16, slots=3)


def mean_masked_loss(setting) -> float:
  """Logits at the masked positions and their cross-entropy, float64."""
  given = train_step.head_problem(setting)
  states = np.take_along_axis(given['states'], given['masked_positions'][..., None], axis=1).astype(np.float64)
  x = states @ given['transform']
  x = 0.5 * x * (1 + erf(x / np.sqrt(2)))
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + setting.config.layer_norm_eps)
  scores = log_softmax(x @ given['output_embedding'].T, axis=-1)
  return -np.take_along_axis(scores, given['targets'][..., None], axis=-1).mean()


@pytest.mark.parametrize('way', train_step.WAYS)
def test_all_ways_have_the_same_loss(way):
  run = train_step.prepare_head(HEAD, way)
  assert run()['loss'] == pytest.approx(mean_masked_loss(HEAD), rel=1e-5)


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize('only_masked', [False, True])
def test_torch_has_the_same_problem(only_masked):
  pytest.importorskip('torch', reason=NO_TORCH)
  run = train_step.prepare_torch_head(HEAD, only_masked)
  assert run()['loss'] == run()['loss'] == pytest.approx(mean_masked_loss(HEAD), rel=1e-5)


def test_useful_work_is_three_products_at_the_masked_positions(tmp_path):
  first, *_ = train_step.HEAD.candidates(train_step.HEAD.settings['v32k'], tmp_path)
  assert first.work[train_step.USEFUL] == pytest.approx(6 * 160 * 512 * (256 + 32_000) / 1e9)
