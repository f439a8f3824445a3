"""Sequences for fine-tuning and evaluation, in memory or in a file that is read by index, and their batches.

A batch is a dict of int32 arrays. `input_ids`, `token_type_ids` and `segment_ids` (1 for text, 0 for padding) are
[B, S], of multiple choice [B, C, S]; `labels` are [B], [B, S] or [B, 2] as the head expects them, −1 where nothing is
to be predicted. The labels of regression are float32 [B], NaN where nothing is to be predicted.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rembert.data.batches import Batch
from rembert.data.mixture import EPOCH_STREAM, interleaved, random_stream, row_proportions
from rembert.data.token_store import open_records, write_records
from rembert.errors import UsageError
from rembert.files import write_whole

_ROUND_TO = 32  # sequence lengths in evaluation are rounded up to this, so that few shapes are compiled


@dataclasses.dataclass(frozen=True)
class Features:
  """One sequence for a model, not yet padded: S ids.

  Attributes:
    input_ids: int32 [S]; of multiple choice [C, S], where shorter choices end with [PAD].
    token_type_ids: int32, of the same shape.
    labels: int32; classification and multiple choice [], tagging [S], questions [2]; regression: float32 [].
    example: all features of the sequence; empty if not requested.
  """

  input_ids: np.ndarray
  token_type_ids: np.ndarray
  labels: np.ndarray
  example: Mapping[str, Any]


def sample_examples(examples: Sequence[Any], most: int | None) -> Sequence[Any]:
  """At most `most` of the examples, in order; the same ones in every run, so that seeds and models are comparable."""
  if most is None or most >= len(examples):
    return examples
  chosen = np.random.default_rng(0).permutation(len(examples))[:most]
  return [examples[index] for index in sorted(chosen.tolist())]


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TrainingRows:
  """Sequences of tasks, sampled at their rates; each task in random order, epoch after epoch without a gap.

  Row r of batch n is a function of (seed, n, r).

  Attributes:
    tasks: all sequences of each task, none longer than `sequence_length`.
    rates: rates of the tasks, not normalised.
    head: see `pad_batch`; `pad` is the id of [PAD].
    batch_size: of the global batch.
    sequence_length: S.
    process: index of this process, and how many there are; each takes its part of every batch.
  """

  tasks: Sequence[Sequence[Features]]
  rates: Sequence[float]
  head: str
  batch_size: int
  sequence_length: int
  pad: int
  seed: int
  process: tuple[int, int] = (0, 1)

  def __post_init__(self):
    if not self.tasks or not all(self.tasks):
      raise UsageError(
        'there are no training examples',
        where='xtreme.data_dir, finetune.mixture, dataset.train',
        fix='check the training file',
      )

  def batches(self, step: int) -> Iterator[Batch]:
    """This process's rows of the batches of steps `step`, `step` + 1, …, without end."""
    orders: dict[int, tuple[int, np.ndarray]] = {}  # of each task, the epoch and its order
    proportions = row_proportions(self.rates)
    index, count = self.process
    own = self.batch_size // count
    while True:
      first = step * self.batch_size + index * own
      tasks, places = interleaved(np.arange(first, first + own), proportions)
      chosen = []
      for task, place in zip(tasks.tolist(), places.tolist(), strict=True):
        rows = self.tasks[task]
        epoch, place = divmod(place, len(rows))
        if orders.get(task, (-1,))[0] != epoch:
          orders[task] = epoch, random_stream(self.seed, EPOCH_STREAM, epoch, task).permutation(len(rows))
        chosen.append(rows[orders[task][1][place]])
      choices = chosen[0].input_ids.shape[:-1]
      yield pad_batch(chosen, self.head, size=own, length=self.sequence_length, pad=self.pad, choices=choices)
      step += 1


