"""Data: the vocabulary, XTREME, a token store, dumps."""

import hashlib
import pathlib
from collections.abc import Iterator

from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, of_usage_error, problem, warning, well
from rembert.errors import UsageError
from rembert.tracking.console import human_bytes

_ANY_SIZE = 1 << 30
_NAMED = 3
_MOST_DUMPS = 400


def check_vocabulary(examined: Examined) -> Iterator[Finding]:
  """A SentencePiece model with RemBERT's special ids."""
  from tasks.vocabulary import SPECIAL_PIECES, check_vocabulary, load_vocabulary

  files = [pathlib.Path(examined.vocabulary)] if examined.vocabulary else _own_vocabularies(examined)
  if not files:
    yield well('none named')
  for file in files:
    check_vocabulary(str(file), _ANY_SIZE)
    pieces = load_vocabulary(str(file)).get_piece_size()
    ids = ', '.join(f'{piece} {index}' for piece, index in SPECIAL_PIECES.items())
    yield well(f'{file}: {pieces:,} pieces, {ids}')


def _own_vocabularies(examined: Examined) -> list[pathlib.Path]:
  folders = [folder for folder in (examined.workdir, examined.store) if folder]
  files = [pathlib.Path(folder) / 'vocabulary' / 'sentencepiece.model' for folder in folders]
  return [file for file in files if file.exists()]


def check_xtreme(examined: Examined) -> Iterator[Finding]:
  """XTREME's files, in its layout."""
  from tasks.xtreme.config import TASKS
  from tasks.xtreme.layout import XtremeFolder
  from tasks.xtreme.verify import take_inventory

  folder = XtremeFolder(examined.data_dir)
  inventories = [take_inventory(folder, task) for task in TASKS]
  there = [inventory for inventory in inventories if any(file.count is not None for file in inventory.files)]
  fetch = f'python -m tasks.xtreme.download --data_dir={examined.data_dir}'
  broken = False
  for inventory in inventories:
    for file in inventory.files:
      if file.fault in ('broken', 'labels'):
        broken = True
        text = f'{inventory.task} {file.split}-{file.language}: {file.detail.strip("()")}'
        yield problem(text, f'delete the file, then {fetch} --tasks={inventory.task}')
  if not there:
    if not broken:
      yield problem(f'{examined.data_dir} holds no task in XTREME’s layout (xnli/test-de.tsv, …)', fetch)
    return
  names = lambda inventories: ','.join(inventory.task for inventory in inventories)
  absent = [inventory for inventory in inventories if inventory not in there]
  if absent:
    yield warning(f'not there: {names(absent)}', f'{fetch} --tasks={names(absent)}')
  partial = [each for each in there if not each.is_complete and not any(file.fault == 'broken' for file in each.files)]
  for inventory in partial[:_NAMED]:
    yield warning(f'{inventory.task}: {inventory.problems[0]}', f'{fetch} --check')
  if len(partial) > _NAMED:
    yield warning(f'incomplete as well: {names(partial[_NAMED:])}', f'{fetch} --check')
  if complete := [inventory for inventory in there if inventory.is_complete]:
    yield well(f'complete: {names(complete)}')


def check_store(examined: Examined) -> Iterator[Finding]:
  """The manifest of a token store, its shards by size, its vocabulary by checksum."""
  from rembert.data.token_store import VOCABULARY, TokenStore

  store = TokenStore(examined.store)
  vocabulary = store.folder / VOCABULARY
  digest = hashlib.sha256(vocabulary.read_bytes()).hexdigest() if vocabulary.exists() else None
  if digest != store.vocabulary_hash:
    yield problem(
      f'{vocabulary} is ' + ('missing' if digest is None else 'not the one that the store was made with'),
      'copy the sentencepiece.model that the command was given, or make the store anew',
    )
  shards = store.shards()
  yield well(
    f'{len(store.languages)} languages, {len(shards)} shards of {human_bytes(sum(shard.bytes for shard in shards))}; '
    f'rows of {store.sequence_length}'
  )


def check_dumps(examined: Examined) -> Iterator[Finding]:
  """Dumps by name, and the beginning of each."""
  from tasks.wikipedia.dumps import find_dumps, read_namespaces

  found = find_dumps(examined.dumps or '')
  files = [dump.path for dumps in found.values() for dump in dumps]
  bad = 0
  for file in files[:_MOST_DUMPS]:
    try:
      read_namespaces(file)
    except UsageError as error:
      bad += 1
      yield of_usage_error(error)
  if bad < len(files):
    size = human_bytes(sum(file.stat().length for file in files))
    yield well(f'{len(files)} files of {len(found)} languages, {size}')
