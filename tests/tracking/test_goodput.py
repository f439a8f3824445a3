"""Where the time of a run went, added up over its processes."""

import json
import types

import pytest
from etils import epath

from rembert.tracking import goodput
from rembert.tracking.goodput import Goodput, Session, account, read_sessions


@pytest.fixture
def clock(monkeypatch):
  """Both clocks of the module, moved by hand: `clock.now`."""
  clock = types.SimpleNamespace(now=1000.0)
  monkeypatch.setattr(goodput.time, 'time', lambda: clock.now)
  monkeypatch.setattr(goodput.time, 'perf_counter', lambda: clock.now)
  return clock


def process(file, clock, *, start, steps, seconds_a_step=1.0):
  """A process that starts, compiles for 5 s, trains, and is gone; returns what it has measured."""
  measured = Goodput(file)
  clock.now += 10
  with measured.activity('compile'):
    clock.now += 5
  measured.begin(start)
  for step in range(start + 1, start + steps + 1):
    with measured.activity('data wait'):
      clock.now += 0.25
    clock.now += seconds_a_step
    measured.reached(step)
  with measured.activity('checkpoint'):
    clock.now += 3
  measured.write()
  return measured


def test_steps_that_had_to_be_made_again_and_the_time_between_processes_are_no_progress(tmp_path, clock):
  file = epath.Path(tmp_path) / 'goodput.json'
  whole = account(process(file, clock, start=0, steps=40).sessions())
  activities = {'start': 10, 'compile': 5, 'step': 40, 'data wait': 10, 'evaluation': 0, 'checkpoint': 3}
  assert whole.by_activity == pytest.approx(activities)
  assert (whole.total, whole.lost, whole.restart, whole.starts) == pytest.approx((68, 0, 0, 1))
  assert whole.productive_share == pytest.approx(40 / 68)
  clock.now += 100
  process(file, clock, start=30, steps=20, seconds_a_step=2.0)
  whole = account(read_sessions(file))
  assert whole.lost == pytest.approx(10)  # steps 31 to 40, a second each
  assert whole.by_activity['step'] == pytest.approx(30 + 40)
  assert (whole.restart, whole.starts) == (pytest.approx(100), 2)
  assert sum(whole.by_activity.values()) + whole.lost + whole.restart == pytest.approx(whole.total)


def test_time_inside_an_activity_is_not_counted_outside_too(tmp_path, clock):
  measured = Goodput(epath.Path(tmp_path) / 'goodput.json')
  measured.begin(0)
  clock.now += 1
  with measured.activity('evaluation'):
    clock.now += 2
    with measured.activity('checkpoint'):
      clock.now += 4
    clock.now += 8
  clock.now += 16
  measured.write()
  seconds = measured.session.seconds
  assert (seconds['step'], seconds['evaluation'], seconds['checkpoint']) == (17, 10, 4)


def test_it_is_written_now_and_then_and_by_one_host_only(tmp_path, clock):
  file = epath.Path(tmp_path) / 'goodput.json'
  measured, other = Goodput(file), Goodput(epath.Path(tmp_path) / 'other.json', is_writer=False)
  measured.begin(0)
  clock.now += 29
  measured.reached(1)
  clock.now += 2
  measured.reached(2)
  assert read_sessions(file)[-1].last_step == 2
  clock.now += 2
  measured.reached(3)
  assert read_sessions(file)[-1].last_step == 2
  other.write()
  assert not (tmp_path / 'other.json').exists()


@pytest.mark.parametrize('text', ['', '[{', '[{"unknown": 1}]', '[1]'])
def test_a_file_that_cannot_be_read_costs_only_the_figures_of_before(tmp_path, text):
  (tmp_path / 'goodput.json').write_text(text)
  assert read_sessions(epath.Path(tmp_path) / 'goodput.json') == []


def test_a_process_that_never_trained_is_counted_as_a_start():
  sessions = [Session(began=0, last_seen=10), Session(began=20, last_seen=40, first_step=0, last_step=5)]
  sessions[1].seconds['step'] = 10
  whole = account(sessions)
  assert (whole.starts, whole.restart, whole.lost, whole.productive_share) == (2, 10, 0, 0.25)
  assert json.dumps(whole.by_activity)
