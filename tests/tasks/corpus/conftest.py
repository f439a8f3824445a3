"""Corpora of a source folder."""

import pytest

from rembert.tracking.console import Console
from tasks.corpus.build import CorpusConfig, make_corpus
from tasks.corpus.sources import find_parts


@pytest.fixture
def make(tmp_path):
  """Function (kind, source, folder='corpus', languages=None, data_dir=None, **options) → a corpus made in this process.

  Short documents are kept and none is held out unless the options say otherwise.
  """

  def make(kind, source, *, folder='corpus', languages=None, data_dir=None, **options):
    parts = find_parts(kind, str(source), languages, data_dir=data_dir and str(data_dir))
    config = CorpusConfig(**{'held_out': 0, 'min_characters': 20} | options)
    return make_corpus(parts, tmp_path / folder, config, Console(is_quiet=True))

  return make
