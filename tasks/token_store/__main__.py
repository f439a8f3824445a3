"""Command line of token stores: `python -m tasks.token_store --corpus=CORPUS --vocabulary=FILE --output=STORE`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Annotated

from etils import epath

from rembert.command_line import add_modules, command_parser, parse_flags, run_command
from rembert.data.packing import PackingConfig
from rembert.data.token_store import VOCABULARY, TokenStore
from rembert.errors import UsageError
from rembert.files import check_folder, sha256_of
from rembert.tokenizer import check_vocabulary, load_vocabulary
from rembert.tracking.console import Console, human_bytes
from rembert.validation import Fraction, Range, number
from tasks.beam import BeamRunner
from tasks.corpus import __main__ as corpus_command
from tasks.corpus.format import LanguageStatistics, open_corpus, total_lost
from tasks.token_store import build

DESCRIPTION = """\
Make a token store, pre-tokenized text for training: Apache Beam tokenizes a corpus and packs it into sequences once,
which are then read by index. For dumps, plain text or a TFDS dataset, a corpus is made first, in STORE/corpus.
Running the same command again resumes it, without the languages that are complete."""

EPILOG = """\
examples
  a corpus made by python -m tasks.corpus, with two processes on this machine:
    python -m tasks.token_store --corpus=corpus --vocabulary=sentencepiece.model --output=store --workers=2
  dumps, plain text, or a prepared dataset of TensorFlow Datasets:
    python -m tasks.token_store --dumps=dumps/ --vocabulary=sentencepiece.model --output=store
    python -m tasks.token_store --text=text/ --vocabulary=sentencepiece.model --output=store
    python -m tasks.token_store --tfds='wikipedia/20230601.{language}' --languages=de,sw --vocabulary=… --output=store
  a SeqIO task or mixture, from tasks.mixtures or registered by my_tasks.py in this directory:
    python -m tasks.token_store --module=my_tasks --mixture=my_mixture --output=store
  on a cluster (see python -m tasks.corpus --help); flags after -- go to Beam:
    python -m tasks.token_store --corpus=gs://… --vocabulary=… --output=gs://… --runner=DataflowRunner -- --project=…
  compare every shard of a store with its checksum:
    python -m tasks.token_store verify store

then
    python -m rembert.main --gin_file=gin/pretrain_base.gin --gin.data.source=store --gin.data.store=store
