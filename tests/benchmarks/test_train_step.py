import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import train_step
from benchmarks.interleaved import Candidate, Measurement, Unavailable
from benchmarks.settings import SMALL, Setting, random_batch
from rembert.aot import flops

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
  ('way', 'dtype'),
  [('sketch', 'float32'), *((way, dtype) for way in ('ours', 'torch') for dtype in ('float32', 'bfloat16'))],
)
def test_a_step_is_made_and_the_next_one_knows_it(way, dtype):
  if way == 'torch':
    pytest.importorskip('torch', reason='`make bench` installs torch')
  run = getattr(train_step, f'prepare_{way}')(dataclasses.replace(TINY, dtype=dtype))
  first, *_, last = [run()['loss'] for _ in range(30)]
  assert first == EXPECTED
  assert last < first  # the same batch again and again is learned by heart


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
    ('small', [train_step.MEMORY_RETURNED], [train_step.TORCH, train_step.TORCH_COMPILED]),
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


@pytest.mark.parametrize('benchmark', [train_step.TRAIN_STEP, train_step.LARGEST_BATCH])
def test_the_large_settings_need_a_gpu(benchmark, tmp_path, monkeypatch):
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


# --- the largest batch ------------------------------------------------------------------------------------------------

TINY_BATCH = Setting(SMALL, rows=4, length=8, slots=1)


@given(room=st.integers(0, 5000), start=st.integers(1, 64))
def test_the_largest_fits_and_an_eighth_more_does_not(room, start):
  asked = []

  def fits(rows):
    asked.append(rows)
    return rows <= room

  found = train_step.largest(fits, start)
  assert found <= room
  assert room < found + max(1, found // 8)
  assert len(asked) == len(set(asked))  # none is tried twice


def test_the_search_ends_where_everything_fits():
  assert train_step.largest(lambda rows: True, 16) >= train_step.MAX_ROWS // 2


@pytest.mark.parametrize(
  ('error', 'is_it'),
  [
    (RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.'), True),
    (RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB.'), True),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
    (MemoryError(), True),
    (ValueError('shapes do not fit'), False),
  ],
)
def test_want_of_memory_is_told_from_other_errors(error, is_it):
  assert train_step.is_out_of_memory(error) == is_it


def step_of(setting, room):
  """A step that has room for so many rows."""

  def run():
    if setting.rows > room:
      raise MemoryError
    return {'loss': 0.5}

  return run


def step_that_takes_memory(setting, bytes_of_a_row):
  def run():
    kept = bytearray(b'x') * (setting.rows * bytes_of_a_row)
    return {'loss': float(kept[0])}

  return run


def broken(setting):
  raise ValueError('no such thing')


def search(limit, **steps):
  made = [Candidate(name, train_step.prepare_batch, (TINY_BATCH, *step), {}) for name, step in steps.items()]
  logged = []
  found = train_step.measure_largest(train_step.Search(TINY_BATCH, limit), made, 5, logged.append)
  return *found, logged


def test_everybody_is_measured_at_his_own_largest():
  found, measured, said = search(None, wide=(step_of, 23), narrow=(step_of, 6), none=(step_of, 0))
  assert [measured[name].facts for name in ('wide', 'narrow')] == [{train_step.ROWS: 22}, {train_step.ROWS: 6}]
  assert [candidate.work['tokens'] for candidate in found[:2]] == [22 * 8, 6 * 8]
  assert len(measured['wide'].seconds) == 5
  assert measured['none'].failure == 'not even one row fits'
  assert 'wide, 32 rows: does not fit' in said


def test_on_a_cpu_the_process_may_take_so_many_bytes():
  limit = 1.5e9  # the interpreter and what the tests import take a part of it
  _, measured, said = search(limit, hungry=(step_that_takes_memory, 10**8))
  rows = measured['hungry'].facts[train_step.ROWS]
  assert 4 <= rows < 15
  assert measured['hungry'].peak_bytes <= limit
  assert any(line.startswith('hungry') and 'does not fit, ' in line for line in said)


def test_another_error_is_not_taken_for_want_of_memory():
  _, measured, _ = search(None, broken=(broken,))
  assert measured['broken'].failure == 'died with exit code 1'


def test_steps_are_those_of_train_step(tmp_path):
  candidates = train_step.largest_candidates(train_step.SEARCHES['small'], tmp_path)
  assert [each.arguments[1:] for each in candidates] == [
    (train_step.prepare_ours, False),
    (train_step.prepare_ours, False, 'full'),
    (train_step.prepare_torch,),
    (train_step.prepare_torch, False, True),
  ]


def test_the_conclusion_counts_rows():
  of = lambda rows: Measurement([1.0], [1.0], {train_step.ROWS: rows})
  small = train_step.SEARCHES['small']
  assert train_step.rows_compared(small, {train_step.OURS: of(64), 'torch': of(20)}) == (
    '64 rows to 20 of torch: 3.2 times as many'
  )
  assert train_step.rows_compared(small, {train_step.OURS: of(64), 'torch': Measurement(failure='gone')}) == ''
