"""Flags of the commands that read a corpus, or make one first."""

import argparse
import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rembert.errors import UsageError

if TYPE_CHECKING:
  from rembert.tracking.console import Console
  from tasks.corpus.documents import CorpusConfig
  from tasks.corpus.format import Corpus
  from tasks.corpus.runner import BeamRunner
  from tasks.corpus.sources import Part

_KINDS = ('text', 'tfds', 'dumps')  # where --dumps has a default, the others come before it
_MAKING = ('held_out', 'min_characters', 'dedupe', 'shard_mb')


def add_sources(
  flags: argparse.ArgumentParser, *, corpus: bool = True, mixture: bool = False, default: str | None = None
) -> None:
  """`--dumps`, `--text`, `--tfds`, and `--corpus`, `--mixture` if they are to be: one of them; and the languages."""
  source = flags.add_mutually_exclusive_group(required=default is None)
  if corpus:
    source.add_argument('--corpus', metavar='CORPUS', help='a corpus made by python -m tasks.corpus')
  if mixture:
    source.add_argument('--mixture', metavar='NAME', help='a SeqIO task or mixture; its documents, rates, vocabulary')
  more = f' (default: the {default} corpus)' if default else ''
  source.add_argument(
    '--dumps', metavar='FOLDER', default=default, help=f'MediaWiki dumps: a folder or glob, local or gs://{more}'
  )
  source.add_argument('--text', metavar='FOLDER', help='plain text, LL.txt[.xz|.gz|.bz2]; blank lines part documents')
  source.add_argument('--tfds', metavar='NAME', help='a prepared dataset, {language} in its name or [split]')
  flags.add_argument('--tfds_data_dir', metavar='DIR', help='where prepared datasets are')
  flags.add_argument('--languages', metavar='CODES', help='codes, or mbert, rembert (default: all that are there)')


def add_making(flags: argparse.ArgumentParser) -> None:
  """How a corpus is made. Flags that are not given are None."""
  flags.add_argument('--held_out', type=float, help='share of documents for validation (default 0.005)')
  flags.add_argument('--min_characters', type=int, help='shorter documents are left out (default 100)')
  flags.add_argument(
    '--dedupe', choices=('paragraphs', 'documents', 'none'), help='what occurs once (default paragraphs, and documents)'
  )
  flags.add_argument('--shard_mb', type=float, help='input per shard, MB (default 64)')


def add_beam(flags: argparse.ArgumentParser) -> None:
  """How Apache Beam runs."""
  flags.add_argument(
    '--group_mb', type=float, default=256, help='languages done together, MB of input; 0: all at once (default 256)'
  )
  flags.add_argument(
    '--runner', default='DirectRunner', help='DirectRunner (default), DataflowRunner, FlinkRunner, DaskRunner, …'
  )
  flags.add_argument('--workers', type=int, default=1, metavar='N', help='processes of the DirectRunner (default 1)')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')


def languages_of(options: argparse.Namespace) -> tuple[str, ...] | None:
  """What `--languages` names, or None."""
  return tuple(code.strip() for code in options.languages.split(',')) if options.languages else None


def parts_of(options: argparse.Namespace, say: Callable[[str], None]) -> 'list[Part]':
  """The parts of the source that the options name."""
  from tasks.corpus.sources import find_parts

  kind = next(kind for kind in _KINDS if getattr(options, kind))
  name, data_dir = getattr(options, kind), options.tfds_data_dir
  return find_parts(kind, name, languages_of(options), data_dir=data_dir, say=say)


def config_of(options: argparse.Namespace) -> 'CorpusConfig':
  """How the options say that a corpus is made."""
  from tasks.corpus.documents import CorpusConfig

  given = {name: getattr(options, name) for name in _MAKING if getattr(options, name, None) is not None}
  if 'shard_mb' in given:
    given['shard_bytes'] = max(1, int(given.pop('shard_mb') * (1 << 20)))
  return CorpusConfig(**given)


def refuse_making_flags(options: argparse.Namespace, source: str, owner: str) -> None:
  """Raises UsageError for flags that do not apply to a source: they belong to its owner."""
  given = [f'--{name}={getattr(options, name)}' for name in _MAKING if getattr(options, name, None) is not None]
  if given:
    raise UsageError(
      f'these options belong to {owner}',
      where=f'{" ".join(given)} with {source}',
      fix='leave them out, or make another corpus: python -m tasks.corpus --help',
    )


def command_of(options: argparse.Namespace) -> str:
  """The command that makes the corpus of the options with Apache Beam."""
  kind = next(kind for kind in _KINDS if getattr(options, kind))
  names = (kind, 'tfds_data_dir', 'languages', *_MAKING)
  given = (f'--{name}={getattr(options, name)}' for name in names if getattr(options, name, None) is not None)
  return f'python -m tasks.corpus {shlex.join(given)} --output=CORPUS; then --corpus=CORPUS'


@contextlib.contextmanager
def corpus_or_temporary(options: argparse.Namespace, config: 'CorpusConfig', console: 'Console') -> 'Iterator[Corpus]':
  """The corpus that the options name, or one that is made in a temporary directory of the source that they name."""
  from tasks.corpus.format import open_corpus
  from tasks.corpus.local import temporary_corpus

  if options.corpus:
    yield open_corpus(options.corpus).of_languages(languages_of(options), console.say)
    return
  parts = parts_of(options, console.say)
  with temporary_corpus(parts, config, console, command=command_of(options)) as corpus:
    yield corpus


def runner_of(options: argparse.Namespace, beam_flags: Sequence[str]) -> 'BeamRunner':
  """Where the options say that Beam runs; UsageError if it is not installed."""
  from tasks.corpus.runner import BeamRunner

  runner = BeamRunner(options.runner, options.workers, tuple(beam_flags), options.traceback)
  runner.check()
  return runner
