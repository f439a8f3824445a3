"""Profiles: planned, asked for by file, and none otherwise."""

import jax.numpy as jnp
import pytest
from etils import epath

from rembert.tracking import profiler as module
from rembert.tracking.profiler import ProfileConfig, Profiler


@pytest.fixture
def make_profiler(tmp_path):
  made = []

  def make(**config):
    made.append(Profiler(ProfileConfig(**config), epath.Path(tmp_path)))
    return made[-1]

  yield make
  for profiler in made:
    profiler.close()


def run(profiler, steps, *, first=1):
  """Steps as the loop makes them; returns the messages, by step."""
  said = {}
  for step in range(first, first + steps):
    before = profiler.before_step(step, is_wanted=profiler.is_wanted())
    after = profiler.after_step(jnp.ones((8, 8)) @ jnp.ones((8, 8)))
    if before or after:
      said[step] = before or after
  return said


def traces(tmp_path):
  return sorted(file.relative_to(tmp_path / 'profiles').parts[0] for file in tmp_path.rglob('*.xplane.pb'))


def test_planned_steps_of_this_process_are_profiled_wherever_the_run_stands(make_profiler, tmp_path):
  said = run(make_profiler(first_step=3, steps=2), 6, first=101)
  assert said.keys() == {103, 104}
  assert 'profiling 2 steps, starting with step 103' in said[103]
  assert 'tensorboard --logdir' in said[104]
  assert traces(tmp_path) == ['step-103']


def test_nothing_is_profiled_until_it_is_asked_for_and_kept_if_the_run_ends(make_profiler, tmp_path):
  profiler = make_profiler(steps=100)
  assert run(profiler, 5) == {}
  assert not (tmp_path / 'profiles').exists()
  (tmp_path / 'profile_now').touch()
  assert run(profiler, 3, first=6).keys() == {6}
  assert not (tmp_path / 'profile_now').exists()
  profiler.close()
  assert traces(tmp_path) == ['step-6']


def test_a_bucket_is_not_polled_at_every_step(make_profiler, tmp_path, monkeypatch):
  now = [1000.0]
  monkeypatch.setattr(module.time, 'monotonic', lambda: now[0])
  monkeypatch.setattr(module, 'is_remote', lambda path: True)
  profiler = make_profiler()
  assert not profiler.is_wanted()
  (tmp_path / 'profile_now').touch()
  now[0] += 9
  assert not profiler.is_wanted()
  now[0] += 2
  assert profiler.is_wanted()
  assert not (tmp_path / 'profile_now').exists()
