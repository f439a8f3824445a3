"""A run on TPUs in Google Kubernetes Engine, handed to xpk, where clusters are made and shared with it."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from launch import gcloud
from launch.command_line import add_verb, launcher_parser, run_launcher
from launch.processes import Commands
from rembert.runtime.signals import EXIT_STOPPED
from rembert.validation import Count, CountOrZero, number

EXAMPLES = """
examples
  two slices of 64 chips as one run:
    python -m launch.xpk create large --cluster=CLUSTER --type=v5litepod-64 --slices=2 --image=IMAGE -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large --gin.mesh.fsdp=64
  the command of xpk, and nothing done:
    python -m launch.xpk create large --cluster=CLUSTER --type=v5litepod-64 --image=IMAGE --dry_run -- python -m …

Needs xpk (pip install xpk) and a cluster that it has made. xpk itself lists, shows and deletes workloads: nothing is
deleted here. It repeats a workload that ends with 75, or was killed; never one that ends with an error.
"""
_LONGEST_NAME = 40  # xpk's own limit is near it: it appends to the name


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser, verbs = launcher_parser('launch.xpk', __doc__, EXAMPLES)
  create = add_verb(verbs, 'create', 'create a workload', _create, takes_command=True, longest_name=_LONGEST_NAME)
  create.add_argument('--cluster', required=True)
  gcloud.add_type(create)
  create.add_argument('--slices', type=number(Count), default=1, help='of that type; default %(default)s')
  create.add_argument('--image', required=True, help='from launch/docker/tpu.Dockerfile, in a registry')
  create.add_argument('--zone', type=gcloud.zone, help="of the cluster (default: gcloud's own setting)")
  create.add_argument('--project', type=gcloud.project, help="id of the project (default: gcloud's own setting)")
  create.add_argument('--priority', choices=('very-low', 'low', 'medium', 'high', 'very-high'))
  create.add_argument('--spot', action='store_true', help='for clusters that make their nodes when they are asked for')
  create.add_argument('--max_restarts', type=number(CountOrZero), default=100, help='default %(default)s')
  create.add_argument(
    '--save_seconds', type=number(Count), default=600, help='from SIGTERM to SIGKILL; default %(default)s'
  )
  help_text = 'how long the first machine waits for the last, added to the command of rembert.main; default %(default)s'
  create.add_argument('--join_seconds', type=number(Count), default=3600, help=help_text)
  return run_launcher(parser, argv)


def _create(options: argparse.Namespace) -> None:
  gcloud.check_workdir(options.command)
  flags = {
    'cluster': options.cluster,
    'workload': options.name,
    'tpu-type': options.type.name,
    'num-slices': options.slices,
    'docker-image': options.image,
    # A line for the shell of the container. xpk sends SIGTERM to that shell; exec puts the program in its place.
    'command': f'exec {shlex.join(_patient(options.command, options.join_seconds))}',
    'max-restarts': options.max_restarts,
    # Besides 42 and 127-255, which it repeats anyway.
    'restart-on-exit-codes': EXIT_STOPPED,
    'termination-grace-period-seconds': options.save_seconds,
    'priority': options.priority,
    'zone': options.zone,
    'project': options.project,
  }
  values = [f'--{name}={value}' for name, value in flags.items() if value is not None]
  Commands(options.dry_run).run(['xpk', 'workload', 'create', *values, *(['--spot'] if options.spot else [])])


def _patient(command: Sequence[str], join_seconds: int) -> Sequence[str]:
  """The command of rembert.main with `hosts.join_seconds`: a cluster starts machines as it has them."""
  if 'rembert.main' not in command or any('hosts.join_seconds' in argument for argument in command):
    return command
  return [*command, f'--gin.hosts.join_seconds={join_seconds}']


if __name__ == '__main__':
  sys.exit(main())
