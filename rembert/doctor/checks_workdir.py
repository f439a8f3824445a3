"""Access, lock and newest checkpoint of a workdir."""

import os

from etils import epath

from rembert.doctor.environment import Environment, Findings, problem, usage_problem, warning
from rembert.errors import UsageError
from rembert.files import check_bucket_client, check_folder, is_remote, why_unreachable
from rembert.tracking.console import human_bytes


def check_workdir(environment: Environment) -> Findings:
  """Access and lock; nothing is written."""
  from rembert.jobs.workdir import holder

  named = environment.workdir or '.'
  workdir = epath.Path(named)
  if is_remote(named):
    check_bucket_client(workdir)
    if reason := why_unreachable(named):
      yield problem(reason, 'repair the network, or name a local folder: --workdir=DIR')
      return None
  else:
    try:
      check_folder(workdir, 'the workdir', fix='choose another: --workdir=DIR')
    except UsageError as error:
      yield usage_problem(error)
      return None
  if (owner := holder(workdir)) is not None:
    yield problem(
      f'the workdir is locked by process {owner.get("process", "?")} on {owner.get("host", "?")}',
      'wait for it, or stop it: kill -TERM lets it save first',
    )
  return 'can be written to, and no process holds it' if workdir.exists() else 'does not exist, and can be made'


def check_checkpoints(environment: Environment) -> Findings:
  """The newest checkpoint, read completely and compared with its checksums; and those that runs quarantined."""
  folder = epath.Path(environment.workdir or '.') / 'checkpoints'
  names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
  steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
  if quarantined := [name for name in names if name.startswith('damaged-')]:
    yield warning(
      f'quarantined as damaged: {", ".join(quarantined)}', f'look for failing storage; rm -r {folder}/damaged-*'
    )
  if not steps:
    if quarantined:
      yield problem('there is no valid checkpoint', 'begin a new run in another folder: --workdir=DIR')
    return 'none yet'
  newest = folder / str(steps[0])
  available = environment.available_bytes()
  size = sum((parent / name).stat().length for parent, _, names in (newest / 'state').walk() for name in names)
  if available is not None and 3 * size > available:  # it is read into memory, and was compressed
    yield warning(
      f'step {steps[0]} takes {human_bytes(size)}, too much to be read whole here',
      f'on a machine with more memory: python -m rembert.doctor --workdir={environment.workdir} --only=checkpoints',
    )
  elif reason := _damage(newest):
    before = f'a run will resume from {steps[1]}' if len(steps) > 1 else 'there is none before it'
    yield problem(
      f'the newest checkpoint, {newest}, is damaged: {reason}; {before}',
      'check the storage; copy it back from elsewhere' + (', or repeat the command of the run' if steps[1:] else ''),
    )
  else:
    return f'step {steps[0]} is valid, {len(steps)} in total'
  return None


def _damage(folder: epath.Path) -> str:
  """Why a checkpoint is corrupt, or ''."""
  # This process only reads: the accelerator is for training.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.checkpoint.integrity import describe, format_altered, in_one_line
  from rembert.checkpoint.load import altered_arrays

  try:
    describe(folder)
    return format_altered(altered_arrays(folder))
  except Exception as error:  # Orbax and TensorStore raise types of their own
    return in_one_line(error)
