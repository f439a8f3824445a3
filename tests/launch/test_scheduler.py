"""Runs side by side: their order, their ends, their restarts, and what is left when a user stops them."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from etils import epath
from waiting import wait_for

from launch.experiment import Run
from launch.processes import RetryPolicy
from launch.scheduler import (
  DeviceSlot,
  RunProgress,
  RunState,
  Scheduler,
  core_slots,
  device_slots,
  format_change,
  log_file,
  run_all,
  summary,
)
from rembert.errors import UsageError
from rembert.jobs.workdir import locked
from rembert.tracking.console import Console

ROOT = pathlib.Path(__file__).parent.parent.parent
QUICK = RetryPolicy(short_seconds=0.0, max_restarts=3, max_wait=0.0)


class Script(Run):
  """A run whose one argument is a program, which starts in the workdir."""

  @property
  def command(self):
    begin = f'import os, pathlib, signal, sys, time; os.chdir({os.fspath(self.workdir)!r})\n'
    return [sys.executable, '-c', begin + self.arguments[0]]


@pytest.fixture
def script(tmp_path):
  return lambda name, text, *needs: Script(name, epath.Path(tmp_path / name), (text,), needs)


def states(scheduler):
  return {progress.run.name: progress.state for progress in scheduler.all}


def test_what_is_needed_comes_first_and_what_is_done_is_not_run_again(script, tmp_path):
  order = f'with open({str(tmp_path / "order")!r}, "a") as file: file.write('
  first, second = script('first', order + '"1")'), script('second', order + '"2")', 'first')
  scheduler = Scheduler([second, first], [DeviceSlot(), DeviceSlot()])
  assert scheduler.run()
  assert set(states(scheduler).values()) == {RunState.DONE}
  assert (tmp_path / 'order').read_text() == '12'
  again = Scheduler([second, first], [DeviceSlot()])
  assert set(states(again).values()) == {RunState.DONE}
  assert again.run()
  assert (tmp_path / 'order').read_text() == '12'


def test_runs_are_made_at_the_same_time_and_no_more_than_there_are_slots(script, tmp_path):
  meet = """
mine, other = pathlib.Path({0!r}), pathlib.Path({1!r})
mine.touch()
end = time.time() + 30
while not other.exists():
  assert time.time() < end
  time.sleep(0.01)
"""
  a, b = str(tmp_path / 'a_is_here'), str(tmp_path / 'b_is_here')
  both = [script('a', meet.format(a, b)), script('b', meet.format(b, a))]
  seen = []
  last = script('c', 'pass')
  scheduler = Scheduler(
    [*both, last],
    [DeviceSlot('one'), DeviceSlot('two')],
    on_change=lambda _: seen.append(sum(progress.state is RunState.RUNNING for progress in scheduler.all)),
  )
  assert scheduler.run()
  assert set(states(scheduler).values()) == {RunState.DONE}
  assert max(seen) == 2


def test_a_failure_costs_what_needs_it_and_nothing_else(script):
  failing = 'print("rembert: the run has diverged", flush=True); print("  where  here"); sys.exit(1)'
  runs = [script('bad', failing), script('next', 'pass', 'bad'), script('last', 'pass', 'next'), script('good', 'pass')]
  told = []
  scheduler = Scheduler(
    runs, [DeviceSlot()], on_change=lambda progress: told.append((progress.run.name, progress.state))
  )
  assert scheduler.run()
  assert states(scheduler) == {
    'bad': RunState.FAILED,
    'next': RunState.LEFT_OUT,
    'last': RunState.LEFT_OUT,
    'good': RunState.DONE,
  }
  assert scheduler.all[0].note == 'ended with 1: the run has diverged'
  assert runs[0].record()['reason'] == 'ended with 1: the run has diverged'
  assert scheduler.all[2].note == 'depends on next'
  assert told.count(('bad', RunState.FAILED)) == 1


def test_what_is_killed_or_stops_early_by_itself_is_started_again(script):
  text = """