def eval_batches(
  rows: Sequence[Features], head: str, *, batch_size: int, longest: int, pad: int, process: tuple[int, int] = (0, 1)
) -> Iterator[tuple[np.ndarray, Batch]]:
  """Batches of sequences of similar length, each once: indices of a global batch, and this process's part of it.

  The last batch is padded with empty sequences, which have no index.

  Args:
    rows: sequences of at most `longest` ids, to which S is rounded up.
    head: see `pad_batch`; `pad` is the id of [PAD].
    batch_size: of the global batch.
    process: index of this process, and how many there are.
  """
  by_length = np.argsort([row.input_ids.shape[-1] for row in rows], kind='stable')
  choices = rows[0].input_ids.shape[:-1]
  index, count = process
  own = batch_size // count
  for start in range(0, len(rows), batch_size):
    chosen = by_length[start : start + batch_size]
    length = min(longest, -(-rows[chosen[-1]].input_ids.shape[-1] // _ROUND_TO) * _ROUND_TO)
    mine = [rows[number] for number in chosen[index * own : (index + 1) * own]]
    yield chosen, pad_batch(mine, head, size=own, length=length, pad=pad, choices=choices)


def pad_batch(
  rows: Sequence[Features], head: str, *, size: int, length: int, pad: int, choices: tuple[int, ...] = ()
) -> Batch:
  """Pads sequences to a batch.

  Args:
    rows: at most `size` sequences; the rest is padded with empty ones, whose labels are −1.
    head: see `rembert.model.heads.TASK_HEADS`; `pad` is the id of [PAD].
    size: B; `length` is S, which no sequence exceeds.
    choices: (C,) for multiple choice.
  """
  shape = (size, *choices, length)
  batch = {name: np.zeros(shape, np.int32) for name in ('token_type_ids', 'segment_ids')}
  batch['input_ids'] = np.full(shape, pad, np.int32)
  is_number = head == 'regression'
  of_head = {'tagging': (length,), 'qa': (2,)}.get(head, ())
  batch['labels'] = np.full((size, *of_head), np.nan if is_number else -1, np.float32 if is_number else np.int32)
  for place, row in enumerate(rows):
    end = row.input_ids.shape[-1]
    batch['input_ids'][place, ..., :end] = row.input_ids
    batch['token_type_ids'][place, ..., :end] = row.token_type_ids
    batch['segment_ids'][place, ..., :end] = row.input_ids != pad if choices else 1
    batch['labels'][(place, slice(end)) if head == 'tagging' else place] = row.labels
  return batch


# --- sequences in a file, so that a million of them need no memory ----------------------------------------------------
#
# FOLDER/rows.array_record    a record per row: [C, S, labels] int32, 0 where there is no such axis; ids, types, labels
# FOLDER/rows.json            written last: origin of the rows, their number, digest and largest id


class IndexedRows(Sequence[Features]):
  """Sequences in a directory of `write_rows`, without their examples.

  Attributes:
    facts: `rows`, `digest` and `largest_id`.
  """

  def __init__(self, folder: epath.Path, head: str):
    self.facts = json.loads((folder / 'rows.json').read_text())
    self._dtype = np.dtype(np.float32 if head == 'regression' else np.int32)
    self._reader = open_records(folder / 'rows.array_record')

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
  arrays = header, np.asarray(row.input_ids, np.int32), np.asarray(row.token_type_ids, np.int32), labels
  return b''.join(array.tobytes() for array in arrays)


def _digested(row: Features) -> bytes:
  return row.input_ids.tobytes() + b'|' + row.labels.tobytes() + b'\n'


def digest_of(rows: Iterable[Features]) -> str:
  """SHA-256 of sequences, which identifies data and vocabulary of a run."""
  digest = hashlib.sha256()
  for row in rows:
    digest.update(_digested(row))
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
  manifest.unlink(missing_ok=True)
  digest, largest = hashlib.sha256(), -1

  def records() -> Iterator[bytes]:
    nonlocal largest
    for count, row in enumerate(rows(), start=1):
      digest.update(_digested(row))
      largest = max(largest, int(row.input_ids.max()))
      on_progress(count)
      yield _record(row)

  count = write_records(folder / 'rows.array_record', records())
  facts = {'rows': count, 'digest': digest.hexdigest(), 'largest_id': largest}
  write_whole(manifest, json.dumps({**facts, 'origin': origin}, indent=1))
