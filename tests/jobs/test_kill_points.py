"""Real signals: runs cut off at many moments, each resumed to its end, are bitwise those that were not interrupted.

REMBERT_KILL_POINTS=100 make test-slow ARGS=tests/jobs/test_kill_points.py        about half an hour
"""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from final_states import assert_same_run

POINTS = int(os.environ.get('REMBERT_KILL_POINTS', '8'))
LONG = {'train__steps': 240, 'train__eval_every': 80, 'train__checkpoint_every': 60}

# Moments that random times seldom meet.
MOMENTS = {
  'while it compiles': lambda run: 'building the eval set: done' in run.log(),
  'in an evaluation': lambda run: run.steps_logged() >= 77,
  'in a save': lambda run: any((run.workdir / 'checkpoints').glob('*tmp*')),
  'between steps': lambda run: run.steps_logged() >= 100,
}
# Of a run that makes its corpus.
EARLY_MOMENTS = {
  'making the corpus': lambda run: run.workdir.exists(),
  'training the vocabulary': lambda run: (run.workdir / 'corpus' / 'corpus.json').exists(),
}


def complete(run):
  start = time.monotonic()
  result = run.run_process()
  assert result.returncode == 0, result.stderr
  run.seconds = time.monotonic() - start
  return run


@pytest.fixture(scope='module')
def whole(from_store, tmp_path_factory):
  """The run that is not interrupted."""
  return complete(from_store(tmp_path_factory.mktemp('whole') / 'run', **LONG))


@pytest.fixture(scope='module')
def whole_streamed(program, tmp_path_factory):
  """The same on the sample dumps."""
  return complete(program(tmp_path_factory.mktemp('whole') / 'run', **LONG))


@pytest.mark.slow
@pytest.mark.parametrize('point', range(POINTS))
def test_a_run_killed_at_any_point_ends_like_an_uninterrupted_one(point, whole, from_store, tmp_path):
  random = np.random.default_rng(point)
  number = (signal.SIGKILL, signal.SIGTERM)[point % 2]
  moment = list(MOMENTS)[point // 4 % len(MOMENTS)]
  cut = from_store(tmp_path / 'run', **LONG)
  process = cut.start()
  after = random.uniform(0.5, whole.seconds)
  if point % 4 < 2:
    time.sleep(after)
  else:
    while process.poll() is None and not MOMENTS[moment](cut):
      time.sleep(0.002)
    time.sleep(random.uniform(0, 0.5))
  process.send_signal(number)
  try:
    assert process.wait(timeout=120) in (0, 75, -number), cut.log()
  except subprocess.TimeoutExpired:
    process.kill()
    raise
  complete(cut)
  assert_same_run(cut, whole, 240)


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize('moment', EARLY_MOMENTS)
def test_a_run_killed_while_it_makes_its_data_ends_like_an_uninterrupted_one(
  moment, number, whole_streamed, program, tmp_path
):
  cut = program(tmp_path / 'run', **LONG)
  assert cut.stop_when(lambda: EARLY_MOMENTS[moment](cut), number) == (75 if number == signal.SIGTERM else -number)
  complete(cut)
  assert_same_run(cut, whole_streamed, 240)
