import os
import subprocess
import sys
import time

import pytest

from benchmarks.turns import Contestant, measure_in_turn, ratios, unit_of_comparison


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


def test_contestants_take_turns_and_say_what_they_did():
  contestants = [
    Contestant('a', prepare_counter, ({'loss': 1.5},), {'rows': 1}),
    Contestant('b', prepare_counter, (None,), {'rows': 1}),
  ]
  said = []
  measured = measure_in_turn(contestants, 3, said.append, warm_up_runs=1)
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


def test_runs_in_a_row_are_averaged_after_one_that_is_not_measured():
  contestants = [Contestant('steps', prepare_run_counter, (), {'steps': 1})]
  measured = measure_in_turn(contestants, 2, lambda text: None, warm_up_runs=1, runs_in_a_row=2)['steps']
  assert len(measured.seconds) == 2
  assert 0.2 <= measured.seconds[1] < 0.4  # neither with the first run, nor the sum of two


def test_what_is_missing_or_dies_is_said_and_the_others_go_on():
  contestants = [
    Contestant('missing', prepare_missing, (), {'rows': 1}),
    Contestant('dead', prepare_death, (), {'rows': 1}),
    Contestant('there', prepare_counter, (None,), {'rows': 1}),
  ]
  measured = measure_in_turn(contestants, 1, lambda text: None, warm_up_runs=1)
  assert measured['missing'].failure == 'wishful is not installed'
  assert measured['dead'].failure == 'died with exit code 3'
  assert len(measured['there'].seconds) == 1


@pytest.mark.skipif(not hasattr(os, 'sched_setaffinity'), reason='this system does not tie processes to cores')
def test_one_core_is_one_core():
  measured = measure_in_turn(
    [Contestant('one', prepare_cores, (), {'rows': 1}, one_core=True)], 1, lambda text: None, warm_up_runs=1
  )
  assert measured['one'].facts == {'cores': 1}


def test_ratios_are_taken_round_by_round_for_the_same_work():
  assert ratios([4.0, 9.0], [2.0, 3.0]) == [2.0, 3.0]
  assert ratios([4.0, 9.0], [2.0, 3.0], share=10) == [20.0, 30.0]


def test_only_the_same_kind_of_work_is_compared():
  ours = Contestant('ours', prepare_counter, (), {'tokens': 64, 'GFLOP': 1})
  assert unit_of_comparison(Contestant('theirs', prepare_counter, (), {'rows': 1, 'tokens': 8}), ours) == 'tokens'
  assert unit_of_comparison(Contestant('product', prepare_counter, (), {'GFLOP': 1}), ours) is None


def test_a_process_has_the_variables_that_it_asks_for_and_others_have_not():
  contestants = [
    Contestant('with', prepare_variable, (), {}, environment={'REMBERT_TEST_VARIABLE': '7'}),
    Contestant('without', prepare_variable, (), {}),
  ]
  measured = measure_in_turn(contestants, 1, lambda text: None)
  assert [measured[name].facts['value'] for name in ('with', 'without')] == [7, 0]


def test_memory_is_that_of_the_contestant_and_not_of_who_started_it():
  taken = bytearray(b'x') * 700_000_000
  measured = measure_in_turn([Contestant('small', prepare_counter, (None,), {})], 1, lambda text: None, warm_up_runs=1)
  assert 0 < measured['small'].peak_bytes < len(taken)


def prepare_child():
  work = 'x = bytearray(200_000_000)\nfor _ in range(1_000_000): pass'
  return lambda: subprocess.run([sys.executable, '-c', work], check=True) and None


def test_what_a_contestant_starts_is_counted_with_it():
  contestants = [
    Contestant('alone', prepare_counter, (None,), {}),
    Contestant('with a child', prepare_child, (), {}),
  ]
  measured = measure_in_turn(contestants, 1, lambda text: None, warm_up_runs=1)
  alone, with_child = measured['alone'], measured['with a child']
  assert with_child.cpu_median > alone.cpu_median
  assert with_child.peak_bytes > 200_000_000
