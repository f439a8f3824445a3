"""Fixtures: XTREME's tasks in small, and a vocabulary for their languages."""

import pathlib

import pytest
from small_corpora import sample_corpus
from xtreme_reference import Pieces

from tasks.vocabulary import sample_text, train_vocabulary
from tasks.xtreme.files import XtremeFolder

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'xtreme'
LANGUAGES = ('de', 'en', 'zh')


@pytest.fixture
def xtreme_samples() -> XtremeFolder:
  """tests/data/xtreme: texts made up for the tests, in XTREME's layout, in English, German and Chinese."""
  return XtremeFolder(SAMPLES)


@pytest.fixture(scope='session')
def xtreme_vocabulary(tmp_path_factory) -> pathlib.Path:
  """File of a vocabulary of 2,000 tokens, trained on the sample corpus."""
  file = tmp_path_factory.mktemp('xtreme') / 'sentencepiece.model'
  text = sample_text(sample_corpus(LANGUAGES), dict.fromkeys(LANGUAGES, 40_000))
  train_vocabulary(text, file, size=2000, character_coverage=0.98)
  return file


@pytest.fixture(scope='session')
def xtreme_pieces(xtreme_vocabulary) -> Pieces:
  """The pieces of `xtreme_vocabulary`."""
  return Pieces(xtreme_vocabulary)