runs = pathlib.Path('runs')
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text('x' * (number + 1))
print('start', number, flush=True)
if number == 0: os.kill(os.getpid(), signal.SIGKILL)
sys.exit((75, 0)[number - 1])
"""
  run = script('a', text)
  scheduler = Scheduler([run], [DeviceSlot()], policy=QUICK)
  assert scheduler.run()
  assert states(scheduler) == {'a': RunState.DONE}
  assert [start['exit_code'] for start in run.record()['starts']] == [137, 75, 0]
  assert log_file(run).read_text().split() == ['start', '0', 'start', '1', 'start', '2']


def test_a_run_has_its_devices_and_its_cores(script):
  show = 'print(os.environ.get("CUDA_VISIBLE_DEVICES"), sorted(os.sched_getaffinity(0)))'
  mine = sorted(os.sched_getaffinity(0))
  run = script('a', show)
  assert Scheduler([run], device_slots(['3'])).run()
  assert log_file(run).read_text() == f'3 {mine}\n'
  run = script('b', show)
  assert Scheduler([run], [DeviceSlot(cores=frozenset(mine[:1]))]).run()
  assert log_file(run).read_text() == f'None {mine[:1]}\n'


def test_cores_are_shared_out_evenly(monkeypatch):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0, 1, 2, 3, 4})
  assert [slot.cores for slot in core_slots(2)] == [{0, 1}, {2, 3}]
  assert [slot.cores for slot in core_slots(1)] == [None]
  with pytest.raises(UsageError, match='6 runs in parallel on 5 core'):
    core_slots(6)


def test_an_experiment_that_is_running_in_a_folder_keeps_others_out(script, tmp_path):
  quiet, workdir = Console(is_quiet=True), epath.Path(tmp_path)
  with locked(workdir, quiet.say), pytest.raises(UsageError, match='process'):
    run_all([script('a', 'pass')], [DeviceSlot()], workdir, quiet)
  assert run_all([script('a', 'pass')], [DeviceSlot()], workdir, quiet)[1]


PROGRAM = """
import sys
sys.path[:0] = {folders!r}
from etils import epath
from test_scheduler import Script
from launch.scheduler import DeviceSlot, Scheduler
text = '''
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), sys.exit(75)))
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(60)
'''
runs = [Script(name, epath.Path({folder!r}) / name, (text,)) for name in ('a', 'b', 'c')]
scheduler = Scheduler(runs, [DeviceSlot(), DeviceSlot()])
print(scheduler.run(), [progress.state.value for progress in scheduler.all])
"""


@pytest.fixture
def program(tmp_path):
  """A scheduler in a process of its own, once two runs are under way; their process numbers."""
  text = PROGRAM.format(folders=[str(ROOT / 'tests' / name) for name in ('launch', 'support')], folder=str(tmp_path))
  process = subprocess.Popen([sys.executable, '-c', text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
  files = [tmp_path / name / 'pid' for name in ('a', 'b')]
  wait_for(lambda: all(file.exists() and file.read_text() for file in files), process)
  yield process, [int(file.read_text()) for file in files]
  process.kill()


def is_alive(pid):
  try:
    return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def test_being_told_to_stop_stops_all_runs_which_can_save(program, tmp_path):
  process, _ = program
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=60)
  assert output == "False ['stopped', 'stopped', 'waiting']\n"
  assert (tmp_path / 'a' / 'log.txt').read_text() == 'told\n'


@pytest.mark.skipif(sys.platform != 'linux', reason='a process that follows its parent is a matter of Linux')
def test_runs_do_not_outlive_what_started_them(program, tmp_path):
  process, pids = program
  process.kill()
  process.wait()
  wait_for(lambda: not any(is_alive(pid) for pid in pids))
  assert (tmp_path / 'b' / 'log.txt').read_text() == 'told\n'


def test_a_change_of_state_is_one_line(tmp_path):
  of = lambda name, state, **options: RunProgress(Run(name, epath.Path(tmp_path / name), ()), state, **options)
  assert (
    format_change(of('pretrain a', RunState.RUNNING, slot=DeviceSlot('device 3'))) == 'running · pretrain a · device 3'
  )
  starts = [{'began': '2030-01-01T00:00:00+00:00', 'ended': '2030-01-01T00:01:01+00:00', 'exit_code': 0}]
  (tmp_path / 'xnli a').mkdir()
  (tmp_path / 'xnli a' / 'run.json').write_text(json.dumps({'starts': starts}))
  done, failed = of('xnli a', RunState.DONE), of('xnli b', RunState.FAILED, note='ended with 1: no space left')
  assert format_change(done) == 'done · xnli a · 1:01'
  assert format_change(failed) == 'failed · xnli b · ended with 1: no space left'
  assert summary([done, failed, done]) == '2 of 3 done · 1 failed'
