"""The command line: `python -m tasks.corpus --dumps=FOLDER --output=CORPUS`."""

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rembert.command_line import parse_flags, run_command
from tasks.corpus import flags as corpus_flags

if TYPE_CHECKING:
  from rembert.tracking.console import Console
  from tasks.corpus.documents import CorpusConfig
  from tasks.corpus.format import Corpus
  from tasks.corpus.runner import BeamRunner
  from tasks.corpus.sources import Part

DESCRIPTION = """\
Make a corpus: text is cleaned and deduplicated once by Apache Beam, and kept as a prepared dataset of TensorFlow
Datasets. Vocabularies, token stores and streamed runs read it. Repeating the command resumes it where it stopped:
languages that are done are not made again."""

EPILOG = """\
examples
  dumps of dumps.wikimedia.org, with two processes of this machine:
    python -m tasks.corpus --dumps=dumps/ --output=corpus --workers=2
  plain text, a file LL.txt (or .xz, .gz, .bz2) per language:
    python -m tasks.corpus --text=text/ --output=corpus
  datasets that TensorFlow Datasets has prepared (wikipedia, wiki40b, c4):
    python -m tasks.corpus --tfds='wikipedia/20230601.{language}' --languages=de,sw --output=corpus
    python -m tasks.corpus --tfds='c4/multilingual[{language}]' --languages=de,sw --output=corpus
  on a cluster; the flags after -- go to Beam:
    python -m tasks.corpus --dumps=gs://… --output=gs://… --runner=DataflowRunner -- --project=… --region=…
    python -m tasks.corpus --dumps=… --output=… --runner=FlinkRunner -- --flink_master=HOST:8081
    python -m tasks.corpus --dumps=… --output=… --runner=SparkRunner -- --spark_master_url=spark://HOST:7077
    python -m tasks.corpus --dumps=… --output=… --runner=DaskRunner -- --dask_client_address=tcp://HOST:8786

then
    python -m tasks.vocabulary --corpus=corpus --size=32000 --output=sentencepiece.model
    python -m tasks.token_store --corpus=corpus --vocabulary=sentencepiece.model --output=store
    python -m rembert.main --gin_file=gin/pretrain_smoke.gin --gin.data.corpus=corpus
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = argparse.ArgumentParser(
    prog='python -m tasks.corpus',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  corpus_flags.add_sources(flags, corpus=False)
  flags.add_argument('--output', required=True, metavar='CORPUS', help='folder of the corpus')
  corpus_flags.add_making(flags)
  corpus_flags.add_beam(flags)
  return flags


def make_with_beam(
  parts: 'list[Part]', folder: str, config: 'CorpusConfig', console: 'Console', runner: 'BeamRunner', group_mb: float
) -> 'Corpus':
  """Makes a corpus with Apache Beam, or opens the one that is there; see `making.make`."""
  from tasks.corpus.making import make

  def run(some, tell):
    def build(pipeline):
      from tasks.corpus import pipeline as corpus_pipeline

      corpus_pipeline.build(pipeline, some, folder, config)

    runner.run(build, folder)

  return make(parts, folder, config, console, run, group_bytes=group_mb * (1 << 20))


def run(options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  """The whole of it."""
  from rembert.tracking.console import Console

  console = Console()
  runner = corpus_flags.runner_of(options, beam_flags)
  parts, config = corpus_flags.parts_of(options, console.say), corpus_flags.config_of(options)
  show(console, make_with_beam(parts, options.output, config, console, runner, options.group_mb))


def show(console: 'Console', corpus: 'Corpus') -> None:
  """A table of the languages, what was left out, and totals."""
  languages = sorted(corpus.languages.items(), key=lambda item: -item[1].characters)
  names = ('documents', 'held_out', 'sentences', 'characters')
  rows = [(language, *(f'{getattr(counts, name):,}' for name in names)) for language, counts in languages]
  console.table('Languages', ('', 'documents', 'held out', 'sentences', 'characters'), rows)
  show_lost(console, [counts.lost for _, counts in languages])
  total = lambda name: f'{sum(getattr(counts, name) for _, counts in languages):,}'
  facts = {'languages': f'{len(languages)}', **{name: total(name) for name in ('documents', 'characters')}}
  console.facts('Corpus', {**facts, 'folder': str(corpus.folder)})


def show_lost(console: 'Console', losses) -> None:
  """What was left out of all languages, and why."""
  reasons = sorted({reason for lost in losses for reason in lost})
  if reasons:
    console.facts('Left out', {reason: f'{sum(lost.get(reason, 0) for lost in losses):,}' for reason in reasons})


def main(argv: Sequence[str] | None = None) -> int:
  """Makes a corpus."""
  options, beam_flags = parse_flags(parser(), sys.argv[1:] if argv is None else argv)
  return run_command('tasks.corpus', functools.partial(run, options, beam_flags), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
