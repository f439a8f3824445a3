"""Runs a command again for as long as that helps: after a preemption, and after a process that vanished."""

import sys
import time
from collections.abc import Callable, Sequence

from launch.command_line import add_command, add_retry_options, retry_policy, wrapped_command
from launch.processes import ProcessGroup, RestartedProcess, RetryPolicy, shell_exit_code
from rembert.command_line import command_parser

EXAMPLES = """
examples
  a run that survives preemptions of its machine's devices and its own crashes:
    python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large
  the same as a service of the machine (systemd, a start-up script): the command is the same at every boot, and goes on
  from where the workdir stands

what is repeated
  75             the program was stopped early, saved, and says that it can be resumed
  killed         by a signal: out of memory, a machine that shuts down, an abort of JAX because another host failed
what is not
  0              done
  1, 2, others   an error: it would come again. The code is passed on.

SIGTERM and Ctrl-C are passed on to the command; afterwards nothing is repeated.
"""
_POLL_SECONDS = 0.1


def supervise(command: Sequence[str], policy: RetryPolicy, log: Callable[[str], None] = print) -> int:
  """Runs and restarts a command; the exit code of its last run, 128 + N for signal N, as in a shell."""
  with ProcessGroup() as group:
    process = RestartedProcess(group, lambda: group.start(command), policy, lambda text: log(f'supervise: {text}'))
    while (code := process.poll()) is None:
      time.sleep(_POLL_SECONDS)
    return shell_exit_code(code)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.supervise', __doc__, EXAMPLES)
  add_retry_options(parser, RetryPolicy())
  add_command(parser, 'what to run')
  options = parser.parse_args(argv)
  command = wrapped_command(parser, options)
  return supervise(command, retry_policy(options), lambda text: print(text, flush=True))


if __name__ == '__main__':
  sys.exit(main())
