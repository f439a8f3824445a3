"""What can be done with a slice once it is there, whoever asked for it: the subcommands of both launchers."""

import argparse

from launch.cloud.options import add_place, add_verb
from launch.cloud.workers import PYTHON, Workers

WITH_COMMAND = ('run',)


def add_slice_verbs(verbs: argparse._SubParsersAction) -> None:
  """Adds `setup`, `run`, `logs`, `stop` and `fetch`."""
  setup = add_verb(verbs, 'setup', 'copy the project to all workers and make its environment; again for newer code')
  add_python(setup)
  run = add_verb(
    verbs, 'run', 'start what follows -- on all workers, under launch.supervise; refused while a run goes on'
  )
  logs = add_verb(verbs, 'logs', 'show what a worker prints')
  logs.add_argument('--worker', default='0', help='its number, or all; default %(default)s')
  logs.add_argument('--lines', type=int, default=100, metavar='N', help='the last; default %(default)s')
  logs.add_argument('--follow', action='store_true', help='and what is added, until Ctrl-C; the run goes on')
  stop = add_verb(verbs, 'stop', 'tell the run to save and stop (SIGTERM); `run` goes on from there')
  add_seconds(stop)
  fetch = add_verb(verbs, 'fetch', 'copy a file or a folder from a worker')
  fetch.add_argument('remote', metavar='REMOTE', help='from the home folder on: rembert-launch/code/runs/large')
  fetch.add_argument('local', metavar='LOCAL', help='here')
  fetch.add_argument('--worker', default='0', help='default %(default)s')
  for parser in (setup, run, logs, stop, fetch):
    add_place(parser, is_reached=True)


def add_python(parser: argparse.ArgumentParser) -> None:
  """Adds which Python is installed on workers."""
  parser.add_argument('--python', default=PYTHON, help='3.11 or newer; default %(default)s')


def add_seconds(parser: argparse.ArgumentParser) -> None:
  """Adds how long a run may take to save."""
  parser.add_argument('--seconds', type=int, default=600, metavar='N', help='time for saving; default %(default)s')


def do_with_slice(options: argparse.Namespace, workers: Workers, command: list[str]) -> None:
  """One of these subcommands."""
  match options.verb:
    case 'setup':
      workers.setup(options.python)
    case 'run':
      workers.start(command)
    case 'logs':
      workers.logs(options.worker, options.lines, options.follow)
    case 'stop':
      workers.stop(options.seconds)
    case 'fetch':
      workers.fetch(options.remote, options.local, options.worker)
