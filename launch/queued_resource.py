"""A Cloud TPU slice by way of a queue: waited for, used as with launch.tpu_vm, and replaced when it is taken away."""

import argparse
import sys
from collections.abc import Sequence

from launch.cloud.names import checked_workdir
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
from launch.cloud.queued import QueuedResource, Stage, failure_of, stage_of, state_of
from launch.cloud.slices import WITH_COMMAND, add_python, add_slice_verbs, do_with_slice
from launch.cloud.tpu_nodes import TpuNode
from launch.cloud.watch import PATIENCE, Plan, Watch
from launch.cloud.workers import Workers
from launch.restarts import add_patience, patience_of
from launch.tpu_vm import show_status

PROGRAM = 'launch.queued_resource'
EXAMPLES = """
examples
  a run on spot slices, from the request to its end, over many preemptions; it has to be left running (in tmux, on a
  small machine), and can be started again at any time:
    python -m launch.queued_resource watch large --type=v5litepod-64 --spot --zone=us-west4-a --delete_when_done -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/v5e_64.gin --workdir=gs://BUCKET/large
  step by step:
    python -m launch.queued_resource create large --type=v5litepod-64 --spot --zone=us-west4-a
    python -m launch.queued_resource setup large --zone=us-west4-a
    python -m launch.queued_resource run large --zone=us-west4-a -- python -m rembert.main …
    python -m launch.queued_resource logs large --follow --zone=us-west4-a
    python -m launch.queued_resource delete large --zone=us-west4-a

A queued resource and the TPU VM that it becomes bear the same NAME. Both cost nothing while they wait; from ACTIVE on
the slice does, until it is deleted or taken away.
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = parser_of(PROGRAM, __doc__, EXAMPLES)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
  create = add_verb(verbs, 'create', 'ask for a slice, and wait until it is there')
  add_wish(create)
  create.add_argument('--no_wait', action='store_true', help='ask only; `status` tells how it stands')
  watch = add_verb(verbs, 'watch', 'create, set up, run what follows --, and again whenever the slice is taken away')
  add_wish(watch)
  add_python(watch)
  watch.add_argument('--every', type=float, default=60.0, help='seconds between two looks; default %(default)s')
  watch.add_argument('--delete_when_done', action='store_true', help='delete the slice when the run has ended with 0')
  add_patience(watch, PATIENCE)
  add_slice_verbs(verbs)
  status = add_verb(verbs, 'status', 'where the request stands, and what the workers do')
  delete = add_verb(verbs, 'delete', 'delete a request that `create` or `watch` has made, and its machines')
  for each in (create, delete):
    add_place(each)
  for each in (watch, status):
    add_place(each, is_reached=True)
  own, command = split_command(sys.argv[1:] if argv is None else argv)
  options = parser.parse_args(own)
  command = checked_command(parser, command, options.verb in (*WITH_COMMAND, 'watch'))
  patience = patience_of(watch, options) if options.verb == 'watch' else None
  return ended(lambda: _do(options, command, patience))


def _do(options: argparse.Namespace, command: list[str], patience) -> int:
  place, commands = place_of(options), commands_of(options)
  request, node = QueuedResource(options.name, place, commands), TpuNode(options.name, place, commands)
  workers = Workers(node, PROGRAM)
  match options.verb:
    case 'create':
      _create(options, request)
    case 'watch':
      checked_workdir(command, is_shared=True)
      every, is_deleted = max(1.0, options.every), options.delete_when_done
      plan = Plan(wish_of(options), tuple(command), options.python, every, patience, is_deleted)
      return _print_plan(request, workers, plan) if options.dry_run else Watch(request, node, workers, plan).run()
    case 'status':
      found = request.describe()
      if not options.dry_run:
        print(f'queued resource {request.name}: {state_of(found)}{failure_of(found)}')
      if stage_of(found) is Stage.ACTIVE:
        return show_status(node, workers)
    case 'delete':
      request.delete()
    case _:
      do_with_slice(options, workers, command)
  return 0


def _create(options: argparse.Namespace, request: QueuedResource) -> None:
  wish = wish_of(options)
  request.commands.note(wish.type.in_words())
  request.create(wish)
  if options.no_wait:
    return
  request.wait_until_active()
  if not options.dry_run:
    print(f'ready. {wish.type.in_words()}\nnext: python -m {PROGRAM} setup {options.name}')


def _print_plan(request: QueuedResource, workers: Workers, plan: Plan) -> int:
  """The commands of a watch, in the order of a slice that is taken away once."""
  note = request.commands.note
  note('first, unless it is there already')
  request.describe()
  request.create(plan.wish)
  request.wait_until_active()
  note(f'then on every look, each {plan.every:g} s, as long as the run goes on')
  request.describe()
  workers.node.describe()
  workers.status()
  note('on workers where nothing runs')
  workers.setup(plan.python)
  workers.start(plan.command)
  note('when the slice has been taken away: as follows, and from the beginning')
  request.delete()
  return 0


if __name__ == '__main__':
  sys.exit(main())
