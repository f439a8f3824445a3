"""Vocabularies of 2,000 pieces on the sample corpus, which differ in how they normalise text."""

import functools
import io
import pathlib
import tempfile

import sentencepiece
from small_corpora import sample_corpus
from xtreme_reference import Pieces

from tasks.vocabulary import sample_text, train_vocabulary

NORMALIZATIONS = ('rembert', 'identity', 'nfkc', 'nmt_nfkc')
_SIZE = 2000
_COVERAGE = 0.98  # rare characters fall back to bytes
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def vocabulary_file(normalization: str) -> pathlib.Path:
  """A `sentencepiece.model` of one of `NORMALIZATIONS`.

  `rembert` is this project's own, with its special ids; the others are SentencePiece's rules of that name.
  """
  corpus = sample_corpus(('ar', 'de', 'en', 'hi', 'ru', 'th', 'zh'))
  texts = sample_text(corpus, dict.fromkeys(corpus.languages, 20_000))
  file = pathlib.Path(_FOLDER.name) / normalization / 'sentencepiece.model'
  file.parent.mkdir()
  if normalization == 'rembert':
    train_vocabulary(texts, file, size=_SIZE, character_coverage=_COVERAGE, threads=2)
  else:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(texts),
      model_writer=model,
      vocab_size=_SIZE,
      normalization_rule_name=normalization,
      character_coverage=_COVERAGE,
      byte_fallback=True,
      num_threads=2,
      minloglevel=2,
    )
    file.write_bytes(model.getvalue())
  return file


@functools.cache
def small_vocabulary(normalization: str) -> Pieces:
  """The SentencePiece library on `vocabulary_file`."""
  return Pieces(vocabulary_file(normalization))


def written(pieces: Pieces, text: str) -> list[str]:
  """The pieces of a text as the vocabulary writes them; bytes as `<0x41>`."""
  return pieces._processor.encode(text, out_type=str)
