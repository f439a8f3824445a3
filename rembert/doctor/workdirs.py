"""The workdir: may it be written to, does somebody hold it, and is its newest checkpoint whole?"""

import os
from collections.abc import Iterator

from etils import epath

from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, problem, warning, well
from rembert.doctor.surroundings import existing
from rembert.files import check_bucket_client, is_remote, why_unreachable
from rembert.tracking.console import human_bytes


def check_workdir(examined: Examined) -> Iterator[Finding]:
  """Access and lock. Nothing is written: what is only asked for must not be changed."""
  from rembert.jobs.workdir_lock import holder

  named = examined.workdir or '.'
  workdir = epath.Path(named)
  if is_remote(named):
    check_bucket_client(workdir)
    if reason := why_unreachable(named):
      yield problem(reason, 'mend the network, or name a local folder: --workdir=DIR')
      return
  else:
    folder = existing(named)
    if not folder.is_dir():
      yield problem(f'{folder} is a file', 'choose another: --workdir=DIR')
      return
    if not os.access(folder, os.W_OK | os.X_OK):
      yield problem(f'{folder} cannot be written to', f'choose another: --workdir=DIR, or chmod u+wx {folder}')
      return
  owner = holder(workdir)
  if owner is not None:
    yield problem(
      f'another process is at work here: number {owner.get("process", "?")} on {owner.get("host", "?")}',
      'wait for it, or stop it: kill -TERM lets it save first',
    )
  else:
    yield well('can be written to, and nobody holds it' if workdir.exists() else 'does not exist, and can be made')


def check_checkpoints(examined: Examined) -> Iterator[Finding]:
  """The newest checkpoint, read whole and compared with its checksums; and what runs have put aside."""
  folder = epath.Path(examined.workdir or '.') / 'checkpoints'
  names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
  steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
  aside = [name for name in names if name.startswith('damaged-')]
  if aside:
    yield warning(f'put aside as damaged: {", ".join(aside)}', f'look for failing storage; rm -r {folder}/damaged-*')
  if not steps:
    if aside:
      yield problem('no checkpoint is whole', 'begin a new run in another folder: --workdir=DIR')
    else:
      yield well('none yet')
    return
  newest = folder / str(steps[0])
  available = examined.available_bytes()
  size = sum((parent / name).stat().length for parent, _, names in (newest / 'state').walk() for name in names)
  if available is not None and 3 * size > available:  # it is read into memory, and was compressed
    yield warning(
      f'step {steps[0]} takes {human_bytes(size)}, too much to be read whole here',
      f'on a machine with more memory: python -m rembert.doctor --workdir={examined.workdir} --only=checkpoints',
    )
  elif reason := _damage(newest):
    before = f'a run will go on from {steps[1]}' if len(steps) > 1 else 'there is none before it'
    yield problem(
      f'the newest checkpoint, {newest}, is damaged: {reason}; {before}',
      'check the storage; copy it back from elsewhere' + (', or repeat the command of the run' if steps[1:] else ''),
    )
  else:
    yield well(f'step {steps[0]} is whole, {len(steps)} in all')


def _damage(folder: epath.Path) -> str:
  """What is wrong with a checkpoint, or ''."""
  # This process only reads: an accelerator belongs to those who train.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.checkpoint.integrity import describe, in_one_line
  from rembert.checkpoint.load import altered_arrays

  try:
    describe(folder)
    altered = altered_arrays(folder)
  except Exception as error:  # Orbax and TensorStore raise types of their own
    return in_one_line(error)
  return f'{len(altered)} array(s) are not as they were saved, {altered[0]} for one' if altered else ''
