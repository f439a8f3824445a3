"""Checks of a workdir: write access, lock and checkpoints."""

import os

from etils import epath

from rembert.doctor.environment import Environment, Findings, problem, usage_problem, warning
from rembert.errors import UsageError
from rembert.files import check_bucket_client, check_folder, is_remote, why_unreachable
from rembert.tracking.console import human_bytes


def check_workdir(environment: Environment) -> Findings:
  """Checks write access and the lock without modifying the workdir."""
  from rembert.jobs.workdir import holder

  named = environment.workdir or '.'
  workdir = epath.Path(named)
  if is_remote(named):
    check_bucket_client(workdir)
    if reason := why_unreachable(named):
      yield problem(reason, 'check the network, or use a local directory: --workdir=DIR')
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
  return 'writable and not locked' if workdir.exists() else 'does not exist, but can be created'


def check_checkpoints(environment: Environment) -> Findings:
  """Reads the newest checkpoint completely and verifies its checksums; reports quarantined ones."""
  folder = epath.Path(environment.workdir or '.') / 'checkpoints'
  names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
  steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
  if quarantined := [name for name in names if name.startswith('damaged-')]:
    yield warning(
      f'quarantined checkpoints: {", ".join(quarantined)}', f'check the storage, then rm -r {folder}/damaged-*'
    )
  if not steps:
    if quarantined:
      yield problem('there is no valid checkpoint', 'start a new run in another directory: --workdir=DIR')
    return 'none yet'
  newest = folder / str(steps[0])
  available = environment.available_bytes()
  size = sum((parent / name).stat().length for parent, _, names in (newest / 'state').walk() for name in names)
  if available is not None and 3 * size > available:  # it is read into memory and uncompressed
    yield warning(
      f'step {steps[0]} takes {human_bytes(size)}, too large to read on this machine',
      f'on a machine with more memory: python -m rembert.doctor --workdir={environment.workdir} --only=checkpoints',
    )
  elif reason := _damage(newest):
    before = f'a run will resume from {steps[1]}' if len(steps) > 1 else 'there is no earlier one'
    yield problem(
      f'the newest checkpoint, {newest}, is corrupt: {reason}; {before}',
      'check the storage; restore a copy' + (', or run the same command again' if steps[1:] else ''),
    )
  else:
    return f'step {steps[0]} is valid, {len(steps)} in total'
  return None


def _damage(folder: epath.Path) -> str:
  """Why a checkpoint is corrupt, or ''."""
  # This process only reads, and must not claim the accelerator.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.checkpoint.integrity import describe, format_altered, in_one_line
  from rembert.checkpoint.load import altered_arrays

  try:
    describe(folder)
    return format_altered(altered_arrays(folder))
  except Exception as error:  # Orbax and TensorStore have their own exception types
    return in_one_line(error)
