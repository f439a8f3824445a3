import os
import subprocess
import sys
import time
import types

import pytest

from benchmarks import interleaved
from benchmarks.interleaved import Candidate, measure_interleaved


def prepare_facts(facts):
  return lambda: facts


def prepare_missing():
  raise ImportError('no module', name='wishful')


def prepare_death():
  os._exit(3)


def prepare_place():
  variable = int(os.environ.get('REMBERT_TEST_VARIABLE', 0))
  return lambda: {'cores': len(os.sched_getaffinity(0)), 'variable': variable}


def prepare_child():
  work = 'x = bytearray(200_000_000)\nfor _ in range(1_000_000): pass'
  return lambda: subprocess.run([sys.executable, '-c', work], check=True) and None


CANDIDATES = [
  Candidate('ours', prepare_facts, ({'loss': 1.5},), {'rows': 1}),
  Candidate('missing', prepare_missing, (), {'rows': 1}),
  Candidate('dead', prepare_death, (), {'rows': 1}),
  Candidate('anywhere', prepare_place, (), {}),
  Candidate('one core', prepare_place, (), {}, one_core=True, environment={'REMBERT_TEST_VARIABLE': '7'}),
  Candidate('with a child', prepare_child, (), {}),
]
TAKEN = 300_000_000  # bytes of the process that starts them


@pytest.fixture(scope='module')
def log():
  return []


@pytest.fixture(scope='module')
def measured(log):
  taken = bytearray(b'x') * TAKEN
  found = measure_interleaved(CANDIDATES, 2, log.append, warm_up_runs=1)
  assert len(taken) == TAKEN
  return found


def test_candidates_take_turns_and_say_what_they_did(measured, log):
  assert [len(measured[name].seconds) for name in ('ours', 'anywhere', 'with a child')] == [2, 2, 2]
  assert (measured['ours'].facts, measured['with a child'].facts) == ({'loss': 1.5}, {})
  assert sum(line.startswith('round') for line in log) == 2


def test_missing_and_failed_candidates_are_reported_and_the_others_continue(measured):
  assert measured['missing'].failure == 'wishful is not installed'
  assert 'its process has ended' in measured['dead'].failure
  assert measured['missing'].seconds == measured['dead'].seconds == []


@pytest.mark.skipif(not hasattr(os, 'sched_setaffinity'), reason='this system does not tie processes to cores')
def test_a_process_has_the_cores_and_variables_that_it_asks_for_and_others_have_not(measured):
  assert measured['one core'].facts == {'cores': 1, 'variable': 7}
  assert measured['anywhere'].facts == {'cores': len(os.sched_getaffinity(0)), 'variable': 0}


def test_memory_is_that_of_the_candidate_and_not_of_who_started_it(measured):
  assert 0 < measured['ours'].peak_bytes < TAKEN


def test_what_a_candidate_starts_is_counted_with_it(measured):
  alone, with_child = measured['ours'], measured['with a child']
  assert with_child.cpu_median > alone.cpu_median
  assert with_child.peak_bytes > 200_000_000


def prepare_run_counter():
  """In the candidate's process: a clock on which each run takes a second, and the fifth ten."""
  runs, now = 0, 0.0
  clock = types.SimpleNamespace(perf_counter=lambda: now, process_time=time.process_time)
  interleaved.time = clock

  def run():
    nonlocal runs, now
    runs += 1
    now += 10 if runs == 5 else 1  # the first of the second turn
    return {'runs': runs}

  return run


def test_runs_per_turn_are_averaged_after_one_that_is_not_measured():
  candidates = [Candidate('steps', prepare_run_counter, (), {'steps': 1})]
  measured = measure_interleaved(candidates, 2, lambda text: None, warm_up_runs=1, runs_per_turn=2)['steps']
  assert measured.seconds == [1, 1]  # neither with the first run of a turn, nor the sum of two
