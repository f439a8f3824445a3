"""Data and workdir: the vocabulary, XTREME, a token store, dumps; access, lock and newest checkpoint of a run."""

import hashlib
import os
import pathlib

from etils import epath

from rembert.doctor.environment import Environment, Findings, problem, usage_problem, warning, well
from rembert.errors import UsageError
from rembert.files import check_bucket_client, check_folder, is_remote, why_unreachable
from rembert.tracking.console import human_bytes

_ANY_SIZE = 1 << 30
_MOST_TASKS, _MOST_DUMPS = 3, 400
_MOST_BYTES_READ = 2 << 30  # ten seconds


def check_vocabulary(environment: Environment) -> Findings:
  """A SentencePiece model with RemBERT's special ids."""
  from rembert.tokenizer import SPECIAL_PIECES, check_vocabulary, load_vocabulary

  folders = [folder for folder in (environment.workdir, environment.store) if folder]
  own = [pathlib.Path(folder) / 'vocabulary' / 'sentencepiece.model' for folder in folders]
  files = [pathlib.Path(environment.vocabulary)] if environment.vocabulary else [file for file in own if file.exists()]
  for file in files:
    check_vocabulary(str(file), _ANY_SIZE)
    pieces = load_vocabulary(str(file)).get_piece_size()
    ids = ', '.join(f'{piece} {index}' for piece, index in SPECIAL_PIECES.items())
    yield well(f'{file}: {pieces:,} pieces, {ids}')
  return 'none named'


def check_xtreme(environment: Environment) -> Findings:
  """XTREME's files, in its layout."""
  from tasks.xtreme.config import TASKS
  from tasks.xtreme.download import take_inventory
  from tasks.xtreme.files import XtremeFolder

  folder = XtremeFolder(environment.data_dir)
  inventories = [take_inventory(folder, task) for task in TASKS]
  there = [inventory for inventory in inventories if any(file.count is not None for file in inventory.files)]
  broken = [(each.task, file) for each in inventories for file in each.files if file.fault in ('broken', 'labels')]
  fetch = f'python -m tasks.xtreme.download --data_dir={environment.data_dir}'
  for task, file in broken:
    text = f'{task} {file.split}-{file.language}: {file.detail.strip("()")}'
    yield problem(text, f'delete the file, then {fetch} --tasks={task}')
  if not there and not broken:
    yield problem(f'{environment.data_dir} holds no task in XTREME’s layout (xnli/test-de.tsv, …)', fetch)
  if not there:
    return
  names = lambda inventories: ','.join(inventory.task for inventory in inventories)
  if absent := [inventory for inventory in inventories if inventory not in there]:
    yield warning(f'not there: {names(absent)}', f'{fetch} --tasks={names(absent)}')
  partial = [each for each in there if not each.is_complete and not any(file.fault == 'broken' for file in each.files)]
  for inventory in partial[:_MOST_TASKS]:
    yield warning(f'{inventory.task}: {inventory.problems[0]}', f'{fetch} --check')
  if len(partial) > _MOST_TASKS:
    yield warning(f'incomplete as well: {names(partial[_MOST_TASKS:])}', f'{fetch} --check')
  if complete := [inventory for inventory in there if inventory.is_complete]:
    yield well(f'complete: {names(complete)}')


def check_store(environment: Environment) -> Findings:
  """The manifest of a token store, its vocabulary, and its shards: by checksum, of a large store by size alone."""
  from rembert.data.token_store import VOCABULARY, TokenStore, altered_shards

  store = TokenStore(environment.store)
  vocabulary = store.folder / VOCABULARY
  digest = hashlib.sha256(vocabulary.read_bytes()).hexdigest() if vocabulary.exists() else None
  if digest != store.vocabulary_hash:
    yield problem(
      f'{vocabulary} is ' + ('missing' if digest is None else 'not the one that the store was made with'),
      'copy the sentencepiece.model that the command was given, or make the store anew',
    )
  shards = store.shards()
  size = sum(shard.bytes for shard in shards)
  is_read = size <= _MOST_BYTES_READ
  if is_read and (altered := altered_shards(store)):
    names = ', '.join(altered[:_MOST_TASKS]) + (' …' if len(altered) > _MOST_TASKS else '')
    yield problem(f'{len(altered)} shard(s) are not what the manifest says: {names}', 'fetch them again')
    return
  yield well(
    f'{len(store.languages)} languages, {len(shards)} shards of {human_bytes(size)}; rows of {store.sequence_length}; '
    + ('all bytes read' if is_read else f'sizes alone; python -m tasks.token_store verify {environment.store}')
  )


def check_dumps(environment: Environment) -> Findings:
  """Dumps by name, and each up to its first page."""
  from tasks.wikipedia.dumps import find_dumps, read_pages

  found = find_dumps(environment.dumps or '')
  files = [dump for dumps in found.values() for dump in dumps]
  bad = 0
  for file in files[:_MOST_DUMPS]:
    try:
      if next(read_pages(file), None) is None:
        bad += 1
        yield problem(f'{file} holds no page', 'fetch it again: *-pages-articles*.xml.bz2 has pages')
    except UsageError as error:
      bad += 1
      yield usage_problem(error)
  if bad < len(files):
    size = human_bytes(sum(file.stat().length for file in files))
    looked_at = f'of {min(len(files), _MOST_DUMPS):,} the first page was read'
    yield well(f'{len(files)} files of {len(found)} languages, {size}; {looked_at}')


# --- the workdir ------------------------------------------------------------------------------------------------------


def check_workdir(environment: Environment) -> Findings:
  """Access and lock; nothing is written."""
  from rembert.jobs.workdir import holder

  named = environment.workdir or '.'
  workdir = epath.Path(named)
  if is_remote(named):
    check_bucket_client(workdir)
    if reason := why_unreachable(named):
      yield problem(reason, 'mend the network, or name a local folder: --workdir=DIR')
      return None
  else:
    try:
      check_folder(workdir, 'the workdir', fix='choose another: --workdir=DIR')
    except UsageError as error:
      yield usage_problem(error)
      return None
  if (owner := holder(workdir)) is not None:
    yield problem(
      f'another process is at work here: number {owner.get("process", "?")} on {owner.get("host", "?")}',
      'wait for it, or stop it: kill -TERM lets it save first',
    )
  return 'can be written to, and nobody holds it' if workdir.exists() else 'does not exist, and can be made'


def check_checkpoints(environment: Environment) -> Findings:
  """The newest checkpoint, read completely and compared with its checksums; and those that runs quarantined."""
  folder = epath.Path(environment.workdir or '.') / 'checkpoints'
  names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
  steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
  if quarantined := [name for name in names if name.startswith('damaged-')]:
    yield warning(
      f'put aside as damaged: {", ".join(quarantined)}', f'look for failing storage; rm -r {folder}/damaged-*'
    )
  if not steps:
    if quarantined:
      yield problem('no checkpoint is whole', 'begin a new run in another folder: --workdir=DIR')
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
    before = f'a run will go on from {steps[1]}' if len(steps) > 1 else 'there is none before it'
    yield problem(
      f'the newest checkpoint, {newest}, is damaged: {reason}; {before}',
      'check the storage; copy it back from elsewhere' + (', or repeat the command of the run' if steps[1:] else ''),
    )
  else:
    yield well(f'step {steps[0]} is whole, {len(steps)} in all')


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
