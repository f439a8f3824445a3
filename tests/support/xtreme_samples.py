"""Fixtures: XTREME's tasks in small, and a vocabulary for their languages."""

import pathlib

import pytest
from xtreme_reference import Pieces

from rembert.data.config import DataConfig
from tasks.survey import sample_text
from tasks.vocabulary import train_vocabulary
from tasks.wikipedia.corpus import open_corpus
from tasks.xtreme.layout import XtremeFolder

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'xtreme'
LANGUAGES = ('de', 'en', 'zh')


@pytest.fixture
def xtreme_samples() -> XtremeFolder:
  """tests/data/xtreme: texts made up for the tests, in XTREME's layout, in English, German and Chinese."""
  return XtremeFolder(SAMPLES)


@pytest.fixture(scope='session')
def xtreme_vocabulary(tmp_path_factory) -> pathlib.Path:
  """File of a vocabulary of 2,000 pieces, learned from the sample corpus."""
  file = tmp_path_factory.mktemp('xtreme') / 'sentencepiece.model'
  corpus = open_corpus(DataConfig(languages=LANGUAGES))
  text = sample_text(corpus, dict.fromkeys(LANGUAGES, 40_000))
  train_vocabulary(text, file, size=2000, character_coverage=0.98)
  return file


@pytest.fixture(scope='session')
def xtreme_pieces(xtreme_vocabulary) -> Pieces:
  """The pieces of `xtreme_vocabulary`."""
  return Pieces(xtreme_vocabulary)
