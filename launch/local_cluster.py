"""Several hosts on one machine: N processes of M CPU devices each, joined as the hosts of a pod are."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from launch.wrapped_command import add_command, command_of
from rembert.hosts.variables import ADDRESS, COUNT, INDEX
from rembert.training.preemption import EXIT_STOPPED

EXAMPLES = """
examples
  the smoke run on two hosts of two devices each:
    python -m launch.local_cluster --processes=2 --devices=2 -- \\
        python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/two_hosts
  the same run, continued on one host of four devices:
    python -m launch.local_cluster --processes=1 --devices=4 -- \\
        python -m rembert.main --gin_file=gin/pretrain_smoke.gin --workdir=runs/two_hosts

SIGTERM and Ctrl-C are passed on to all processes. `kill -TERM` of a single one stops them all, as the preemption of one
host stops a pod; `kill -KILL` of one shows what the others do when a host is lost.

exit code
  0 when all ended with 0; otherwise the first of 2, 1 and 75 that any of them ended with; 1 for any other
"""

_SECONDS_TO_FOLLOW = 150


def free_port() -> int:
  """A port of this machine that nobody listens at."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    return server.getsockname()[1]


def environments(processes: int, devices: int, port: int, *, base: Mapping[str, str] = os.environ) -> list[dict]:
  """What each process finds in its environment."""
  return [
    dict(base)
    | {ADDRESS: f'127.0.0.1:{port}', COUNT: str(processes), INDEX: str(index)}
    | {'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)}
    for index in range(processes)
  ]


def joint_exit_code(codes: Sequence[int]) -> int:
  """One exit code for all."""
  return next((code for code in (2, 1, EXIT_STOPPED) if code in codes), 1 if any(codes) else 0)


def _pass_on(index: int, process: subprocess.Popen) -> threading.Thread:
  def copy() -> None:
    for line in process.stdout:
      sys.stdout.write(f'[{index}] {line}')
      sys.stdout.flush()

  thread = threading.Thread(target=copy, daemon=True)
  thread.start()
  return thread


def run(command: Sequence[str], processes: int, devices: int) -> int:
  """Runs the cluster to its end; returns its exit code."""
  started: list[subprocess.Popen] = []

  def on_signal(number: int, _) -> None:
    for process in started:
      if process.poll() is None:
        process.send_signal(number)

  previous = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
  for environment in environments(processes, devices, free_port()):
    piped = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True, 'errors': 'replace'}
    started.append(subprocess.Popen(list(command), env=environment, **piped))
  copies = [_pass_on(index, process) for index, process in enumerate(started)]
  first_end = None
  while any(process.poll() is None for process in started):
    time.sleep(0.1)
    if first_end is None and any(process.poll() for process in started):
      first_end = time.monotonic()
    if first_end is not None and time.monotonic() - first_end > _SECONDS_TO_FOLLOW:
      print(f'local_cluster: some processes outlive a lost one by {_SECONDS_TO_FOLLOW} s; killed', file=sys.stderr)
      for process in started:
        process.kill()
      break
  for process, copied in zip(started, copies, strict=True):
    process.wait()
    copied.join(timeout=5)
  for number, handler in previous.items():
    signal.signal(number, handler)
  codes = [process.returncode for process in started]
  print(f'local_cluster: exit codes {", ".join(map(str, codes))}')
  return joint_exit_code(codes)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = argparse.ArgumentParser(
    'python -m launch.local_cluster',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--processes', type=int, default=2, help='hosts; default %(default)s')
  parser.add_argument('--devices', type=int, default=1, help='CPU devices of each; default %(default)s')
  add_command(parser, 'what every host runs')
  options = parser.parse_args(argv)
  command = command_of(parser, options.command)
  if options.processes < 1 or options.devices < 1:
    parser.error('--processes and --devices must be at least 1')
  return run(command, options.processes, options.devices)


if __name__ == '__main__':
  sys.exit(main())
