"""The batch script, run with stand-ins for srun and scontrol: signals to its processes, and requeued jobs."""

import json
import pathlib
import subprocess
import sys

import pytest

from launch.slurm import launcher, main, script

HOSTILE = ['--gin.a.b="it\'s"', '$(touch broken)', '; touch broken', 'a  b', '*', '']
# Two tasks, with the variables that a step has; the largest code of all, as srun's manual page has it.
SRUN = """\
echo "$*" >> srun_calls
while [[ $1 == --* ]]; do shift; done
largest=0
for task in 0 1; do
  SLURM_PROCID=$task SLURM_NTASKS=2 "$@" || { code=$?; ((code > largest)) && largest=$code; }
done
exit $largest
"""
TASK = 'import json, os, sys; number = int(os.environ["SLURM_PROCID"]); codes = json.loads(sys.argv[1])\n'
TASK += 'json.dump(sys.argv[2:], open(f"given{number}", "w")); os._exit(codes[number])'


def script_of(command, *flags):
  options = launcher().parse_args(['submit', 'large', *flags])
  options.command = command
  return script(options)


@pytest.fixture
def cluster(tmp_path):
  """Runs the script of a job; returns its exit code, and whether it went back to the queue."""
  programs = tmp_path / 'bin'
  programs.mkdir()
  for name, text in {'srun': SRUN, 'scontrol': 'echo "$*" >> scontrol_calls'}.items():
    (programs / name).write_text(f'#!/usr/bin/env bash\n{text}\n')
    (programs / name).chmod(0o755)

  def run(codes, *flags, restarts=None):
    command = (sys.executable, '-c', TASK, json.dumps(codes), *HOSTILE)
    file = tmp_path / 'job.sbatch'
    file.write_text(script_of(command, '--nodes=2', '--gpus=8', *flags))
    environment = {'PATH': f'{programs}:/usr/bin:/bin', 'SLURM_JOB_ID': '17'}
    environment |= {} if restarts is None else {'SLURM_RESTART_COUNT': str(restarts)}
    (tmp_path / 'scontrol_calls').unlink(missing_ok=True)
    result = subprocess.run(['bash', str(file)], cwd=tmp_path, env=environment, check=False, timeout=60)
    calls = tmp_path / 'scontrol_calls'
    return result.returncode, calls.exists() and calls.read_text() == 'requeue 17\n'

  return run


@pytest.mark.parametrize(
  ('codes', 'code', 'is_requeued'),
  [
    ([0, 0], 0, False),
    ([75, 75], 75, True),
    ([137, 137], 137, True),
    ([2, 2], 2, False),
    ([1, 75], 1, False),  # srun says 75: the others only followed
    ([75, 2], 2, False),
  ],
)
def test_what_can_be_resumed_goes_back_to_the_queue_and_an_error_never(cluster, codes, code, is_requeued):
  assert cluster(codes) == (code, is_requeued)


def test_returns_to_the_queue_have_a_limit(cluster):
  assert cluster([75, 75], '--max_restarts=3', restarts=2) == (75, True)
  assert cluster([75, 75], '--max_restarts=3', restarts=3) == (75, False)


def test_arguments_arrive_as_they_were_given(cluster, tmp_path):
  cluster([0, 0])
  for number in (0, 1):
    assert json.loads((tmp_path / f'given{number}').read_text()) == HOSTILE
  assert not (tmp_path / 'broken').exists()


@pytest.mark.parametrize(
  'arguments',
  [
    ['a b'],
    ['large', '--nodes=0'],
    ['large', '--time=tomorrow'],
    ['large', '--partition=gpu\n#SBATCH --qos=high'],
    ['large', '--sbatch_flag=--comment=$(reboot) "x'],
    ['large', '--srun_flag=rm'],
    ['large', '--setup=true\nfalse'],
  ],
)
def test_what_would_break_the_script_is_refused(arguments, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit) as end:
    sys.exit(main(['submit', '--nodes=1', '--gpus=1', *arguments, '--', 'true']))
  assert end.value.code == 2
  assert not list(tmp_path.iterdir())


def test_the_script_is_written_and_sent(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'sbatch').write_text('#!/bin/sh\necho "$@" > sent\n')
  (tmp_path / 'sbatch').chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  command = ['python', '-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin']
  assert main(['submit', 'large', '--nodes=1', '--gpus=8', '--', *command]) == 0
  assert pathlib.Path('sent').read_text() == 'runs/launch/large.sbatch\n'
  text = pathlib.Path('runs/launch/large.sbatch').read_text()
  assert text.startswith('#!/usr/bin/env bash\n#SBATCH')
  assert '#SBATCH --signal=TERM@120\n' in text
  assert 'export JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7\n' in text
