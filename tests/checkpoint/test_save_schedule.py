"""Permanent checkpoints by steps, temporary ones by the clock, and the clock starts anew at every save."""

from rembert.checkpoint.save_schedule import SaveSchedule


def due(schedule, times):
  """Steps saved when step n ends at `times[n − 1]`, as the loop asks."""
  saved = []
  for step, now in enumerate(times, 1):
    if schedule.is_due(step, now):
      saved.append((step, schedule.is_permanent(step)))
      schedule.saved(now)
  return saved


def test_without_a_time_only_steps_count():
  schedule = SaveSchedule(steps=10, every=4, temporary_seconds=0, now=0.0)
  assert due(schedule, [1e6 * step for step in range(1, 11)]) == [(4, True), (8, True), (10, True)]


def test_a_temporary_one_is_due_when_there_has_been_none_for_long_enough():
  schedule = SaveSchedule(steps=10, every=4, temporary_seconds=25, now=100.0)
  times = [110, 120, 130, 140, 150, 160, 170, 180, 190, 200]
  assert due(schedule, times) == [(3, False), (4, True), (7, False), (8, True), (10, True)]


def test_slow_steps_are_all_saved_and_none_twice():
  schedule = SaveSchedule(steps=3, every=2, temporary_seconds=5, now=0.0)
  assert due(schedule, [10, 20, 30]) == [(1, False), (2, True), (3, True)]


def test_which_steps_are_permanent_is_no_matter_of_clocks():
  hosts = [SaveSchedule(steps=10, every=4, temporary_seconds=1, now=now) for now in (0.0, 1e9)]
  for step in range(1, 11):
    assert len({schedule.is_permanent(step) for schedule in hosts}) == 1
