"""Masked batches from streams of documents, resumable at any step.

The order is determined by numbers: the language of row r of step n by (seed, n, r), as are its masks; its text is the
next row of that language. So the state consists of each language's position in its documents, saved with each
checkpoint, and does not depend on the number of hosts.
"""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rembert.data.batches import Batch, BatchSource
from rembert.data.mixture import EVALUATION_STREAM, MASK_STREAM, SHUFFLE_STREAM, languages_of_rows, random_stream
from rembert.data.packing import PackingConfig, Place, pack
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds


class SourcePlace(NamedTuple):
  """Where a language's source can be reopened, without reading it from the start."""

  example: int = 0  # index of the source's example to begin at
  document: int = 0  # index of the first document of this example or a later one


# (language, split, where to open the source) → ids of the documents from `place.document` to the end of the
# split, each with the latest place from which it can be read.
OpenDocuments = Callable[[str, str, SourcePlace], Iterator[tuple[np.ndarray, SourcePlace]]]


class _Position(NamedTuple):
  """Where a row begins in the documents of a language, and where to open the source for it."""

  epoch: int = 0
  document: int = 0
  offset: int = 0
  source_example: int = 0
  source_document: int = 0


START = {**_Position()._asdict(), 'window': 0, 'row': 0}


def language_rows(
  language: str,
  open_documents: OpenDocuments,
  *,
  sequence_length: int,
  special: SpecialIds,
  seed: int,
  window: int,
  packing: PackingConfig = PackingConfig(),
  state: Mapping[str, int] = START,
) -> Generator[tuple[np.ndarray, dict[str, int]], None, None]:
  """Endless packed sequences of one language, shuffled in windows.

  A window is filled from the documents in order, then shuffled by (seed, language, window). To resume, the window
  is filled again from its start, which is cheap and exact; the state is seven integers.

  Yields:
    Ids of a sequence, int32 [S], and the state after it: with it as `state`, the sequences that follow are yielded.
  """
  begin = _Position(*(state[name] for name in _Position._fields))
  number, first = state['window'], state['row']
  packed = _rows_from(begin, language, open_documents, sequence_length, special, packing)
  while True:
    rows, ends = zip(*itertools.islice(packed, window), strict=True)
    order = random_stream(seed, SHUFFLE_STREAM, zlib.crc32(language.encode()), number).permutation(window)
    for row in range(first, window):
      yield rows[order[row]], {**begin._asdict(), 'window': number, 'row': row + 1}
    begin, number, first = ends[-1], number + 1, 0


def _rows_from(
  position: _Position,
  language: str,
  open_documents: OpenDocuments,
  sequence_length: int,
  special: SpecialIds,
  packing: PackingConfig,
) -> Generator[tuple[np.ndarray, _Position], None, None]:
  """Sequences in the order of the documents, epoch after epoch, each with the position of the next."""
  epoch, place = position.epoch, Place(position.document, position.offset)
  source = SourcePlace(position.source_example, position.source_document)

  def documents() -> Iterator[np.ndarray]:
    nonlocal source  # where the document that was read last can be read again
    for document, again in open_documents(language, 'train', source):
      source = again
      yield document

  while True:
    row, is_whole_epoch = None, place == Place()
    rest = itertools.islice(documents(), place.document - source.document, None)
    for row, after in pack(rest, sequence_length, special, start=place, config=packing):
      # The next row begins in the document that was read last, or in the one after it.
      yield row, _Position(epoch, after.document, after.offset, *source)
    if is_whole_epoch and row is None:
      raise UsageError(
        f'no text to train on in {language!r}',
        where='data.languages, data.mixture',
        fix='exclude it, or lower data.held_out and data.min_characters',
      )
    epoch, place, source = epoch + 1, Place(), SourcePlace()


def begin_window(state: Mapping[str, int]) -> dict[str, int]:
  """The state of `language_rows` that begin a window where the current one begins: for rows of another length."""
  return {**state, 'window': state['window'] + 1, 'row': 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedBatches(BatchSource):
  """A `BatchSource` on streamed documents.

  Each of several processes reads all rows and keeps its own: exact for any number of hosts, and fast enough for
  experiments; use a token store for everything else. A window of a language has `shuffle_rows` rows.
  """

  open_documents: OpenDocuments
  sequence_length: int
  special: SpecialIds = SpecialIds()
  packing: PackingConfig = PackingConfig()
  shuffle_rows: int = 64

  def batches(self, step: int = 0, state: dict | None = None) -> Generator[tuple[Batch, dict], None, None]:
    """See `BatchSource`."""
    names, states = self.languages, {language: START | (state or {}).get(language, {}) for language in self.rates}
    streams = [
      language_rows(
        language,
        self.open_documents,
        sequence_length=self.sequence_length,
        special=self.special,
        seed=self.seed,
        window=self.shuffle_rows,
        packing=self.packing,
        state=states[language],
      )
      for language in names
    ]
    while True:
      languages = languages_of_rows(self.seed, step, self.batch_size, self.sampling(step).rates)
      rows = []
      for language in languages:
        row, states[names[language]] = next(streams[language])
        rows.append(row)
      yield self._masked_own(rows, languages, stream=MASK_STREAM, step=step), dict(states)
      step += 1

  def evaluation_batches(self) -> Iterator[Batch]:
    """See `BatchSource`."""
    rows, languages = [], []
    for index, language in enumerate(self.rates):
      documents = (document for document, _ in self.open_documents(language, 'validation', SourcePlace()))
      packed = pack(documents, self.sequence_length, self.special, config=self.packing)
      first = [row for row, _ in itertools.islice(packed, self.evaluation_rows)]
      rows, languages = rows + first, languages + [index] * len(first)
    missing = -len(rows) % self.batch_size
    rows += [np.full(self.sequence_length, self.special.pad, np.int32)] * missing
    languages = np.array(languages + [0] * missing, np.int32)
    for step, start in enumerate(range(0, len(rows), self.batch_size)):
      some = slice(start, start + self.batch_size)
      yield self._masked_own(rows[some], languages[some], stream=EVALUATION_STREAM, step=step)

  def _masked_own(self, rows: list[np.ndarray], languages: np.ndarray, *, stream: int, step: int) -> Batch:
    mine = self.own_rows
    return self.masked(np.stack(rows[mine]), languages[mine], stream=stream, step=step)
