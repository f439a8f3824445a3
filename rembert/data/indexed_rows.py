"""Sequences of a fine-tuning task in a file that is read by index, so that a million of them need no memory.

FOLDER/rows.array_record      a record per row: [C, S, labels] int32, 0 where there is no such axis; ids, types, labels
FOLDER/rows.json              written last: origin of the rows, their number, digest and largest id
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.data.finetune_batches import Features
from rembert.files import write_whole

_WRITER_OPTIONS = 'group_size:1'  # rows are read in random order
_READER_OPTIONS = 'readahead_buffer_size:0'


class IndexedRows(Sequence[Features]):
  """Sequences written by `write_rows`, without their examples.

  Attributes:
    facts: `rows`, `digest` and `largest_id`.
  """

  def __init__(self, folder: epath.PathLike, facts: Mapping[str, Any], label_dtype: np.dtype):
    from array_record.python import array_record_module

    self.facts, self._dtype = facts, label_dtype
    self._reader = array_record_module.ArrayRecordReader(str(epath.Path(folder) / 'rows.array_record'), _READER_OPTIONS)

  def __len__(self) -> int:
    return self.facts['rows']

  def __getitem__(self, index):
    record = np.frombuffer(self._reader.read(int(index), int(index) + 1)[0], np.int32)
    choices, length, labels = record[:3]
    shape = (choices, length) if choices else (length,)
    ids, types, of_row = np.split(record[3:], [size := int(np.prod(shape)), 2 * size])
    of_row = of_row.view(self._dtype)
    return Features(ids.reshape(shape), types.reshape(shape), of_row if labels else of_row[0], {})


def _record(row: Features) -> bytes:
  labels = np.asarray(row.labels)
  choices = row.input_ids.shape[0] if row.input_ids.ndim == 2 else 0
  header = np.array([choices, row.input_ids.shape[-1], labels.size if labels.ndim else 0], np.int32)
  types = np.asarray(row.token_type_ids, np.int32)
  return header.tobytes() + np.asarray(row.input_ids, np.int32).tobytes() + types.tobytes() + labels.tobytes()


def digest_of(rows: Iterable[Features]) -> Any:
  """SHA-256 of sequences, which identifies data and vocabulary of a run."""
  digest = hashlib.sha256()
  for row in rows:
    digest.update(row.input_ids.tobytes() + b'|' + row.labels.tobytes() + b'\n')
  return digest.hexdigest()


def write_rows(
  folder: epath.Path,
  rows: Callable[[], Iterable[Features]],
  origin: Mapping[str, Any],
  on_progress: Callable[[int], None] = lambda rows: None,
) -> None:
  """Writes sequences, unless they exist and have the same `origin`, JSON that describes how they are made."""
  manifest = folder / 'rows.json'
  if manifest.exists() and json.loads(manifest.read_text())['origin'] == json.loads(json.dumps(origin)):
    return
  from array_record.python import array_record_module

  manifest.unlink(missing_ok=True)
  folder.mkdir(parents=True, exist_ok=True)
  count, largest = 0, -1
  with tempfile.TemporaryDirectory(dir=None if '://' in os.fspath(folder) else folder) as scratch:
    file = os.path.join(scratch, 'rows')  # ArrayRecord writes to local disks only
    writer = array_record_module.ArrayRecordWriter(file, _WRITER_OPTIONS)

    def written() -> Iterable[Features]:
      nonlocal count, largest
      for row in rows():
        writer.write(_record(row))
        count, largest = count + 1, max(largest, int(row.input_ids.max()))
        on_progress(count)
        yield row

    digest = digest_of(written())
    writer.close()
    epath.Path(file).copy(folder / 'rows.array_record', overwrite=True)
  facts = {'rows': count, 'digest': digest, 'largest_id': largest}
  write_whole(manifest, json.dumps({**facts, 'origin': origin}, indent=1))


def open_rows(folder: epath.Path, head: str) -> IndexedRows:
  """Opens the sequences in a directory of `write_rows`."""
  dtype = np.dtype(np.float32 if head == 'regression' else np.int32)
  return IndexedRows(folder, json.loads((folder / 'rows.json').read_text()), dtype)
