"""A run on TPUs in Google Kubernetes Engine: a JobSet manifest for one slice or several, and the commands around it."""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from launch.cloud import names
from launch.cloud.commands import Commands
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

PROGRAM = 'launch.gke'
MANIFESTS = pathlib.Path('runs/launch')
# JobSet's name goes into the names of its Pods (NAME-slice-0-0-abcde), which end at 63.
_LONGEST_NAME = 40
EXAMPLES = """
examples
  two slices of 8 x 8 chips, as one run; the manifest is in runs/launch/large.yaml:
    python -m launch.gke create large --topology=2*v5e:8x8 --image=REGION-docker.pkg.dev/PROJECT/images/rembert -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://BUCKET/large --gin.mesh.fsdp=64
  the manifest and the commands, and nothing done:
    python -m launch.gke create large --topology=v5e:8x8 --image=IMAGE --dry_run -- python -m rembert.main …
  what it does; what its first machine prints; stopped with all saved, and gone on with; ended:
    python -m launch.gke status large
    python -m launch.gke logs large --follow
    python -m launch.gke stop large
    python -m launch.gke resume large
    python -m launch.gke delete large

The cluster has a node pool for each slice, and JobSet installed; docs/guides/google_cloud.md says how. All Pods are
started again together, up to --max_restarts times, when a node is lost or the program says so (75, or killed). An error
(1, 2, …) ends the JobSet.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = parser_of(PROGRAM, __doc__, EXAMPLES)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
  create = add_verb(verbs, 'create', 'write the manifest, and create the JobSet')
  _add_job(create)
  status = add_verb(verbs, 'status', 'the JobSet and its Pods')
  logs = add_verb(verbs, 'logs', 'show what the first machine of the first slice prints')
  logs.add_argument('--all', action='store_true', help='of all machines')
  logs.add_argument('--lines', type=int, default=100, metavar='N', help='the last; default %(default)s')
  logs.add_argument('--follow', action='store_true', help='and what is added, until Ctrl-C; the run goes on')
  stop = add_verb(verbs, 'stop', 'end all Pods, which save first; `resume` starts them again')
  resume = add_verb(verbs, 'resume', 'start what was stopped')
  delete = add_verb(verbs, 'delete', 'delete a JobSet that `create` has made')
  for each in (create, status, logs, stop, resume, delete):
    each.add_argument('--namespace', help="default: that of kubectl's context")
    each.add_argument('--context', help="cluster, by kubectl's name for it (default: the current one)")
  for each in (create, delete):
    each.add_argument('--owner', help='label of what is created, looked for before it is deleted (default: your login)')
  own, command = split_command(sys.argv[1:] if argv is None else argv)
  options = parser.parse_args(own)
  command = checked_command(parser, command, options.verb == 'create')
  return ended(lambda: _do(options, command))


def _add_job(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--topology', required=True, help='as for --mode=compile: v5e:8x8, v5p:4x4x4, 2*v5e:16x16')
  parser.add_argument('--image', required=True, help='from launch/docker/tpu.Dockerfile, in a registry')
  parser.add_argument('--spot', action='store_true', help='nodes that may be taken away')
  parser.add_argument('--max_restarts', type=int, default=100, help='of all Pods together; default %(default)s')
  parser.add_argument('--save_seconds', type=int, default=600, help='from SIGTERM to SIGKILL; default %(default)s')
  parser.add_argument('--chips_per_machine', type=int, default=4, choices=(1, 4, 8), help='default %(default)s')
  parser.add_argument('--service_account', help='of Kubernetes, with access to the bucket')
  parser.add_argument('--queue', help="Kueue's LocalQueue")
  add_joining(parser)


def _do(options: argparse.Namespace, command: list[str]) -> None:
  names.checked_name(options.name, longest=_LONGEST_NAME)
  commands = commands_of(options)
  cluster = [f'--{key}={getattr(options, key)}' for key in ('namespace', 'context') if getattr(options, key)]
  pods = f'--selector=jobset.sigs.k8s.io/jobset-name={options.name}'
  match options.verb:
    case 'create':
      _create(options, command, commands, cluster)
    case 'status':
      commands.run(['kubectl', 'get', 'jobset', options.name, *cluster])
      commands.run(['kubectl', 'get', 'pods', pods, '--output=wide', *cluster])
    case 'logs':
      first = '' if options.all else ',jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0'
      # kubectl follows five Pods, and no more unless it is told.
      flags = [
        '--prefix',
        f'--tail={options.lines}',
        *(['--follow', '--max-log-requests=512'] if options.follow else []),
      ]
      commands.run(['kubectl', 'logs', pods + first, *flags, *cluster])
    case 'stop' | 'resume':
      patch = json.dumps({'spec': {'suspend': options.verb == 'stop'}})
      commands.run(['kubectl', 'patch', 'jobset', options.name, '--type=merge', f'--patch={patch}', *cluster])
    case 'delete':
      _delete(options, commands, cluster)


def _create(options: argparse.Namespace, command: list[str], commands: Commands, cluster: list[str]) -> None:
  from launch.cloud.jobset import Job, as_text, manifest  # JAX is imported with topologies: here alone they are wanted
  from rembert.training.topology import parse

  topology = parse(options.topology)
  names.checked_workdir(command, is_shared=True)
  chosen = ('chips_per_machine', 'max_restarts', 'save_seconds', 'spot', 'service_account', 'queue', 'namespace')
  job = Job(
    options.name,
    topology,
    options.image,
    with_patience(command, options.join_seconds),
    names.own_labels(names.owner_of(options.owner)),
    **{name: getattr(options, name) for name in chosen},
  )
  text = as_text(manifest(job))
  file = MANIFESTS / f'{options.name}.yaml'
  if options.dry_run:
    commands.note(f'{file}')
    commands.say(text.rstrip())
  else:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
  # Not apply: that would change a JobSet of the same name, whosever it is.
  commands.run(['kubectl', 'create', f'--filename={file}', *cluster])


def _delete(options: argparse.Namespace, commands: Commands, cluster: list[str]) -> None:
  labels = names.own_labels(names.owner_of(options.owner))
  commands.note('goes on only if the labels are ' + ','.join(f'{key}={value}' for key, value in labels.items()))
  get = ['kubectl', 'get', 'jobset', options.name, '--output=json', '--ignore-not-found', *cluster]
  found = commands.read(get, json.dumps({'metadata': {'labels': labels}}))
  if not found.strip():
    commands.say(f'there is no JobSet {options.name}: nothing to delete')
    return
  owner = names.owner_of(options.owner)
  names.check_own(json.loads(found)['metadata'].get('labels', {}), owner, f'the JobSet {options.name}')
  commands.run(['kubectl', 'delete', 'jobset', options.name, *cluster])


if __name__ == '__main__':
  sys.exit(main())
