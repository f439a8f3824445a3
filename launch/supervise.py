"""Runs a command again for as long as that helps: after a preemption, and after a process that was killed."""

import sys
import time
from collections.abc import Callable, Sequence

from launch.command_line import parse_wrapper
from launch.processes import ProcessGroup, RetryPolicy, keep_running, log, shell_exit_code
from rembert.command_line import command_parser
from rembert.validation import CountOrZero, number

EXAMPLES = """
examples
  a run that survives preemptions of its machine's devices and its own crashes:
    python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large
  the same as a service of the machine (systemd, a start-up script): the command is the same at every boot, and resumes
  the run in the workdir

what is repeated
  75             the program was stopped early, saved, and reports that it can be resumed
  killed         by a signal: out of memory, a machine that shuts down, an abort of JAX because another host failed
what is not
  0              done
  1, 2, others   an error, which would occur again. The code is passed on.

SIGTERM and Ctrl-C are passed on to the command; afterwards nothing is repeated.
"""
_POLL_SECONDS = 0.1


def supervise(command: Sequence[str], policy: RetryPolicy, log: Callable[[str], None] = log) -> int:
  """Runs and restarts a command; the exit code of its last run, 128 + N for signal N, as in a shell."""
  with ProcessGroup() as group:
    runs = keep_running(group, lambda: group.start(command), policy, lambda text: log(f'supervise: {text}'))
    while (code := next(runs)) is None:
      time.sleep(_POLL_SECONDS)
    return shell_exit_code(code)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.supervise', __doc__, EXAMPLES)
  help_text = 'in all; default %(default)s'
  parser.add_argument('--max_restarts', type=number(CountOrZero), default=RetryPolicy.max_restarts, help=help_text)
  options, command = parse_wrapper(parser, argv)
  return supervise(command, RetryPolicy(options.max_restarts))


if __name__ == '__main__':
  sys.exit(main())
