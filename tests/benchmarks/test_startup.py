import contextlib
import json
import os
import subprocess
import sys
import types

import pytest

from benchmarks import startup

# In the place of rembert.main: writes a row of metrics for each of some steps, and ends when it is asked to.
TRAINS = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
workdir = pathlib.Path(next(each.partition('=')[2] for each in sys.argv if each.startswith('--workdir=')))
workdir.mkdir(exist_ok=True)
first, last = map(int, sys.argv[1:3])
with open(workdir / 'metrics.jsonl', 'a', buffering=1) as file:
  for step in range(first, last + 1):
    file.write(json.dumps({'step': step, 'loss': 1.0}) + '\\n')
  file.write('{"step": 10')
  while last < 9:
    time.sleep(0.01)
sys.exit(3)
"""


@pytest.fixture
def running(tmp_path, monkeypatch):
  """Function (first step, last step) → a run."""
  smoke_run = startup.smoke_run

  def start(first, last):
    monkeypatch.setattr(startup, 'MAIN', (sys.executable, '-c', TRAINS, str(first), str(last)))
    return smoke_run(tmp_path, tmp_path, tmp_path / 'cache')

  return start


def test_a_step_is_there_when_its_row_is_whole(running, tmp_path):
  with running(1, 3) as process:
    assert 1 <= startup.wait_for_step(process, tmp_path, 1) <= 3
    assert startup.wait_for_step(process, tmp_path, 3) == 3
  assert process.returncode == -9  # killed where it is


def test_rows_of_an_earlier_process_do_not_count(running, tmp_path):
  (tmp_path / 'metrics.jsonl').write_text(json.dumps({'step': 8}) + '\n')
  with running(4, 5) as process:
    assert 4 <= startup.wait_for_step(process, tmp_path, 4) <= 5


def test_a_process_that_ends_too_early_is_an_error(running, tmp_path):
  with running(1, 9) as process, pytest.raises(RuntimeError, match=r'before step 10, with exit code 3'):
    startup.wait_for_step(process, tmp_path, 10)


def test_a_run_that_is_resumed_is_stopped_once_and_continues_each_time(running, monkeypatch, tmp_path):
  steps = iter([(1, 2), (3, 4), (3, 4)])
  monkeypatch.setattr(startup, 'smoke_run', lambda *_: running(*next(steps)))
  (tmp_path / 'resumed').symlink_to(tmp_path)
  run = startup.prepare_resumed(tmp_path)
  assert [3 <= run()['new step'] <= 4 for _ in range(2)] == [True, True]


def test_a_command_that_fails_is_no_start(tmp_path):
  with pytest.raises(subprocess.CalledProcessError):
    startup.prepare_command(tmp_path, sys.executable, '-c', 'raise SystemExit(1)')()


def test_the_commands_can_be_started(tmp_path, monkeypatch, root):
  monkeypatch.chdir(root)
  first, *_ = startup.candidates(startup.SETTINGS['commands'], tmp_path)
  first.prepare(*first.arguments)()


def test_the_smoke_run_uses_the_configured_compilation_cache(tmp_path, monkeypatch):
  monkeypatch.setenv('JAX_ENABLE_COMPILATION_CACHE', 'false')
  started = []
  process = contextlib.nullcontext(types.SimpleNamespace(kill=print))
  start = lambda command, env, **_: started.append((command, env)) or process
  monkeypatch.setattr(startup.subprocess, 'Popen', start)
  with startup.smoke_run(tmp_path / 'run', tmp_path, tmp_path / 'cache'):
    pass
  [(command, environment)] = started
  assert f'--workdir={tmp_path / "run"}' in command
  assert (environment['XDG_CACHE_HOME'], environment['JAX_ENABLE_COMPILATION_CACHE']) == (
    str(tmp_path / 'cache'),
    'true',
  )
  assert environment['PATH'] == os.environ['PATH']
