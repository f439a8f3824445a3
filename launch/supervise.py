"""Runs a command, and restarts it after a preemption or if it was killed."""

import sys
import time
from collections.abc import Callable, Sequence

from launch.command_line import parse_wrapper
from launch.processes import ProcessGroup, RetryPolicy, keep_running, log, shell_exit_code
from rembert.command_line import command_parser
from rembert.validation import CountOrZero, number

EXAMPLES = """
examples
  a run that survives preemptions and its own crashes:
    python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large
  the same as a service of the machine (systemd, a start-up script): run the same command at every boot; it resumes the
  run in the workdir

restarted
  75             the program was stopped early, after saving, and can be resumed
  killed         by a signal: out of memory, machine shutdown, or a JAX abort after another host failed
not restarted
  0              done
  1, 2, others   an error, which would occur again; the code is returned

SIGTERM and Ctrl-C are forwarded to the command, which is then not restarted.
"""
_POLL_SECONDS = 0.1


def supervise(command: Sequence[str], policy: RetryPolicy, log: Callable[[str], None] = log) -> int:
  """Runs and restarts a command; returns the exit code of its last run, 128 + N for signal N, as in a shell."""
  with ProcessGroup() as group:
    runs = keep_running(group, lambda: group.start(command), policy, lambda text: log(f'supervise: {text}'))
    while (code := next(runs)) is None:
      time.sleep(_POLL_SECONDS)
    return shell_exit_code(code)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.supervise', __doc__, EXAMPLES)
  help_text = 'maximum number of restarts (default: %(default)s)'
  parser.add_argument('--max_restarts', type=number(CountOrZero), default=RetryPolicy.max_restarts, help=help_text)
  options, command = parse_wrapper(parser, argv)
  return supervise(command, RetryPolicy(options.max_restarts))


if __name__ == '__main__':
  sys.exit(main())
