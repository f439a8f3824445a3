"""Requests a Cloud TPU slice from a queue, runs a command on it, and replaces the slice if it is preempted."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence

from launch import tpu_vm
from launch.command_line import launcher_parser, run_launcher
from launch.processes import CommandFailed, RetryCounter, RetryPolicy, is_retryable, joint_exit_code
from rembert.errors import RunError, UsageError
from rembert.runtime.signals import EXIT_STOPPED

PROGRAM = 'launch.queued_resource'
EXAMPLES = """
examples
  a run on spot slices, from the request to its end, across preemptions; keep it running (in tmux, on a small
  machine); it can be started again at any time:
    python -m launch.queued_resource watch large --type=v5litepod-64 --spot --zone=us-west4-a --delete_when_done -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin --workdir=gs://BUCKET/large
  delete the request and its machines:
    python -m launch.queued_resource delete large --zone=us-west4-a

A queued resource and the TPU VM that it becomes have the same NAME, which the verbs of launch.tpu_vm
(status, logs, stop) accept too. Both cost nothing while they wait; from ACTIVE on
the slice does, until it is deleted or preempted.
"""

# A spot slice that lasts less than ten minutes only gets through set-up and the first compilation.
RETRY_POLICY = RetryPolicy(max_restarts=200, max_short_runs=8, short_seconds=600.0, max_wait=1800.0)
# Final states of a request in the API, v2.
_LOST = ('SUSPENDED', 'FAILED')
# Consecutive failures of gcloud: a network may fail for hours, an expired login stays expired.
_MAX_FAILURES = 10
_SAVE_SECONDS = 600


class QueuedResource(tpu_vm.Resource):
  """A queued request for a slice, with the same name as the node that it becomes."""

  KIND, GROUP = 'queued resource', 'queued-resources'
  # --force also deletes the machines; without it an ACTIVE request is not deleted.
  DELETE_FLAGS = ('--force', '--quiet')

  def create(self, request: tpu_vm.TpuRequest) -> None:
    """Puts the request into the queue, without waiting."""
    flags = [f'--node-id={self.name}', f'--runtime-version={request.runtime}', *request.flags]
    self.commands.run(self._gcloud('create', self.name, *flags, f'--labels={self._labels}', *self._place, '--async'))

  def check_before_delete(self, description: dict) -> None:
    """UsageError if it must not be deleted: the labels are those of the future nodes."""
    for spec in description.get('tpu', {}).get('nodeSpec', []) or [{}]:
      super().check_before_delete(spec.get('node', {}))


# --- a run across preemptions -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Watch:
  """Keeps a run in progress on spot slices: requests a new slice after a preemption, and starts the run there."""

  resource: QueuedResource
  vm: tpu_vm.TpuVm  # the slice that the request becomes
  request: tpu_vm.TpuRequest
  command: Sequence[str]
  python: str  # version of the workers' environment
  every: float = 60.0  # seconds between polls
  policy: RetryPolicy = RETRY_POLICY  # limits on lost slices
  delete_when_done: bool = False  # only after exit code 0
  sleep: Callable[[float], None] = time.sleep
  clock: Callable[[], float] = time.monotonic

  def __post_init__(self):
    self._restarts = RetryCounter(self.policy, self._log)
    self._active_since: float | None = None
    self._was_ever_active = self._has_started = False
    self._last_state = ''
    self._last_workers: list[tpu_vm.WorkerStatus] = []

  def run(self) -> int:
    """Runs until the command has ended; returns its exit code. RunError if gcloud or slices fail too often."""
    failures, is_first = 0, True
    while True:
      wait = self.every
      try:
        if (code := self._step()) is not None:
          return self._finish(code)
        failures, is_first = 0, False
      except CommandFailed as error:
        failures += 1
        if is_first or failures == _MAX_FAILURES:  # at first, a wrong name or missing permissions
          raise
        self._log(error.what)
        wait = min(wait * 2**failures, self.policy.max_wait)
      self.sleep(wait)

  def print_plan(self) -> None:
    """Prints the commands, for a slice that is preempted once."""
    note = self.resource.commands.note
    note('first, unless it already exists')
    self.resource.describe()
    self.resource.create(self.request)
    note('repeated until the state is ACTIVE')
    self.resource.describe()
    note(f'then polls every {self.every:g} s while the run is in progress')
    self.resource.describe()
    self.vm.describe()
    self.vm.status()
    note('on workers without a run in progress')
    self.vm.setup(self.python)
    self.vm.start(self.command)
    note('after a preemption: as follows, then from the beginning')
    self.resource.delete()

  def _log(self, text: str) -> None:
    self.resource.commands.log(f'{self.vm.name}: {text}')

  def _step(self) -> int | None:
    """Polls the request and acts on its state; returns the exit code of a run that has ended finally, or None."""
    description = self.resource.describe()
    # As named by the API, except MISSING.
    state = 'MISSING' if description is None else description.get('state', {}).get('state', 'STATE_UNSPECIFIED')
    if state != self._last_state:
      self._log(state)
    self._last_state = state
    if state == 'MISSING':
      self._active_since = None
      self.resource.create(self.request)
    elif state == 'FAILED' and not self._was_ever_active:
      message = ((description or {})['state'].get('failedData') or {}).get('error', {}).get('message', '')
      raise RunError(
        'the request failed' + (f': {message}' if message else ''),
        where=f'queued resource {self.resource.name}',
        fix=f'python -m {PROGRAM} delete {self.resource.name}, then try another type or zone',
      )
    elif state in _LOST:
      self._replace()
    elif state == 'ACTIVE':
      return self._check_node()
    return None

  def _check_node(self) -> int | None:
    self._was_ever_active = True
    self._active_since = self.clock() if self._active_since is None else self._active_since
    state = (self.vm.describe() or {}).get('state', 'MISSING')
    if state in (*tpu_vm.LOST_STATES, 'MISSING'):
      self._log(f'the node is {state}')
      self._replace()
      return None
    return self._check_workers() if state == 'READY' else None

  def _check_workers(self) -> int | None:
    try:
      workers = self.vm.status()
    except CommandFailed:
      raise
    except UsageError:  # nothing is set up
      self._start()
      return None
    if not workers:
      raise RunError('no worker answered', where=self.vm.name, fix=f'gcloud compute tpus tpu-vm ssh {self.vm.name}')
    states = {worker.state for worker in workers}
    codes = [worker.exit_code for worker in workers if worker.exit_code is not None]
    errors = [code for code in codes if code and not _was_stopped(code)]
    is_settled, self._last_workers = workers == self._last_workers, workers
    if states == {'idle'}:
      self._start()
    elif states == {'ended'} and not any(map(_was_stopped, codes)):
      return joint_exit_code(codes)
    elif states == {'running'} or not is_settled:
      pass  # machines stop at different times, and one that stops may be about to be preempted
    elif states == {'ended'}:
      return joint_exit_code(errors) if errors else EXIT_STOPPED
    elif errors:
      return None if 'running' in states else joint_exit_code(codes)
    elif 'running' not in states or 0 not in codes:  # if some are done, the others will be
      # A machine that was restarted by maintenance has lost its part of the run.
      self._log('; '.join(map(str, workers)))
      self._wait_for_turn()
      self.vm.stop(_SAVE_SECONDS)
      self._start()
    return None

  def _start(self) -> None:
    self._last_workers = []
    try:
      self.vm.setup(self.python)
      self.vm.start(self.command)
    except CommandFailed as error:
      # Either the slice was preempted meanwhile, or the error would occur again, on a slice that costs money.
      if not self._has_started and (self.vm.describe() or {}).get('state') == 'READY':
        raise RunError(error.what, where=error.where, fix=f'no run; the slice {self.vm.name} still exists') from error
      raise
    self._has_started = True

  def _replace(self) -> None:
    self._wait_for_turn()
    self._last_workers = []
    self.resource.delete()

  def _wait_for_turn(self) -> None:
    lived = 0.0 if self._active_since is None else self.clock() - self._active_since
    wait = self._restarts.wait_after(EXIT_STOPPED, lived)
    if wait is None:
      raise RunError('the slice was lost too often', where=self.vm.name, fix='try another zone or type, or omit --spot')
    self.sleep(wait)

  def _finish(self, code: int) -> int:
    self._log(f'the run has ended with {code}')
    if code == 0 and self.delete_when_done:
      self.resource.delete()
    else:
      self.resource.commands.log(f'the slice still costs money: python -m {PROGRAM} delete {self.resource.name}')
    return code


def _was_stopped(code: int) -> bool:
  """Whether the run can be resumed; `launch.supervise` returns 128 + N for a program killed by signal N."""
  return is_retryable(128 - code if code > 128 else code)


# --- the command line -------------------------------------------------------------------------------------------------


def _watch(options: argparse.Namespace) -> int:
  tpu_vm.check_workdir(options.command)
  resource, vm = QueuedResource.of(options), tpu_vm.TpuVm.of(options)
  watch = Watch(resource, vm, tpu_vm.requested(options), options.command, options.python)
  watch.delete_when_done = options.delete_when_done
  if options.dry_run:
    watch.print_plan()
    return 0
  return watch.run()


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser, verbs = launcher_parser(PROGRAM, __doc__, EXAMPLES)
  help_text = 'request and set up a slice and run the command after --; again after every preemption'
  watch = tpu_vm.add_verb(verbs, 'watch', help_text, _watch, takes_command=True)
  tpu_vm.add_request(watch)
  tpu_vm.add_python(watch)
  watch.add_argument('--delete_when_done', action='store_true', help='delete the slice when the run has ended with 0')
  help_text = 'delete a request that `watch` has created, and its machines'
  tpu_vm.add_verb(verbs, 'delete', help_text, lambda options: QueuedResource.of(options).delete())
  return run_launcher(parser, argv)


if __name__ == '__main__':
  sys.exit(main())
