"""Simulates a pod on one machine, with N processes of M CPU devices each."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from launch.command_line import parse_wrapper
from launch.processes import ProcessGroup, joint_exit_code
from rembert.command_line import command_parser
from rembert.runtime import ADDRESS, COUNT, INDEX
from rembert.validation import Count, number

EXAMPLES = """
examples
  the smoke run on two hosts with two devices each:
    python -m launch.local_cluster --processes=2 --devices=2 -- \\
        python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/two_hosts
  the same run, resumed on one host with four devices:
    python -m launch.local_cluster --processes=1 --devices=4 -- \\
        python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/two_hosts

SIGTERM and Ctrl-C are forwarded to all processes. `kill -TERM` of a single one stops them all, as the preemption of one
host stops a pod; `kill -KILL` of one shows what the others do when a host is lost.

exit code
  0 if all processes exit with 0; otherwise the first of 2, 1, 75 that occurs; 1 for any other code
"""

_SECONDS_TO_FOLLOW = 150


def free_port() -> int:
  """A free port of this machine."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    return server.getsockname()[1]


def environments(processes: int, devices: int, port: int, *, base: Mapping[str, str] = os.environ) -> list[dict]:
  """Environment variables of each process."""
  return [
    dict(base)
    | {ADDRESS: f'127.0.0.1:{port}', COUNT: str(processes), INDEX: str(index)}
    | {'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)}
    for index in range(processes)
  ]


def run(command: Sequence[str], processes: int, devices: int) -> int:
  """Runs the cluster until all processes end; returns its exit code."""
  with ProcessGroup() as group:
    started = [
      group.start(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors='replace')
      for environment in environments(processes, devices, free_port())
    ]
    copies = [threading.Thread(target=_copy_output, args=each, daemon=True) for each in enumerate(started)]
    for copy in copies:
      copy.start()
    first_failure = None
    while any(process.poll() is None for process in started):
      time.sleep(0.1)
      if first_failure is None and any(process.poll() for process in started):
        first_failure = time.monotonic()
      if first_failure is not None and time.monotonic() - first_failure > _SECONDS_TO_FOLLOW:
        print(f'local_cluster: killed the others {_SECONDS_TO_FOLLOW} s after a process was lost', file=sys.stderr)
        group.send(signal.SIGKILL)
        break
    codes = [process.wait() for process in started]
    for copy in copies:
      copy.join(timeout=5)
  print(f'local_cluster: exit codes {", ".join(map(str, codes))}')
  return joint_exit_code(codes)


def _copy_output(index: int, process: subprocess.Popen) -> None:
  for line in process.stdout or ():
    sys.stdout.write(f'[{index}] {line}')
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = command_parser('launch.local_cluster', __doc__, EXAMPLES)
  parser.add_argument('--processes', type=number(Count), default=2, help='number of hosts (default: %(default)s)')
  parser.add_argument('--devices', type=number(Count), default=1, help='CPU devices per host (default: %(default)s)')
  options, command = parse_wrapper(parser, argv)
  return run(command, options.processes, options.devices)


if __name__ == '__main__':
  sys.exit(main())
