"""A source of batches on made-up documents of three languages, held in memory."""

import numpy as np

from rembert.data.stream_source import SourcePlace, StreamedBatches
from rembert.tokenizer import SpecialIds

S, B, WINDOW = 16, 4, 3
VOCAB = 5000
SPECIAL = SpecialIds()


def documents_of(seed, count):
  random = np.random.default_rng(seed)
  return [random.integers(SPECIAL.first_piece, VOCAB, random.integers(1, 40)).astype(np.int32) for _ in range(count)]


# 'de' has about 13 rows to an epoch, 'sw' fewer than its window holds: both wrap around within a few steps.
CORPUS = {
  ('de', 'train'): documents_of(0, 10),
  ('en', 'train'): documents_of(1, 25),
  ('sw', 'train'): [np.arange(400, 420, dtype=np.int32)],
  ('de', 'validation'): documents_of(3, 3),
  ('en', 'validation'): documents_of(4, 9),
  ('sw', 'validation'): [],
}
RATES = {'de': 0.4, 'en': 0.35, 'sw': 0.25}


# A source's example may give no document, one, or several.
EXAMPLES = {
  key: np.random.default_rng(9).integers(0, 4, 20 * len(documents)).tolist() for key, documents in CORPUS.items()
}


def open_documents(language, split, source):
  documents, counts = CORPUS[language, split], EXAMPLES[language, split]
  first = 0
  for example, count in enumerate(counts):
    if example == source.example:
      assert first == source.document
    for document in documents[first : first + count] if example >= source.example else ():
      yield document, SourcePlace(example, first)
    first += count


SOURCE = StreamedBatches(
  rates=RATES,
  open_documents=open_documents,
  batch_size=B,
  sequence_length=S,
  vocab_size=VOCAB,
  seed=7,
  shuffle_rows=WINDOW,
  evaluation_rows=5,
)