"""


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  flags = command_parser('tasks.token_store', DESCRIPTION, EPILOG)
  corpus_command.add_sources(flags, mixture=True)
  add_modules(flags)
  flags.add_argument('--vocabulary', metavar='FILE', help='SentencePiece model; a mixture has its own')
  flags.add_argument('--output', required=True, metavar='STORE', help='directory of the store')
  length = number(Annotated[int, Range(16, 1 << 16)])
  flags.add_argument('--sequence_length', type=length, default=512, metavar='S', help='sequence length (default: 512)')
  flags.add_argument('--one_document_a_row', action='store_true', help='do not pack several documents into a sequence')
  short = 'fraction of truncated sequences (default: 0; BERT: 0.1)'
  flags.add_argument('--short_rows', type=number(Fraction), default=0.0, help=short)
  corpus_command.add_making(flags)
  return flags


def make_store(options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  """Makes the store of a mixture or corpus, and prints its statistics."""
  check_folder(options.output, 'the store', fix='choose another directory: --output=STORE')
  console, runner = Console(), corpus_command.runner_of(options, beam_flags)
  show(console, (_make_of_mixture if options.mixture else _make_of_corpus)(options, runner, console))


def _config_of(options: argparse.Namespace, vocabulary: str) -> build.StoreConfig:
  return build.StoreConfig(
    folder=options.output,
    vocab_size=load_vocabulary(vocabulary).get_piece_size(),
    sequence_length=options.sequence_length,
    packing=PackingConfig(options.one_document_a_row, options.short_rows),
    special=check_vocabulary(vocabulary, sys.maxsize),
  )


def _make_of_corpus(options: argparse.Namespace, runner: BeamRunner, console: Console) -> TokenStore:
  """Makes the store of a corpus, after making the corpus unless it exists."""
  if not options.vocabulary:
    raise UsageError(
      '--vocabulary is not set', where='--vocabulary', fix='--vocabulary=FILE; python -m tasks.vocabulary trains one'
    )
  config = _config_of(options, options.vocabulary)
  if options.corpus:
    corpus_command.refuse_making_flags(options, f'--corpus={options.corpus}', 'the corpus, which already exists')
    corpus = open_corpus(options.corpus).of_languages(options.languages, console.say)
  else:
    corpus = corpus_command.make_with_beam(options, f'{options.output}/corpus', runner, console)
  shards = build.corpus_shards(corpus, f'{options.output}/{VOCABULARY}')  # workers read the copy
  recipe = {'corpus': corpus.fingerprint, 'languages': list(corpus.languages)}
  return build.make_store(
    shards, corpus.languages, config, options.vocabulary, recipe, runner, console, group_mb=options.group_mb
  )


def _make_of_mixture(options: argparse.Namespace, runner: BeamRunner, console: Console) -> TokenStore:
  """Makes the store of a mixture: its tasks are the languages of the store, their rates are in the manifest."""
  build.register(options.module)
  from tasks import pretraining, registration

  # isort: split
  import seqio

  where = f'--mixture={options.mixture}'
  corpus_command.refuse_making_flags(options, where, 'a corpus; the tasks have their own data')
  if options.languages:
    raise UsageError('--languages does not apply to a mixture', where=where, fix='omit --languages')
  mixture = registration.find(options.mixture)
  tasks_by_name = {task.name: task for task in seqio.get_subtasks(mixture)}
  file = pretraining.check_tasks(list(tasks_by_name.values())).sentencepiece_model_file
  if options.vocabulary and epath.Path(options.vocabulary).read_bytes() != epath.Path(file).read_bytes():
    raise UsageError(
      "--vocabulary differs from the tasks' vocabulary",
      where=f'--vocabulary={options.vocabulary}; {file}',
      fix='omit --vocabulary: the store has the vocabulary of its tasks',
    )
  config, rates = _config_of(options, file), pretraining.normalized_rates(mixture)
  shards = {name: build.task_shards(tasks_by_name[name], options.module, config) for name in rates}
  counts = dict.fromkeys(rates, LanguageStatistics(documents=0, held_out=0, sentences=0, characters=0))
  recipe = {'mixture': options.mixture, 'rates': rates}
  return build.make_store(shards, counts, config, file, recipe, runner, console, group_mb=options.group_mb)


def show(console: Console, store: TokenStore) -> None:
  """Prints a table of the languages, skipped documents, and totals."""
  languages = sorted(store.languages.items(), key=lambda item: -item[1].tokens['train'])
  table = []
  for name, part in languages:
    documents, tokens, rows = part.documents, part.tokens['train'], part.rows('train')
    counts = (documents['train'], documents['validation'], part.sentences, tokens, rows)
    table.append((name, *(f'{count:,}' for count in counts), f'{tokens / max(1, rows * store.sequence_length):.0%}'))
  console.table('Languages', ('', 'documents', 'held out', 'sentences', 'tokens', 'rows', 'filled'), table)
  corpus_command.show_lost(console, total_lost(part.lost for _, part in languages))
  facts = {'languages': f'{len(languages)}', 'tokens': f'{sum(part.tokens["train"] for _, part in languages):,}'}
  facts['rows'] = f'{sum(part.rows("train") for _, part in languages):,} of {store.sequence_length}'
  facts['bytes'] = human_bytes(sum(shard.bytes for shard in store.shards()))
  console.facts('Store', facts | {'folder': str(store.folder)})


def verify(argv: Sequence[str]) -> None:
  """Runs `verify STORE`."""
  if len(argv) != 1:
    raise UsageError('verify requires exactly one store', fix='python -m tasks.token_store verify STORE')
  store = TokenStore(argv[0])
  altered = [shard.file for shard in store.shards() if sha256_of(store.file(shard)) != shard.sha256]
  if altered:
    raise UsageError(
      f'{len(altered)} shards differ from their checksums in the manifest',
      where=', '.join(altered[:8]) + (' …' if len(altered) > 8 else ''),
      fix='copy them again; or delete the manifest and these languages, and make the store again',
    )
  print(f'{len(store.shards())} shards are valid: {argv[0]}')


def main(argv: Sequence[str] | None = None) -> int:
  """Makes or verifies a store."""
  argv = list(sys.argv[1:] if argv is None else argv)
  if argv[:1] == ['verify']:
    return run_command('tasks.token_store', lambda: verify(argv[1:]))
  options, beam_flags = parse_flags(parser(), argv)
  return run_command('tasks.token_store', lambda: make_store(options, beam_flags), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
