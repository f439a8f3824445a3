"""When a checkpoint is due, and of which kind. No I/O, and no clock of its own: one process decides for all."""


class SaveSchedule:
  """Permanent checkpoints by steps, temporary ones by the clock.

  Which steps are permanent is known to every host. Whether the time has come for a temporary one is asked of process 0
  alone and sent to the others: clocks differ between hosts, and a save that only some of them begin never ends.

  Args:
    steps: updates in all; the last is permanent.
    every: steps between permanent checkpoints.
    temporary_seconds: time without a checkpoint after which a temporary one is due; 0 for none.
    now: seconds of a clock that does not go back, as in all methods.
  """

  def __init__(self, *, steps: int, every: int, temporary_seconds: float, now: float):
    self._steps, self._every, self._temporary_seconds = steps, every, temporary_seconds
    self._last = now

  def is_permanent(self, step: int) -> bool:
    """Whether the checkpoint of this step is one to keep; all others are temporary."""
    return step == self._steps or step % self._every == 0

  def is_due(self, step: int, now: float) -> bool:
    """Whether to save after this step."""
    return self.is_permanent(step) or 0 < self._temporary_seconds <= now - self._last

  def saved(self, now: float) -> None:
    """A checkpoint has been begun: the time to the next temporary one starts anew."""
    self._last = now
