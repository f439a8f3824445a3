"""Command line: `python -m tasks.corpus --dumps=FOLDER --output=CORPUS`; and flags shared by other commands."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rembert.command_line import command_parser, parse_flags, run_command
from rembert.errors import UsageError
from rembert.validation import Count, FractionBelowOne, NotNegative, Positive, number

if TYPE_CHECKING:
  from rembert.data.config import DataConfig
  from rembert.tracking.console import Console
  from tasks.beam import BeamRunner
  from tasks.corpus.format import Corpus

DESCRIPTION = """\
Make a corpus: Apache Beam cleans and deduplicates text once, and stores it as a prepared dataset of TensorFlow
Datasets. Vocabularies, token stores and streamed runs read it. Running the same command again resumes it, without the
languages that are complete."""

EPILOG = """\
examples
  dumps of dumps.wikimedia.org, with two processes on this machine:
    python -m tasks.corpus --dumps=dumps/ --output=corpus --workers=2
  text: plain, JSON lines, CSV, TSV or Parquet (also .gz, .bz2, .xz, .zst); a file per language, de.txt, sw.jsonl.gz:
    python -m tasks.corpus --text=text/ --output=corpus
  a column with the language of each row; or one language, and a URL that fsspec reads:
    python -m tasks.corpus --text='crawl/*.jsonl' --text_column=text --language_column=lang --output=corpus
    python -m tasks.corpus --text='hf://datasets/wikimedia/wikipedia/20231101.de/*.parquet' --language=de --output=…
  prepared datasets of TensorFlow Datasets (wikipedia, wiki40b, c4):
    python -m tasks.corpus --tfds='wikipedia/20230601.{language}' --languages=de,sw --output=corpus
    python -m tasks.corpus --tfds='c4/multilingual[{language}]' --languages=de,sw --output=corpus
  on a cluster; flags after -- go to Beam:
    python -m tasks.corpus --dumps=gs://… --output=gs://… --runner=DataflowRunner -- --project=… --region=…
    python -m tasks.corpus --dumps=… --output=… --runner=FlinkRunner -- --flink_master=HOST:8081
    python -m tasks.corpus --dumps=… --output=… --runner=SparkRunner -- --spark_master_url=spark://HOST:7077
    python -m tasks.corpus --dumps=… --output=… --runner=DaskRunner -- --dask_client_address=tcp://HOST:8786

