"""Command lines whose dry run is kept as text in tests/golden/launch.

PYTHONPATH=. .venv/bin/python tests/support/launcher_commands.py      # writes them again: look at the difference
"""

import contextlib
import importlib
import io
import pathlib
import shlex

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'launch'
_PLACE = '--zone=us-west4-a --project=my-project'
_OWNED = f'{_PLACE} --owner=anna'
_RUN = '-- python -m rembert.main --gin_file=gin/pretrain_large.gin --workdir=gs://my-bucket/large'
# An argument that a shell would take apart, or run, if it were not quoted exactly once.
_HOSTILE = shlex.quote('--gin.data.dumps="a b\'; $(reboot) `reboot` *"')
CASES = {
  'tpu_vm_create': f'launch.tpu_vm create large --type=v5litepod-64 {_OWNED}',
  'tpu_vm_create_spot': f'launch.tpu_vm create large --type=v4-128 --spot --gcloud_flag=--network=mine {_OWNED}',
  'tpu_vm_setup': f'launch.tpu_vm setup large {_PLACE}',
  'tpu_vm_run': f'launch.tpu_vm run large {_PLACE} {_RUN} {_HOSTILE}',
  'tpu_vm_status': f'launch.tpu_vm status large {_OWNED}',
  'tpu_vm_logs': f'launch.tpu_vm logs large --follow {_PLACE}',
  'tpu_vm_stop': f'launch.tpu_vm stop large {_PLACE}',
  'tpu_vm_delete': f'launch.tpu_vm delete large {_OWNED}',
  'queued_resource_watch': f'launch.queued_resource watch large --type=v5litepod-64 --spot {_OWNED} {_RUN}',
  'queued_resource_delete': f'launch.queued_resource delete large {_OWNED}',
  'slurm_submit': 'launch.slurm submit large --nodes=4 --gpus=8 --time=24:00:00 --partition=gpu '
  '--sbatch_flag=--account=lab '
  f'--srun_flag=--container-image=IMAGE -- python -m rembert.main --gin_file=gin/pretrain_large.gin '
  f'--workdir=/shared/large {_HOSTILE}',
}


def dry_run(line: str) -> str:
  """What a command line with --dry_run prints."""
  module, *arguments = shlex.split(line)
  cut = arguments.index('--') if '--' in arguments else len(arguments)
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    code = importlib.import_module(module).main([*arguments[:cut], '--dry_run', *arguments[cut:]])
  if code:
    raise RuntimeError(f'{line}: exit code {code}')
  return output.getvalue()


if __name__ == '__main__':
  GOLDEN.mkdir(parents=True, exist_ok=True)
  for name, line in CASES.items():
    (GOLDEN / f'{name}.txt').write_text(dry_run(line))
