"""Submits a run to a Slurm cluster of GPUs: one process per node, requeued when it stops early (exit code 75)."""

import argparse
import pathlib
import shlex
import sys
from collections.abc import Sequence

from launch.command_line import add_verb, launcher_parser, matching, run_launcher
from launch.processes import Commands
from rembert.runtime.signals import EXIT_STOPPED
from rembert.validation import Count, CountOrZero, number

SCRIPTS = pathlib.Path('runs/launch')
EXAMPLES = """
examples
  four nodes of eight GPUs, one day at a time, until the run is done:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --time=24:00:00 --partition=gpu -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/h200x8.gin \\
        --gin.mesh.data=4 --workdir=/shared/large
  print the script without submitting it:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --dry_run -- python -m rembert.main …
  in a container, with other flags of srun and sbatch:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --srun_flag=--container-image=IMAGE \\
        --sbatch_flag=--account=lab --setup='source /shared/venv/bin/activate' -- python -m rembert.main …

The script is runs/launch/NAME.sbatch. It starts in this directory; the output of each node is in runs/launch/logs. The
workdir must be on a file system shared by all nodes. Use `squeue --me` and `tail` to watch it. To stop, `scancel
--signal=TERM JOB` saves and requeues the job, and `scancel JOB` then removes it from the queue. `scancel JOB` alone
leaves it only the cluster's KillWait to save, often 30 s.
"""


def script(options: argparse.Namespace) -> str:
  """The batch script, with options of sbatch and srun 22.05 and later."""
  flags = {
    'job-name': options.name,
    'nodes': options.nodes,
    'ntasks-per-node': 1,
    'gpus-per-node': options.gpus,
    'partition': options.partition,
    'time': options.time,
    # Sent to the processes of the steps, not to this script, which waits for them.
    'signal': f'TERM@{options.save_seconds}',
    'requeue': '',
    'open-mode': 'append',
    'output': f'{SCRIPTS}/logs/%x-%j.txt',
  }
  lines = [f'#SBATCH --{name}={value}'.removesuffix('=') for name, value in flags.items() if value is not None]
  lines += [f'#SBATCH {flag}' for flag in options.sbatch_flag]
  srun = ['srun', '--kill-on-bad-exit=0', f'--wait={max(300, options.save_seconds)}', *options.srun_flag]
  srun += [f'--output={SCRIPTS}/logs/%x-%j-node%n.txt', '--open-mode=append']
  return (
    pathlib.Path(__file__)
    .with_name('slurm.sbatch')
    .read_text()
    .format(
      options='\n'.join(lines),
      name=options.name,
      # One process for all GPUs of a node. In a Slurm step, JAX would give it only the first one (jax/_src/clusters/
      # cluster.py assumes one process per device).
      devices=','.join(map(str, range(options.gpus))),
      setup=options.setup or ': # --setup=… goes here',
      srun=shlex.join(srun),
      command=shlex.join(options.command),
      max_restarts=options.max_restarts,
      codes=SCRIPTS / 'codes',
      stopped=EXIT_STOPPED,
    )
  )


def _submit(options: argparse.Namespace) -> None:
  commands, file = Commands(options.dry_run), SCRIPTS / f'{options.name}.sbatch'
  if options.dry_run:
    commands.note(str(file))
    commands.log(script(options).rstrip())
    commands.note('end of the script')
  else:
    (SCRIPTS / 'logs').mkdir(parents=True, exist_ok=True)
    file.write_text(script(options))
  commands.run(['sbatch', str(file)])


def launcher() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  time = matching(r'(\d+-)?\d+(:\d\d){0,2}', '24:00:00 or 2-00:00:00')
  partition = matching(r'[\w.,-]+', 'gpu (sinfo --summarize)')
  line = matching('.*', 'source setup.sh, a single line')
  # #SBATCH lines are not shell code: Slurm has its own quoting rules.
  flag = matching(r'--[a-z][\w-]*(=[^\s\'"\\#]+)?', '--qos=high')
  parser, verbs = launcher_parser('launch.slurm', __doc__, EXAMPLES)
  submit = add_verb(verbs, 'submit', 'write the batch script and submit it', _submit, takes_command=True)
  submit.add_argument('--nodes', type=number(Count), required=True, help='number of nodes')
  submit.add_argument('--gpus', type=number(Count), required=True, help='number of GPUs per node')
  submit.add_argument('--time', type=time, help="time limit, for example 24:00:00 (default: the partition's)")
  submit.add_argument('--partition', type=partition, help="partition (default: the cluster's)")
  submit.add_argument(
    '--save_seconds', type=number(Count), default=120, help='seconds to save before the limit (default: %(default)s)'
  )
  submit.add_argument(
    '--max_restarts', type=number(CountOrZero), default=100, help='maximum number of requeues (default: %(default)s)'
  )
  submit.add_argument(
    '--setup', type=line, default='', metavar='LINE', help='shell code to run first: source venv/bin/activate'
  )
  for name, example in (('--sbatch_flag', '--account=lab'), ('--srun_flag', '--container-image=…')):
    submit.add_argument(name, action='append', type=flag, default=[], metavar='FLAG', help=f'repeatable: {example}')
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line."""
  return run_launcher(launcher(), argv)


if __name__ == '__main__':
  sys.exit(main())