then
    python -m tasks.vocabulary --corpus=corpus --size=32000 --output=sentencepiece.model
    python -m tasks.token_store --corpus=corpus --vocabulary=sentencepiece.model --output=store
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin --gin.data.corpus=corpus
"""

_COLUMNS = ('text_column', 'language_column', 'language')
_MAKING = ('held_out', 'min_characters', 'dedupe', 'shard_mb')


def add_sources(
  flags: argparse.ArgumentParser, *, corpus: bool = True, mixture: bool = False, default: str | None = None
) -> None:
  """Adds `--dumps`, `--text`, `--tfds` and optionally `--corpus`, `--mixture`, of which one is used; and languages."""
  source = flags.add_mutually_exclusive_group(required=default is None)
  if corpus:
    source.add_argument('--corpus', metavar='CORPUS', help='corpus made by python -m tasks.corpus')
  if mixture:
    source.add_argument('--mixture', metavar='NAME', help='SeqIO task or mixture, with its rates and vocabulary')
  more = f' (default: the {default} corpus)' if default else ''
  source.add_argument(
    '--dumps', metavar='FOLDER', default=default, help=f'MediaWiki dumps: directory or glob, local or gs://{more}'
  )
  text = 'text, JSON lines, CSV, TSV, Parquet: file, directory or glob, local or gs://, hf://, …'
  source.add_argument('--text', metavar='PLACE', help=text)
  source.add_argument('--tfds', metavar='NAME', help='prepared dataset, with {language} in its name or [split]')
  flags.add_argument('--text_column', metavar='NAME', help='column of the text (default: text)')
  flags.add_argument('--language_column', metavar='NAME', help='column of the language (default: files are LL.jsonl)')
  flags.add_argument('--language', metavar='CODE', help='language of all files of --text')
  flags.add_argument('--tfds_data_dir', metavar='DIR', help="directory of prepared datasets (default: TFDS's)")
  flags.add_argument(
    '--languages',
    metavar='CODES',
    type=lambda text: tuple(code.strip() for code in text.split(',')) if text else None,
    help='language codes, or mbert, rembert (default: all)',
  )


def add_making(flags: argparse.ArgumentParser) -> None:
  """Adds the options of a corpus, None if not given, and of Apache Beam."""
  add = flags.add_argument
  add('--held_out', type=number(FractionBelowOne), help='fraction of held-out documents (default: 0.005)')
  add('--min_characters', type=number(Count), help='minimum length of documents (default: 100)')
  duplicates = 'duplicates to remove (default: paragraphs and documents)'
  add('--dedupe', choices=('paragraphs', 'documents', 'none'), help=duplicates)
  add('--shard_mb', type=number(Positive), help='input per shard, MB (default: 64)')
  group = 'input per group of languages, MB; 0: all at once (default: 256)'
  add('--group_mb', type=number(NotNegative), default=256, help=group)
  runners = 'DirectRunner (default), DataflowRunner, FlinkRunner, DaskRunner, …'
  add('--runner', default='DirectRunner', help=runners)
  add('--workers', type=number(Count), default=1, metavar='N', help='processes of the DirectRunner (default: 1)')
  add('--traceback', action='store_true', help='print the full traceback of an error')


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict:
  return {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}


def _flags(values: Mapping) -> str:
  return ' '.join(f'--{name}={value}' for name, value in values.items())


def data_of(options: argparse.Namespace, **fields: Any) -> 'DataConfig':
  """The text that the options name, with these fields besides."""
  from rembert.data.config import DataConfig

  columns = _given(options, _COLUMNS)
  if columns and not options.text:
    raise UsageError(
      'columns and language are those of --text',
      where=_flags(columns),
      fix='leave them out, or name the text: --text=PLACE',
    )
  # Where --dumps has a default, the others come before it.
  source = next(kind for kind in ('text', 'tfds', 'dumps') if getattr(options, kind))
  return DataConfig(source=source, **columns, **_given(options, (source, 'tfds_data_dir', 'languages')), **fields)


def refuse_making_flags(options: argparse.Namespace, source: str, owner: str) -> None:
  """Raises UsageError for flags that do not apply to a source: they belong to its owner."""
  if given := _given(options, _MAKING):
    raise UsageError(
      f'these options belong to {owner}',
      where=f'{_flags(given)} with {source}',
      fix='leave them out, or make another corpus: python -m tasks.corpus --help',
    )


def runner_of(options: argparse.Namespace, beam_flags: Sequence[str]) -> 'BeamRunner':
  """Where the options say that Beam runs; UsageError if it is not installed."""
  from tasks.beam import BeamRunner

  return BeamRunner(options.runner, options.workers, tuple(beam_flags), options.traceback)


def make_with_beam(options: argparse.Namespace, folder: str, runner: 'BeamRunner', console: 'Console') -> 'Corpus':
  """The corpus of the source that the options name."""
  from tasks.corpus.build import CorpusConfig, make_corpus
  from tasks.corpus.sources import find_parts

  given = _given(options, _MAKING)
  if 'shard_mb' in given:
    given['shard_bytes'] = max(1, int(given.pop('shard_mb') * (1 << 20)))
  parts = find_parts(data_of(options), console.say)
  return make_corpus(parts, folder, CorpusConfig(**given), console, runner=runner, group_mb=options.group_mb)


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = command_parser('tasks.corpus', DESCRIPTION, EPILOG)
  add_sources(flags, corpus=False)
  flags.add_argument('--output', required=True, metavar='CORPUS', help='folder of the corpus')
  add_making(flags)
  return flags


def run(options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  """Makes the corpus and shows it."""
  from rembert.files import check_folder
  from rembert.tracking.console import Console

  check_folder(options.output, 'the corpus', fix='another folder: --output=CORPUS')
  console = Console()
  show(console, make_with_beam(options, options.output, runner_of(options, beam_flags), console))


def show(console: 'Console', corpus: 'Corpus') -> None:
  """A table of the languages, what was left out, and totals."""
  languages = sorted(corpus.languages.items(), key=lambda item: -item[1].characters)
  names = ('documents', 'held_out', 'sentences', 'characters')
  rows = [(language, *(f'{getattr(counts, name):,}' for name in names)) for language, counts in languages]
  console.table('Languages', ('', *(name.replace('_', ' ') for name in names)), rows)
  show_lost(console, corpus.lost)
  total = lambda name: f'{sum(getattr(counts, name) for _, counts in languages):,}'
  totals = {name: total(name) for name in ('documents', 'characters')}
  console.facts('Corpus', {'languages': f'{len(languages)}', **totals, 'folder': str(corpus.folder)})


def show_lost(console: 'Console', lost: Mapping[str, int]) -> None:
  """What was left out, and why."""
  if lost:
    console.facts('Left out', {reason: f'{count:,}' for reason, count in lost.items()})


def main(argv: Sequence[str] | None = None) -> int:
  """Makes a corpus."""
  options, beam_flags = parse_flags(parser(), sys.argv[1:] if argv is None else argv)
  return run_command('tasks.corpus', lambda: run(options, beam_flags), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
