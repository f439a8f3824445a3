"""A run on GPUs of a Slurm cluster: a batch script with one process a node, sent to the queue, and back to it at 75."""

import argparse
import dataclasses
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence

from launch.cloud import names
from launch.cloud.options import add_verb, checked_command, commands_of, ended, parser_of, split_command
from rembert.errors import UsageError
from rembert.training.preemption import EXIT_STOPPED

SCRIPTS = pathlib.Path('runs/launch')
EXAMPLES = """
examples
  four nodes of eight GPUs, a day at a time, until the run is done:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --time=24:00:00 --partition=gpu -- \\
        python -m rembert.main --gin_file=gin/pretrain_large.gin --gin_file=gin/hardware/h200x8.gin \\
        --gin.mesh.data=4 --workdir=/shared/large
  the script, and nothing done:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --dry_run -- python -m rembert.main …
  in a container, with whatever else srun and sbatch take:
    python -m launch.slurm submit large --nodes=4 --gpus=8 --srun_flag=--container-image=IMAGE \\
        --sbatch_flag=--account=lab --setup='source /shared/venv/bin/activate' -- python -m rembert.main …

The script is runs/launch/NAME.sbatch. It starts in this folder, and what each node prints goes to runs/launch/logs. The
workdir has to be on a file system that all nodes share. `squeue --me` and `tail` do the rest; to stop, `scancel
--signal=TERM JOB` saves, and the job is back in the queue, from which `scancel JOB` takes it. `scancel JOB` alone gives
it as long as the cluster's KillWait, often 30 s.
"""
_TIME = re.compile(r'(\d+-)?\d+(:\d\d){0,2}')


@dataclasses.dataclass(frozen=True)
class SlurmJob:
  """What goes into the script.

  Attributes:
    name: of the job.
    nodes: how many, with one process each.
    gpus: of each node.
    command: on every node.
    time: limit of the job, as Slurm writes it; None for the partition's.
    partition: None for the default one.
    save_seconds: between the warning and the limit.
    max_restarts: how often it goes back to the queue.
    setup: a line of shell before the program: modules, an environment.
    sbatch_flags: more of them, as they are.
    srun_flags: likewise.
  """

  name: str
  nodes: int
  gpus: int
  command: tuple[str, ...]
  time: str | None = None
  partition: str | None = None
  save_seconds: int = 120
  max_restarts: int = 100
  setup: str = ''
  sbatch_flags: tuple[str, ...] = ()
  srun_flags: tuple[str, ...] = ()

  def __post_init__(self):
    names.checked_name(self.name)
    for field in ('nodes', 'gpus', 'save_seconds'):
      if getattr(self, field) < 1:
        raise UsageError('must be at least 1', where=f'--{field}={getattr(self, field)}')
    if self.time is not None and not _TIME.fullmatch(self.time):
      raise UsageError(
        f'{self.time!r} is no time for Slurm', where='--time', fix='--time=24:00:00 or --time=2-00:00:00'
      )
    for flag in (*self.sbatch_flags, *self.srun_flags):
      # #SBATCH lines are no shell: Slurm has rules of its own for quotes there.
      if not re.fullmatch(r'--[a-z][\w-]*(=[^\s\'"\\#]+)?', flag):
        raise UsageError(
          f'{flag!r} cannot be passed on', where='--sbatch_flag, --srun_flag', fix='--sbatch_flag=--qos=high'
        )
    if self.partition is not None and not re.fullmatch(r'[\w.,-]+', self.partition):
      raise UsageError(f'{self.partition!r} is no partition', where='--partition', fix='sinfo --summarize')
    if '\n' in self.setup:
      raise UsageError('one line', where='--setup', fix='put more of them into a file, and `source` it')


def script(job: SlurmJob) -> str:
  """The batch script. Options are those of the manual pages of sbatch and srun, 22.05 and later."""
  flags = {
    'job-name': job.name,
    'nodes': job.nodes,
    'ntasks-per-node': 1,
    'gpus-per-node': job.gpus,
    'partition': job.partition,
    'time': job.time,
    # To the processes of the steps, not to this script, which waits for them and then decides.
    'signal': f'TERM@{job.save_seconds}',
    'requeue': '',
    'open-mode': 'append',
    'output': f'{SCRIPTS}/logs/%x-%j.txt',
  }
  lines = [f'#SBATCH --{name}={value}'.removesuffix('=') for name, value in flags.items() if value is not None]
  lines += [f'#SBATCH {flag}' for flag in job.sbatch_flags]
  # One process for all GPUs of a node. JAX, in a Slurm step, would give it the first one alone (jax/_src/clusters/
  # cluster.py: one process for each device is what it assumes).
  devices = ','.join(map(str, range(job.gpus)))
  task = [*job.srun_flags, f'--output={SCRIPTS}/logs/%x-%j-node%n.txt', '--open-mode=append']
  return _SCRIPT.format(
    options='\n'.join(lines),
    name=job.name,
    devices=devices,
    setup=job.setup or ': # --setup=… goes here',
    srun=shlex.join(['srun', '--kill-on-bad-exit=0', f'--wait={max(300, job.save_seconds)}', *task]),
    command=shlex.join(job.command),
    max_restarts=job.max_restarts,
    codes=SCRIPTS / 'codes',
    stopped=EXIT_STOPPED,
  )


