"""Masked batches from streams of documents, resumable at any step.

The order is determined by numbers: the language of row r of step n by (seed, n, r), as are its masks; its text is the
next row of that language. So the state consists of each language's position in its documents, saved with each
checkpoint, and does not depend on the number of hosts.
"""

import collections
import dataclasses
import itertools
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rembert.data.masking import Batch, BatchSource
from rembert.data.mixture import EVALUATION_STREAM, MASK_STREAM, SHUFFLE_STREAM, languages_of_rows, random_stream
from rembert.data.packing import PackingConfig, Place, pack
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds


class SourcePlace(NamedTuple):
  """Where a language's source can be reopened, without reading it from the start.

  Attributes:
    example: index of the source's example to begin at.
    document: index of the first document of this example or a later one.
  """

  example: int = 0
  document: int = 0


# (language, split, where to open the source) → ids of the documents from `place.document` to the end of the
# split, each with the latest place from which it can be read.
OpenDocuments = Callable[[str, str, SourcePlace], Iterator[tuple[np.ndarray, SourcePlace]]]


class _Start(NamedTuple):
  """Where a row begins: its epoch and document, and where to open the source for it."""

  epoch: int
  place: Place
  source: SourcePlace


class LanguageRows:
  """Endless packed sequences of one language, shuffled in windows.

  A window is filled from the documents in order, then shuffled by (seed, language, window). To resume, the window
  is filled again from its start, which is cheap and exact; the state is seven integers.
  """

  def __init__(
    self,
    language: str,
    open_documents: OpenDocuments,
    *,
    sequence_length: int,
    special: SpecialIds,
    seed: int,
    window: int,
    packing: PackingConfig = PackingConfig(),
    state: Mapping[str, int] | None = None,
  ):
    self._language, self._open = language, open_documents
    self._sequence_length, self._special, self._seed, self._window_size = sequence_length, special, seed, window
    self._packing = packing
    at = collections.defaultdict(int, state or {})
    place, source = Place(at['document'], at['offset']), SourcePlace(at['source_example'], at['source_document'])
    # Where the current window begins, its number, and the row in it; where the next begins.
    self._start, self._window_number, self._row = _Start(at['epoch'], place, source), at['window'], at['row']
    self._next_start, self._read_from = self._start, source
    self._source: Generator[tuple[np.ndarray, _Start], None, None] | None = None
    self._window: list[np.ndarray] = []

  def state(self) -> dict[str, int]:
    """The position of the next row; pass it to a new `LanguageRows` to continue from here."""
    epoch, place, source = self._start
    return {
      'epoch': epoch,
      'document': place.document,
      'offset': place.offset,
      'window': self._window_number,
      'row': self._row,
      'source_example': source.example,
      'source_document': source.document,
    }

  def next(self) -> np.ndarray:
    """Ids of the next sequence, int32 [S]."""
    if not self._window:
      self._fill_window()
    if self._row == self._window_size:
      self._start, self._window_number, self._row = self._next_start, self._window_number + 1, 0
      self._fill_window()
    self._row += 1
    return self._window[self._row - 1]

  def close(self) -> None:
    """Closes the documents."""
    if self._source is not None:
      self._source.close()

  def _fill_window(self) -> None:
    if self._source is None:
      self._source = self._rows_from(self._next_start)
    rows = []
    while len(rows) < self._window_size:
      row, self._next_start = next(self._source)
      rows.append(row)
    language = zlib.crc32(self._language.encode())
    shuffle = random_stream(self._seed, SHUFFLE_STREAM, language, self._window_number).permutation(self._window_size)
    self._window = [rows[i] for i in shuffle]

  def _rows_from(self, start: _Start) -> Generator[tuple[np.ndarray, _Start], None, None]:
    epoch, place, source = start
    is_whole_epoch = place == Place()
    while True:
      found = False
      documents = itertools.islice(self._documents(source), place.document - source.document, None)
      for row, next_place in pack(documents, self._sequence_length, self._special, start=place, config=self._packing):
        found = True
        # The next row begins in the document that was read last, or in the one after it.
        yield row, _Start(epoch, next_place, self._read_from)
      if is_whole_epoch and not found:
        raise UsageError(
          f'no text to train on in {self._language!r}',
          where='data.languages, data.mixture',
          fix='exclude it, or lower data.held_out and data.min_characters',
        )
      epoch, place, source, is_whole_epoch = epoch + 1, Place(), SourcePlace(), True

  def _documents(self, source: SourcePlace) -> Iterator[np.ndarray]:
    """Documents from a place on; `_read_from` is where the last one can be read again."""
    self._read_from = source
    for document, place in self._open(self._language, 'train', source):
      self._read_from = place
      yield document


def begin_window(state: Mapping[str, int]) -> dict[str, int]:
  """The state of a `LanguageRows` that begins a window where the current one begins: for rows of another length."""
  return {**state, 'window': state['window'] + 1, 'row': 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedBatches(BatchSource):
  """A `BatchSource` on streamed documents.

  Each of several processes reads all rows and keeps its own: exact for any number of hosts, and fast enough for
  experiments; use a token store for everything else.

  Attributes:
    open_documents: see `OpenDocuments`.
    sequence_length: S.
    special: ids of special tokens.
    packing: packing of documents.
    shuffle_rows: rows per shuffled window and language.
  """

  open_documents: OpenDocuments
  sequence_length: int
  special: SpecialIds = SpecialIds()
  packing: PackingConfig = PackingConfig()
  shuffle_rows: int = 64

  def batches(self, step: int = 0, state: dict | None = None) -> Generator[tuple[Batch, dict], None, None]:
    """See `BatchSource`."""
    streams = [
      LanguageRows(
        language,
        self.open_documents,
        sequence_length=self.sequence_length,
        special=self.special,
        seed=self.seed,
        window=self.shuffle_rows,
        packing=self.packing,
        state=(state or {}).get(language),
      )
      for language in self.rates
    ]
    try:
      while True:
        languages = languages_of_rows(self.seed, step, self.batch_size, self.sampling(step).rates)
        rows = [streams[language].next() for language in languages]
        yield (
          self._masked_own(rows, languages, stream=MASK_STREAM, step=step),
          {language: stream.state() for language, stream in zip(self.rates, streams, strict=True)},
        )
        step += 1
    finally:
      for stream in streams:
        stream.close()

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
