"""Small corpora for tests, made in this process."""

import functools
import pathlib
import tempfile
from collections.abc import Sequence

from rembert.data.config import DataConfig
from rembert.tracking.console import Console
from tasks.corpus import sources
from tasks.corpus.build import CorpusConfig, make_corpus
from tasks.corpus.format import Corpus


def find_parts(kind: str, name, languages: Sequence[str] | None = None, *, say=lambda line: None, **fields):
  """The parts of a source; `fields` are those of `DataConfig`."""
  chosen = languages and tuple(languages)
  return sources.find_parts(DataConfig(source=kind, languages=chosen, **{kind: name}, **fields), say)


def corpus_of_dumps(pattern, folder: pathlib.Path, languages: Sequence[str] | None = None, **options) -> Corpus:
  """The corpus of some dumps; `options` are those of `CorpusConfig`."""
  parts = find_parts('dumps', str(pattern), languages)
  return make_corpus(parts, folder, CorpusConfig(**options), Console(is_quiet=True))


@functools.cache
def sample_corpus(languages: tuple[str, ...] | None = None, held_out: float = 0.1) -> Corpus:
  """The sample corpus, or some of its languages; made once per process."""
  folder = tempfile.TemporaryDirectory()
  _folders.append(folder)  # it is deleted with the process
  return corpus_of_dumps('sample', pathlib.Path(folder.name), languages, held_out=held_out)


_folders: list[tempfile.TemporaryDirectory] = []
