import json
import os
import sys

import pytest

from benchmarks import startup

# Writes a row of metrics for each of some steps, and ends when it is asked to.
TRAINS = """
import json, signal, sys, time
def stop(*_):
  print('saved')
  sys.exit(75)
signal.signal(signal.SIGTERM, stop)
first, last = map(int, sys.argv[2:])
with open(sys.argv[1], 'a', buffering=1) as file:
  for step in range(first, last + 1):
    file.write(json.dumps({'step': step, 'loss': 1.0}) + '\\n')
  file.write('{"step": 10')
  while last < 9:
    time.sleep(0.01)
print('it went wrong')
sys.exit(3)
"""


def running(workdir, first, last):
  metrics = workdir / 'metrics.jsonl'
  return startup.RunningJob([sys.executable, '-c', TRAINS, str(metrics), str(first), str(last)], workdir, {})


def test_a_step_is_there_when_its_row_is_whole(tmp_path):
  with running(tmp_path, 1, 3) as job:
    assert 1 <= job.wait_for_step(1) <= 3
    assert job.wait_for_step(3) == job.last_step() == 3


def test_rows_of_an_earlier_process_do_not_count(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text(json.dumps({'step': 8}) + '\n')
  with running(tmp_path, 4, 5) as job:
    assert 4 <= job.wait_for_step(4) <= 5


def test_a_process_that_ends_too_early_says_what_it_said(tmp_path):
  with running(tmp_path, 1, 9) as job, pytest.raises(RuntimeError, match=r'before step 10.* 3: it went wrong'):
    job.wait_for_step(10)


def test_it_is_asked_to_stop_and_may_save_or_killed_where_it_is(tmp_path):
  with running(tmp_path, 1, 2) as job:
    job.wait_for_step(1)
    job.stop()
    assert job._process.returncode == 75
  with running(tmp_path, 1, 2) as job:
    job.wait_for_step(1)
  assert job._process.returncode == -9


def test_a_command_that_fails_is_no_start(tmp_path):
  with pytest.raises(RuntimeError, match='it went wrong'):
    startup.prepare_command(tmp_path, (sys.executable, '-c', 'raise SystemExit("it went wrong")'))()


def test_the_commands_can_be_started(tmp_path, monkeypatch, root):
  monkeypatch.chdir(root)
  first, *_ = startup.candidates(startup.SETTINGS['commands'], tmp_path)
  first.prepare(*first.arguments)()


def test_the_smoke_run_uses_the_configured_compilation_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('JAX_ENABLE_COMPILATION_CACHE', 'false')
  started = []
  monkeypatch.setattr(startup.subprocess, 'Popen', lambda command, env, **_: started.append((command, env)))
  startup.start_smoke_run(tmp_path / 'run', tmp_path, tmp_path / 'cache')
  [(command, environment)] = started
  assert f'--workdir={tmp_path / "run"}' in command
  assert (environment['XDG_CACHE_HOME'], environment['JAX_ENABLE_COMPILATION_CACHE']) == (
    str(tmp_path / 'cache'),
    'true',
  )
  assert environment['PATH'] == os.environ['PATH']
