"""One run kept going on spot slices: what was taken away is asked for again, and the run goes on from its workdir."""

import dataclasses
import time
from collections.abc import Callable, Sequence

from launch.cloud.commands import Failed
from launch.cloud.queued import QueuedResource, Stage, failure_of, stage_of, state_of
from launch.cloud.tpu_nodes import LOST_STATES, TpuNode, Wish
from launch.cloud.workers import Workers, WorkerStatus
from launch.local_cluster import joint_exit_code
from launch.restarts import Patience, Restarts, is_worth_repeating
from rembert.errors import RunError, UsageError
from rembert.training.preemption import EXIT_STOPPED

# A spot slice that lives for less than ten minutes gets no further than its set-up and first compile.
PATIENCE = Patience(max_restarts=200, max_short_runs=8, short_seconds=600.0, max_wait=1800.0)
# Commands of gcloud that fail in a row: networks are away for an evening, a login that has expired is away for good.
_MAX_FAILURES = 10


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is to be kept going.

  Attributes:
    wish: what kind of slice.
    command: that runs on all its workers.
    python: of their environment.
    every: seconds between two looks.
    patience: with slices that vanish.
    is_deleted_when_done: the slice, when the run has ended with 0.
  """

  wish: Wish
  command: tuple[str, ...]
  python: str
  every: float = 60.0
  patience: Patience = PATIENCE
  is_deleted_when_done: bool = False


class Watch:
  """Looks, again and again, at a request, its node and its workers, and does what the run needs next."""

  def __init__(
    self,
    request: QueuedResource,
    node: TpuNode,
    workers: Workers,
    plan: Plan,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
  ):
    self._request, self._node, self._workers, self._plan = request, node, workers, plan
    self._sleep, self._clock, self._say = sleep, clock, request.commands.say
    self._restarts = Restarts(plan.patience, lambda text: self._say(f'{node.name}: {text}'))
    self._active_since: float | None = None
    self._was_ever_active = self._has_started = False
    self._state_before = ''
    self._looks_alike: tuple = ()

  def run(self) -> int:
    """Until the run has ended; its exit code. RunError where a slice cannot be had, or vanishes too often."""
    failures, is_first = 0, True
    while True:
      wait = self._plan.every
      try:
        if (code := self._step()) is not None:
          return self._finish(code)
        failures, is_first = 0, False
      except Failed as error:
        failures += 1
        if is_first or failures == _MAX_FAILURES:  # a first command that fails is a wrong name, or a lack of rights
          raise
        self._say(f'{self._node.name}: {error.what}')
        wait = min(wait * 2**failures, self._plan.patience.max_wait)
      self._sleep(wait)

  def _step(self) -> int | None:
    """One look at the request, and what follows from it; the exit code of a run that has ended for good."""
    description = self._request.describe()
    stage, state = stage_of(description), state_of(description)
    if state != self._state_before:
      self._say(f'{self._node.name}: {state}')
    self._state_before = state
    if stage is Stage.MISSING:
      self._active_since = None
      self._request.create(self._plan.wish)
    elif stage is Stage.FAILED and not self._was_ever_active:
      raise RunError(
        f'the request failed{failure_of(description)}',
        where=f'queued resource {self._request.name}',
        fix=f'python -m launch.queued_resource delete {self._request.name}, then another type or zone',
      )
    elif stage in (Stage.LOST, Stage.FAILED):
      self._replace()
    elif stage is Stage.ACTIVE:
      return self._look_at_node()
    return None

  def _look_at_node(self) -> int | None:
    self._was_ever_active = True
    self._active_since = self._clock() if self._active_since is None else self._active_since
    state = (self._node.describe() or {}).get('state', 'MISSING')
    if state in (*LOST_STATES, 'MISSING'):
      self._say(f'{self._node.name}: the node is {state}')
      self._replace()
      return None
    return self._look_at_workers() if state == 'READY' else None

  def _look_at_workers(self) -> int | None:
    try:
      found = self._workers.status()
    except Failed:
      raise
    except UsageError:  # nothing is set up
      self._start()
      return None
    if not found:
      raise RunError(
        'no worker answered', where=self._node.name, fix=f'gcloud compute tpus tpu-vm ssh {self._node.name}'
      )
    states = {each.state for each in found}
    codes = [each.exit_code for each in found if each.state == 'ended' and each.exit_code is not None]
    is_settled = self._is_same_as_before(found)
    if states == {'idle'}:
      self._start()
    elif states == {'ended'} and not any(map(_was_stopped, codes)):
      return joint_exit_code(codes)
    elif states == {'running'} or not is_settled:
      pass  # machines do not stop at the very same moment; and one that stops may be about to go
    elif states == {'ended'}:
      return _code_of_stopped(codes)
    elif any(code and not _was_stopped(code) for code in codes):
      return None if 'running' in states else joint_exit_code(codes)
    elif 'running' not in states or 0 not in codes:  # where some are done, the others will be
      # A machine that came back from maintenance lacks its part of the run.
      self._say(f'{self._node.name}: ' + '; '.join(map(str, found)))
      self._wait_for_turn()
      self._workers.stop(600)
      self._start()
    return None

  def _is_same_as_before(self, found: Sequence[WorkerStatus]) -> bool:
    """Whether the look before saw the same."""
    now = tuple((each.host, each.state, each.exit_code) for each in found)
    is_same, self._looks_alike = now == self._looks_alike, now
    return is_same

  def _start(self) -> None:
    self._looks_alike = ()
    try:
      self._workers.setup(self._plan.python)
      self._workers.start(self._plan.command)
    except Failed as error:
      # Either the slice went away meanwhile, or what fails here fails again, on a slice that is paid for.
      if not self._has_started and (self._node.describe() or {}).get('state') == 'READY':
        raise RunError(
          error.what, where=error.where, fix=f'nothing runs; the slice {self._node.name} is there'
        ) from error
      raise
    self._has_started = True

  def _replace(self) -> None:
    self._wait_for_turn()
    self._looks_alike = ()
    self._request.delete()

  def _wait_for_turn(self) -> None:
    lived = 0.0 if self._active_since is None else self._clock() - self._active_since
    wait = self._restarts.wait_after(EXIT_STOPPED, lived)
    if wait is None:
      raise RunError(
        'the slice vanishes too often', where=self._node.name, fix='another zone or type, or one that is not --spot'
      )
    self._sleep(wait)

  def _finish(self, code: int) -> int:
    self._say(f'{self._node.name}: the run has ended with {code}')
    if code == 0 and self._plan.is_deleted_when_done:
      self._request.delete()
    else:
      self._say(f'the slice still costs money: python -m launch.queued_resource delete {self._request.name}')
    return code


def _was_stopped(code: int) -> bool:
  """Whether it can be resumed; `launch.supervise` passes on 128 + N for a program that signal N has killed."""
  return is_worth_repeating(128 - code if code > 128 else code)


def _code_of_stopped(codes: Sequence[int]) -> int:
  errors = [code for code in codes if code and not _was_stopped(code)]
  return joint_exit_code(errors) if errors else EXIT_STOPPED
