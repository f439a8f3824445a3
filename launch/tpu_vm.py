"""A Cloud TPU slice: created, set up, told what to run, looked at, deleted; by commands of gcloud."""

import argparse
import sys
from collections.abc import Sequence

from launch.cloud.options import (
  add_place,
  add_verb,
  add_wish,
  checked_command,
  commands_of,
  ended,
  parser_of,
  place_of,
  split_command,
  wish_of,
)
from launch.cloud.slices import WITH_COMMAND, add_slice_verbs, do_with_slice
from launch.cloud.tpu_nodes import TpuNode
from launch.cloud.workers import Workers

PROGRAM = 'launch.tpu_vm'
EXAMPLES = """
examples
  from nothing to a run on 64 chips, and back to nothing:
    python -m launch.tpu_vm create large --type=v5litepod-64 --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm setup large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm run large --zone=us-west4-a --project=my-project -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin --workdir=gs://BUCKET/large
    python -m launch.tpu_vm logs large --follow --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm stop large --zone=us-west4-a --project=my-project
    python -m launch.tpu_vm delete large --zone=us-west4-a --project=my-project
  what any of these would do:
    python -m launch.tpu_vm delete large --dry_run

Without --zone and --project, gcloud's own settings count (gcloud config set compute/zone us-west4-a). A slice costs
money from `create` to `delete`, whether or not anything runs on it. Where there is no capacity `create` fails;
launch.queued_resource waits for it, and replaces spot slices that are taken away.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = parser_of(PROGRAM, __doc__, EXAMPLES)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
  create = add_verb(verbs, 'create', 'create a slice, and wait until it is ready')
  add_wish(create)
  add_slice_verbs(verbs)
  status = add_verb(verbs, 'status', 'what the slice and its workers do')
  delete = add_verb(verbs, 'delete', 'delete a slice that `create` has made, with everything on its disks')
  for each in (create, delete):
    add_place(each)
  add_place(status, is_reached=True)
  own, command = split_command(sys.argv[1:] if argv is None else argv)
  options = parser.parse_args(own)
  command = checked_command(parser, command, options.verb in WITH_COMMAND)
  return ended(lambda: _do(options, command))


def _do(options: argparse.Namespace, command: list[str]) -> int:
  node = TpuNode(options.name, place_of(options), commands_of(options))
  workers = Workers(node, PROGRAM)
  match options.verb:
    case 'create':
      wish = wish_of(options)
      node.commands.note(wish.type.in_words())
      node.create(wish)
      if not options.dry_run:
        print(f'ready. {wish.type.in_words()}\nnext: python -m {PROGRAM} setup {options.name}')
    case 'status':
      return show_status(node, workers)
    case 'delete':
      node.delete()
    case _:
      do_with_slice(options, workers, command)
  return 0


def show_status(node: TpuNode, workers: Workers) -> int:
  """Prints what the API says of a slice, and its workers of their run."""
  found = node.describe()
  if found is None:
    print(f'there is no TPU VM {node.name}')
    return 0
  if not node.commands.is_dry:
    print(f'{node.name}: {found.get("state")}, {found.get("acceleratorType")}, health {found.get("health", "unknown")}')
  if found.get('state') == 'READY':
    for each in workers.status():
      print(each)
  return 0


if __name__ == '__main__':
  sys.exit(main())
