import os
import subprocess
import sys
import time

import pytest

from benchmarks.interleaved import Candidate, measure_interleaved


def prepare_counter(facts):
  def run():
    return facts

  return run


def prepare_missing():
  raise ImportError('no module', name='wishful')


def prepare_cores():
  return lambda: {'cores': len(os.sched_getaffinity(0))}


def prepare_variable():
  return lambda: {'value': int(os.environ.get('REMBERT_TEST_VARIABLE', 0))}


def prepare_death():
  os._exit(3)


def test_candidates_take_turns_and_say_what_they_did():
  candidates = [
    Candidate('a', prepare_counter, ({'loss': 1.5},), {'rows': 1}),
    Candidate('b', prepare_counter, (None,), {'rows': 1}),
  ]
  said = []
  measured = measure_interleaved(candidates, 3, said.append, warm_up_runs=1)
  assert [len(measured[name].seconds) for name in 'ab'] == [3, 3]
  assert (measured['a'].facts, measured['b'].facts) == ({'loss': 1.5}, {})
  assert sum(line.startswith('round') for line in said) == 3


def prepare_run_counter():
  runs = 0

  def run():
    nonlocal runs
    runs += 1
    time.sleep(1 if runs == 5 else 0.2)  # the first of the second turn
    return {'runs': runs}

  return run


def test_runs_per_turn_are_averaged_after_one_that_is_not_measured():
  candidates = [Candidate('steps', prepare_run_counter, (), {'steps': 1})]
  measured = measure_interleaved(candidates, 2, lambda text: None, warm_up_runs=1, runs_per_turn=2)['steps']
  assert len(measured.seconds) == 2
  assert 0.2 <= measured.seconds[1] < 0.4  # neither with the first run, nor the sum of two


def test_missing_and_failed_candidates_are_reported_and_the_others_continue():
  candidates = [
    Candidate('missing', prepare_missing, (), {'rows': 1}),
    Candidate('dead', prepare_death, (), {'rows': 1}),
    Candidate('there', prepare_counter, (None,), {'rows': 1}),
  ]
  measured = measure_interleaved(candidates, 1, lambda text: None, warm_up_runs=1)
  assert measured['missing'].failure == 'wishful is not installed'
  assert measured['dead'].failure == 'exited with 3'
  assert len(measured['there'].seconds) == 1


@pytest.mark.skipif(not hasattr(os, 'sched_setaffinity'), reason='this system does not tie processes to cores')
def test_one_core_is_one_core():
  measured = measure_interleaved(
    [Candidate('one', prepare_cores, (), {'rows': 1}, one_core=True)], 1, lambda text: None, warm_up_runs=1
  )
  assert measured['one'].facts == {'cores': 1}


def test_a_process_has_the_variables_that_it_asks_for_and_others_have_not():
  candidates = [
    Candidate('with', prepare_variable, (), {}, environment={'REMBERT_TEST_VARIABLE': '7'}),
    Candidate('without', prepare_variable, (), {}),
  ]
  measured = measure_interleaved(candidates, 1, lambda text: None)
  assert [measured[name].facts['value'] for name in ('with', 'without')] == [7, 0]


def test_memory_is_that_of_the_candidate_and_not_of_who_started_it():
  taken = bytearray(b'x') * 700_000_000
  measured = measure_interleaved(
    [Candidate('small', prepare_counter, (None,), {})], 1, lambda text: None, warm_up_runs=1
  )
  assert 0 < measured['small'].peak_bytes < len(taken)


def prepare_child():
  work = 'x = bytearray(200_000_000)\nfor _ in range(1_000_000): pass'
  return lambda: subprocess.run([sys.executable, '-c', work], check=True) and None


def test_what_a_candidate_starts_is_counted_with_it():
  candidates = [
    Candidate('alone', prepare_counter, (None,), {}),
    Candidate('with a child', prepare_child, (), {}),
  ]
  measured = measure_interleaved(candidates, 1, lambda text: None, warm_up_runs=1)
  alone, with_child = measured['alone'], measured['with a child']
  assert with_child.cpu_median > alone.cpu_median
  assert with_child.peak_bytes > 200_000_000
