"""Runs cut off at many moments, each resumed to its end: the state is bitwise that of the run nobody cut off.

REMBERT_KILL_POINTS=100 make test-slow ARGS=tests/jobs/test_kill_points.py        about half an hour
"""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from final_states import assert_bitwise_equal, final_state

POINTS = int(os.environ.get('REMBERT_KILL_POINTS', '10'))

# Moments that random times seldom meet.
MOMENTS = {
  'while it compiles': lambda run: 'held-out rows: done' in run.log(),
  'in an evaluation': lambda run: run.steps_logged() >= 77,
  'in a save': lambda run: any((run.workdir / 'checkpoints').glob('*tmp*')),
  'between steps': lambda run: run.steps_logged() >= 100,
}


@pytest.fixture(scope='module')
def whole(from_store, tmp_path_factory):
  """The run that nobody cuts off."""
  run = from_store(tmp_path_factory.mktemp('whole') / 'run')
  start = time.monotonic()
  result = run.run()
  assert result.returncode == 0, result.stderr
  run.seconds = time.monotonic() - start
  return run


@pytest.mark.slow
@pytest.mark.parametrize('point', range(POINTS))
def test_a_run_cut_off_at_any_point_ends_as_if_it_had_not_been(point, whole, from_store, tmp_path):
  random = np.random.default_rng(point)
  number = (signal.SIGKILL, signal.SIGTERM)[point % 2]
  moment = list(MOMENTS)[point // 4 % len(MOMENTS)]
  cut = from_store(tmp_path / 'run')
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
  result = cut.run()
  assert result.returncode == 0, (number.name, moment, after, result.stderr)
  assert cut.metrics() == whole.metrics(), (number.name, moment, after)
  assert_bitwise_equal(final_state(cut.workdir, 240), final_state(whole.workdir, 240))
