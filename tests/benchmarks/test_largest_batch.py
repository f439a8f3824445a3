import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import largest_batch, train_step
from benchmarks.largest_batch import ROWS, Search, is_out_of_memory, largest, measure, of_rows
from benchmarks.settings import SMALL, Setting
from benchmarks.turns import Contestant, Measurement, NotHere

TINY = Setting(SMALL, rows=4, length=8, slots=1)


@given(room=st.integers(0, 5000), start=st.integers(1, 64))
def test_the_largest_fits_and_an_eighth_more_does_not(room, start):
  asked = []

  def fits(rows):
    asked.append(rows)
    return rows <= room

  found = largest(fits, start)
  assert found <= room
  assert room < found + max(1, found // 8)
  assert len(asked) == len(set(asked))  # none is tried twice


def test_the_search_ends_where_everything_fits():
  assert largest(lambda rows: True, 16) >= largest_batch.MOST_ROWS // 2


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
  assert is_out_of_memory(error) == is_it


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


def search_of(monkeypatch, limit, **steps):
  monkeypatch.setitem(largest_batch.SETTINGS, 'tiny', Search(TINY, limit))
  made = [Contestant(name, largest_batch.prepare, (TINY, *step), {}) for name, step in steps.items()]
  said = []
  return *measure('tiny', [of_rows(contestant, TINY.rows) for contestant in made], 5, said.append), said


def test_everybody_is_measured_at_his_own_largest(monkeypatch):
  found, measured, said = search_of(monkeypatch, None, wide=(step_of, 23), narrow=(step_of, 6), none=(step_of, 0))
  assert [measured[name].facts for name in ('wide', 'narrow')] == [{ROWS: 22}, {ROWS: 6}]
  assert [contestant.work['tokens'] for contestant in found[:2]] == [22 * 8, 6 * 8]
  assert len(measured['wide'].seconds) == 5
  assert measured['none'].failure == 'not even one row fits'
  assert 'wide, 32 rows: does not fit' in said


def test_on_a_cpu_the_process_may_take_so_many_bytes(monkeypatch):
  limit = 1.5e9  # the interpreter and what the tests import take a part of it
  _, measured, said = search_of(monkeypatch, limit, hungry=(step_that_takes_memory, 10**8))
  rows = measured['hungry'].facts[ROWS]
  assert 4 <= rows < 15
  assert measured['hungry'].peak_bytes <= limit
  assert any(line.startswith('hungry') and 'does not fit, ' in line for line in said)


def test_another_error_is_not_taken_for_want_of_memory(monkeypatch):
  _, measured, _ = search_of(monkeypatch, None, broken=(broken,))
  assert measured['broken'].failure == 'died with exit code 1'


def test_steps_are_those_of_train_step(tmp_path):
  contestants = largest_batch.contestants('small', tmp_path)
  prepared = [contestant.arguments[1] for contestant in contestants]
  assert prepared == [train_step.prepare_ours] * 2 + [train_step.prepare_torch] * 2
  assert contestants[0].work == train_step.work_of(largest_batch.SETTINGS['small'].setting)


def test_the_large_setting_is_for_a_gpu(tmp_path, monkeypatch):
  monkeypatch.setattr('pathlib.Path.exists', lambda path: False)
  with pytest.raises(NotHere, match='no NVIDIA GPU'):
    largest_batch.contestants('large', tmp_path)
  monkeypatch.setattr('pathlib.Path.exists', lambda path: True)
  ours, recomputing, torch, torch_recomputing = largest_batch.contestants('large', tmp_path)
  assert [ours.arguments[2:], recomputing.arguments[2:]] == [('cuda', False), ('cuda', False, 'full')]
  assert [torch.arguments[2:], torch_recomputing.arguments[2:]] == [(True, 'cuda'), (True, 'cuda', False, True)]


def test_the_conclusion_counts_rows():
  of = lambda rows: Measurement([1.0], [1.0], {ROWS: rows})
  assert largest_batch.conclusion('small', {train_step.OURS: of(64), 'torch': of(20)}) == (
    '64 rows to 20 of torch: 3.2 times as many'
  )
  assert largest_batch.conclusion('small', {train_step.OURS: of(64), 'torch': Measurement(failure='gone')}) == ''
