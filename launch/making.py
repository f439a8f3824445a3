"""What `launch.xtreme` and `launch.sweep` have in common: where runs go, how they are shown, and the commands alone."""

import argparse
import contextlib
import os
import shlex
from collections.abc import Sequence

from etils import epath

from launch.execution import Execution, Progress, State
from launch.run_view import RunView, summary
from launch.runs import Run, in_order
from launch.slots import Slot, core_slots, device_slots
from rembert.jobs.workdir_lock import locked
from rembert.training.console import Console


def add_slots(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
  """Adds the options that say where runs go."""
  where = parser.add_mutually_exclusive_group()
  where.add_argument(
    '--devices', metavar='0,1,…', help='GPUs or TPU chips of this machine, a run on each (default: one run on all)'
  )
  where.add_argument(
    '--side_by_side', type=int, default=1, metavar='N', help='runs at a time, each on a share of the cores (a CPU)'
  )
  parser.add_argument(
    '--dry_run', action='store_true', help='print the commands, for a cluster or to look at, and run nothing'
  )


def slots_of(options: argparse.Namespace) -> list[Slot]:
  """Where the runs go."""
  return device_slots(options.devices.split(',')) if options.devices else core_slots(options.side_by_side)


def print_commands(runs: Sequence[Run], console: Console) -> None:
  """A line each, ready for a shell. Those of a stage may run side by side; the next stage needs all of them."""
  stages, done = in_order(runs), sum(run.is_done() for run in runs)
  console.say(f'# {len(runs)} run(s), {done} of them done')
  for number, stage in enumerate(stages, 1):
    if len(stages) > 1:
      console.say(f'# stage {number} of {len(stages)}')
    for run in stage:
      if not run.is_done():
        console.say(shlex.join(['python', '-m', 'rembert.main', *run.arguments]))


def make(
  runs: Sequence[Run], slots: Sequence[Slot], workdir: epath.Path, console: Console
) -> tuple[list[Progress], bool]:
  """Makes all runs that are not done, shows them meanwhile, and what went wrong with them in the end.

  Returns:
    where each run stands, and whether nobody stopped them.
  """
  workdir.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    stack.enter_context(locked(workdir, console.say))
    view = stack.enter_context(RunView(console, len(slots)))
    execution = Execution(runs, slots, view.changed, lambda: view.look(execution.all))
    done = sum(progress.state is State.DONE for progress in execution.all)
    console.say(f'{len(runs)} run(s), {done} of them done')
    is_finished = execution.run()
  if not is_finished:
    console.say(f'stopped: {summary(execution.all, len(slots), 0.0)}. Repeat the command to go on.')
  wrong = [progress for progress in execution.all if progress.state in (State.FAILED, State.LEFT_OUT)]
  for progress in wrong:
    console.say(f'{progress.state.value}: {progress.run.name} ({progress.note})')
  return execution.all, is_finished


def report(workdir: epath.Path, console: Console) -> None:
  """Writes the page of whatever is done; one that fails costs nothing else."""
  from rembert.report.__main__ import main

  if main([os.fspath(workdir)]):
    console.say(f'there is no report; once that is mended: python -m rembert.report {shlex.quote(os.fspath(workdir))}')