_SCRIPT = """\
#!/usr/bin/env bash
{options}
#
# Written by launch.slurm. sbatch reads the options above; the processes find each other by what srun sets, and JAX
# knows: SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NODELIST, SLURM_LOCALID.
set -uo pipefail

export JAX_LOCAL_DEVICE_IDS={devices}
export REMBERT_CODES={codes}/$SLURM_JOB_ID
rm -rf "$REMBERT_CODES"
mkdir -p "$REMBERT_CODES"

{setup}

# shellcheck disable=SC2016  # as it was given, not for this shell
command=({command})

# srun tells the largest code only, and 75 is larger than an error: each process leaves its own. The shell around it, on
# each node, hears SIGTERM too, and waits for the program to save.
# shellcheck disable=SC2016  # for that shell
task='trap : TERM; "$@"; code=$?; echo "$code" > "$REMBERT_CODES/$SLURM_PROCID"; exit "$code"'

{srun} bash -c "$task" task "${{command[@]}}"
step=$?

codes=$(cat "$REMBERT_CODES"/* 2> /dev/null | sort -nu | tr '\\n' ' ')
echo "$(date --iso-8601=seconds) {name}: step ended with $step, processes with: $codes"

# The order of launch.local_cluster: wrong usage, then an error, then what can be resumed.
code=$step
for each in 2 1 {stopped}; do
  if [[ " $codes" == *" $each "* ]]; then
    code=$each
    break
  fi
done

restarts=${{SLURM_RESTART_COUNT:-0}}
case $code in
  {stopped} | 134 | 137) # stopped and saved, or killed
    if ((restarts < {max_restarts})); then
      echo "back to the queue, restart $((restarts + 1))"
      scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit "$code"
"""


def main(argv: Sequence[str] | None = None) -> int:
  """The command line."""
  parser = parser_of('launch.slurm', __doc__, EXAMPLES)
  verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
  submit = add_verb(verbs, 'submit', 'write the batch script, and send it to the queue')
  submit.add_argument('--nodes', type=int, required=True)
  submit.add_argument('--gpus', type=int, required=True, help='of each node')
  submit.add_argument('--time', help="limit, as in 24:00:00 (default: the partition's)")
  submit.add_argument('--partition')
  submit.add_argument('--save_seconds', type=int, default=120, help='warning before the limit; default %(default)s')
  submit.add_argument('--max_restarts', type=int, default=100, help='returns to the queue; default %(default)s')
  submit.add_argument(
    '--setup', default='', metavar='LINE', help='of shell, before the program: source venv/bin/activate'
  )
  submit.add_argument('--sbatch_flag', action='append', default=[], metavar='FLAG', help='repeatable: --account=lab')
  submit.add_argument(
    '--srun_flag', action='append', default=[], metavar='FLAG', help='repeatable: --container-image=…'
  )
  own, command = split_command(sys.argv[1:] if argv is None else argv)
  options = parser.parse_args(own)
  command = checked_command(parser, command, is_wanted=True)
  return ended(lambda: _submit(options, command))


def _submit(options: argparse.Namespace, command: list[str]) -> None:
  chosen = ('name', 'nodes', 'gpus', 'time', 'partition', 'save_seconds', 'max_restarts', 'setup')
  job = SlurmJob(
    command=tuple(command),
    sbatch_flags=tuple(options.sbatch_flag),
    srun_flags=tuple(options.srun_flag),
    **{name: getattr(options, name) for name in chosen},
  )
  commands, file = commands_of(options), SCRIPTS / f'{job.name}.sbatch'
  if options.dry_run:
    commands.note(str(file))
    commands.say(script(job).rstrip())
    commands.note('end of the script')
  else:
    (SCRIPTS / 'logs').mkdir(parents=True, exist_ok=True)
    file.write_text(script(job))
  commands.run(['sbatch', str(file)])


if __name__ == '__main__':
  sys.exit(main())
