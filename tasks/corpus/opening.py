"""The corpus of a streamed run: the one that gin names, or one that is made in the workdir first."""

import functools
import shlex
from collections.abc import Callable

from etils import epath

from rembert.data.config import DataConfig
from rembert.tracking.console import Console
from tasks.corpus.documents import CorpusConfig
from tasks.corpus.format import Corpus, open_corpus
from tasks.corpus.local import make_corpus
from tasks.corpus.sources import find_parts

_FIELDS = ('tfds_data_dir', 'languages', 'held_out', 'min_characters')  # flags of tasks.corpus bear the same names


def corpus_of(data: DataConfig, workdir: epath.PathLike, console: Console) -> Corpus:
  """`data.corpus`, or `WORKDIR/corpus`, made of `data.dumps` or `data.tfds` unless it is there already.

  Raises:
    UsageError: nothing is there to be read; more text than one process takes; or the workdir has another corpus.
  """
  return find_corpus(data, workdir, console)()


def find_corpus(data: DataConfig, workdir: epath.PathLike, console: Console) -> Callable[[], Corpus]:
  """A function that opens or makes the corpus of `corpus_of`; what is missing is an error now, before any work."""
  if data.corpus:
    opened = open_corpus(data.corpus).of_languages(data.languages, console.say)
    return lambda: opened
  kind, name = ('tfds', data.tfds) if data.source == 'tfds' else ('dumps', data.dumps)
  parts = find_parts(kind, name, data.languages, data_dir=data.tfds_data_dir, say=console.say)
  config = CorpusConfig(held_out=data.held_out, min_characters=data.min_characters)
  given = shlex.join(
    f'--{flag}={",".join(value) if isinstance(value, tuple) else value}'
    for flag, value in ((kind, name), *((field, getattr(data, field)) for field in _FIELDS))
    if value is not None
  )
  command = f'python -m tasks.corpus {given} --output=CORPUS; then --gin.data.corpus=CORPUS'
  return functools.partial(make_corpus, parts, epath.Path(workdir) / 'corpus', config, console, command=command)
