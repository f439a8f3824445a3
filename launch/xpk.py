"""A run on TPUs in Google Kubernetes Engine, handed to xpk, where clusters are made and shared with it."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from launch.cloud import names
from launch.cloud.accelerators import EXAMPLES as TYPES
from launch.cloud.accelerators import accelerator_type
from launch.cloud.options import (
  add_joining,
  add_verb,
  checked_command,
  commands_of,
  ended,
  parser_of,
  split_command,
  with_patience,
)
from rembert.errors import UsageError
from rembert.training.preemption import EXIT_STOPPED

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
  parser = parser_of('launch.xpk', __doc__, EXAMPLES)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
  create = add_verb(verbs, 'create', 'create a workload')
  create.add_argument('--cluster', required=True)
  create.add_argument('--type', required=True, help=f'accelerator type: {TYPES}')
  create.add_argument('--slices', type=int, default=1, help='of that type; default %(default)s')
  create.add_argument('--image', required=True, help='from launch/docker/tpu.Dockerfile, in a registry')
  create.add_argument('--zone', help="of the cluster (default: gcloud's own setting)")
  create.add_argument('--project', help="id of the project (default: gcloud's own setting)")
  create.add_argument('--priority', choices=('very-low', 'low', 'medium', 'high', 'very-high'))
  create.add_argument('--spot', action='store_true', help='for clusters that make their nodes when they are asked for')
  create.add_argument('--max_restarts', type=int, default=100, help='default %(default)s')
  create.add_argument('--save_seconds', type=int, default=600, help='from SIGTERM to SIGKILL; default %(default)s')
  add_joining(create)
  own, command = split_command(sys.argv[1:] if argv is None else argv)
  options = parser.parse_args(own)
  command = checked_command(parser, command, is_wanted=True)
  return ended(lambda: commands_of(options).run(workload(options, command)))


def workload(options: argparse.Namespace, command: Sequence[str]) -> list[str]:
  """The command of xpk."""
  names.checked_name(options.name, longest=_LONGEST_NAME)
  names.checked_zone(options.zone), names.checked_project(options.project)
  names.checked_workdir(list(command), is_shared=True)
  if options.slices < 1:
    raise UsageError('there is no run on no slice', where=f'--slices={options.slices}', fix='--slices=1')
  flags = {
    'cluster': options.cluster,
    'workload': options.name,
    'tpu-type': accelerator_type(options.type).name,
    'num-slices': options.slices,
    'docker-image': options.image,
    # A line for the shell of the container. xpk sends SIGTERM to that shell; exec puts the program in its place.
    'command': f'exec {shlex.join(with_patience(command, options.join_seconds))}',
    'max-restarts': options.max_restarts,
    # Besides 42 and 127-255, which it repeats anyway.
    'restart-on-exit-codes': EXIT_STOPPED,
    'termination-grace-period-seconds': options.save_seconds,
    'priority': options.priority,
    'zone': options.zone,
    'project': options.project,
  }
  return [
    *('xpk', 'workload', 'create'),
    *(f'--{name}={value}' for name, value in flags.items() if value is not None),
    *(['--spot'] if options.spot else []),
  ]


if __name__ == '__main__':
  sys.exit(main())
