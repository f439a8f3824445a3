"""The command line: `python -m tasks.token_store --corpus=CORPUS --vocabulary=FILE --output=STORE`."""

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from etils import epath

from rembert.command_line import add_modules, parse_flags, run_command
from rembert.data.mixture import sampling_rates
from rembert.data.packing import PackingConfig
from rembert.data.token_store import FORMAT, MANIFEST, SPLITS, VOCABULARY, TokenStore, altered_shards, row_dtype
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.plotting.training import plot_languages
from rembert.tracking.console import Console, human_bytes
from tasks.corpus import flags as corpus_flags
from tasks.corpus.__main__ import make_with_beam, show_lost

if TYPE_CHECKING:
  from tasks.corpus.runner import BeamRunner
  from tasks.token_store.shards import Counts, DocumentShard, StoreConfig

DESCRIPTION = """\
Make a token store: the text of a corpus is tokenized and packed into rows once, by Apache Beam, and then read by row
number. Of dumps, plain text or a TFDS dataset, a corpus is made first, in STORE/corpus. Repeating the command resumes
it where it stopped: languages that are done are not made again."""

EPILOG = """\
examples
  a corpus made by python -m tasks.corpus, with two processes of this machine:
    python -m tasks.token_store --corpus=corpus --vocabulary=sentencepiece.model --output=store --workers=2
  dumps, plain text, or a dataset that TensorFlow Datasets has prepared:
    python -m tasks.token_store --dumps=dumps/ --vocabulary=sentencepiece.model --output=store
    python -m tasks.token_store --text=text/ --vocabulary=sentencepiece.model --output=store
    python -m tasks.token_store --tfds='wikipedia/20230601.{language}' --languages=de,sw --vocabulary=… --output=store
  a SeqIO task or mixture, of tasks.mixtures or registered by my_tasks.py in this directory:
    python -m tasks.token_store --module=my_tasks --mixture=my_mixture --output=store
  on a cluster (python -m tasks.corpus --help has a line for each); the flags after -- go to Beam:
    python -m tasks.token_store --corpus=gs://… --vocabulary=… --output=gs://… --runner=DataflowRunner -- --project=…
  compare every shard of a store with its checksum:
    python -m tasks.token_store verify store

then
    python -m rembert.main --gin_file=gin/pretrain_base.gin --gin.data.source=store --gin.data.store=store
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = argparse.ArgumentParser(
    prog='python -m tasks.token_store',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  corpus_flags.add_sources(flags, mixture=True)
  add_modules(flags)
  flags.add_argument(
    '--vocabulary', metavar='FILE', help='sentencepiece.model of RemBERT’s layout; a mixture has its own'
  )
  flags.add_argument('--output', required=True, metavar='STORE', help='folder of the store')
  flags.add_argument('--sequence_length', type=int, default=512, metavar='S', help='tokens in a row (default 512)')
  flags.add_argument('--one_document_a_row', action='store_true', help='do not fill rows up with the next documents')
  flags.add_argument('--short_rows', type=float, default=0.0, help='share of rows that end early (BERT has 0.1)')
  corpus_flags.add_making(flags)
  corpus_flags.add_beam(flags)
  return flags


def make_store(options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  """The store of a corpus, which is made first unless it is named."""
  from tasks.corpus.format import open_corpus
  from tasks.token_store.shards import CorpusShard, Counts, StoreConfig
  from tasks.vocabulary import check_vocabulary, load_vocabulary

  console, runner = Console(), corpus_flags.runner_of(options, beam_flags)
  if options.mixture:
    from tasks.token_store.mixture import make_mixture_store

    make_mixture_store(options, runner, console)
    return
  if not options.vocabulary:
    raise UsageError(
      'no vocabulary is named', where='--vocabulary', fix='--vocabulary=FILE; python -m tasks.vocabulary'
    )
  config = StoreConfig(
    folder=options.output,
    vocab_size=load_vocabulary(options.vocabulary).get_piece_size(),
    sequence_length=options.sequence_length,
    packing=PackingConfig(options.one_document_a_row, options.short_rows),
    special=check_vocabulary(options.vocabulary, sys.maxsize),
  )
  if options.corpus:
    corpus_flags.refuse_making_flags(options, f'--corpus={options.corpus}', 'the corpus, which is made already')
    corpus = open_corpus(options.corpus).of_languages(corpus_flags.languages_of(options), console.say)
  else:
    parts, how = corpus_flags.parts_of(options, console.say), corpus_flags.config_of(options)
    corpus = make_with_beam(parts, f'{options.output}/corpus', how, console, runner, options.group_mb)

  vocabulary = f'{options.output}/{VOCABULARY}'  # the copy: workers read it where the store is
  shards = {
    language: [
      CorpusShard(language, split, index, len(files), file.stat().length, str(file), vocabulary)
      for split in SPLITS
      for files in [corpus.shards(language, split)]
      for index, file in enumerate(files)
    ]
    for language in corpus.languages
  }
  counts = {
    language: Counts(of_language.sentences, of_language.characters, of_language.lost)
    for language, of_language in corpus.languages.items()
  }
  recipe = {'corpus': corpus.fingerprint, 'languages': list(corpus.languages)}
  write_store(shards, counts, config, options.vocabulary, recipe, runner, console, group_mb=options.group_mb)


def write_store(
  shards: 'Mapping[str, Sequence[DocumentShard]]',
  counts: 'Mapping[str, Counts]',
  config: 'StoreConfig',
  vocabulary: epath.PathLike,
  recipe: Mapping,
  runner: 'BeamRunner',
  console: Console,
  *,
  group_mb: float,
  more: Mapping | None = None,
) -> TokenStore:
  """Makes the store of some documents and shows it; what is done already is not made again.

  Args:
    shards: the documents of each language or task.
    counts: what was counted of them.
    config: how they become rows.
    vocabulary: that they are tokenized with.
    recipe: what decides the documents; JSON. The same folder takes no store of another recipe.
    runner: where Beam runs.
    console: shows progress.
    group_mb: languages are made together up to so many MB of documents; 0 for all at once.
    more: further keys of the manifest; JSON.

  Raises:
    UsageError: the folder holds another store.
    RunError: the pipeline failed; the same call resumes it.
  """
  from tasks.corpus.making import refuse_other_recipe, run_in_groups

  output, content = epath.Path(config.folder), epath.Path(vocabulary).read_bytes()
  how = dataclasses.asdict(config)
  recipe = {
    **recipe,
    **{name: how[name] for name in ('vocab_size', 'sequence_length', 'packing')},
    'vocabulary': hashlib.sha256(content).hexdigest(),
  }
  refuse_other_recipe(output / 'recipe.json', recipe, 'store')
  if (output / MANIFEST).exists():
    console.say(f'{output} is complete')
    return _show(console, TokenStore(output))
  with write_errors('the store', output):
    write_whole(output / 'recipe.json', json.dumps(recipe, indent=1))
    write_whole(output / VOCABULARY, content)

  # --- languages, some at a time ---------------------------------------------------
  def run(names, tell):
    def build(pipeline):
      from tasks.token_store import pipeline as store_pipeline

      some = [shard for name in names for shard in shards[name]]
      store_pipeline.build(pipeline, some, {name: counts[name] for name in names}, config)

    runner.run(build, str(output))

  done = {path.parent.name for path in output.glob('*/language.json')}
  sizes = {name: sum(shard.size for shard in some) for name, some in shards.items() if name not in done}
  run_in_groups(sizes, group_mb * (1 << 20), console, 'making the store', run)

  # --- manifest ----------------------------------------------------------------------
  languages = {name: json.loads((output / name / 'language.json').read_text()) for name in shards}
  manifest = {
    'format': FORMAT,
    'sequence_length': config.sequence_length,
    'dtype': row_dtype(config.vocab_size).str,
    'vocabulary': {'sha256': recipe['vocabulary'], 'pieces': config.vocab_size},
    'special': how['special'],
    'recipe': recipe,
    'versions': {name: importlib.metadata.version(name) for name in ('apache-beam', 'array-record', 'sentencepiece')},
    'languages': languages,
    **(more or {}),
  }
  with write_errors('the store', output):
    tokens = {name: part['tokens']['train'] for name, part in languages.items()}
    # Tasks count no sentences.
    sizes = {name: part['sentences'] or part['documents']['train'] for name, part in languages.items() if tokens[name]}
    rates = {alpha: sampling_rates(sizes, alpha) for alpha in (1.0, 0.7, 0.5)}
    write_whole(output / 'languages.png', plot_languages(tokens, rates))
    write_whole(output / MANIFEST, json.dumps(manifest, indent=1))
  return _show(console, TokenStore(output))


def _show(console: Console, store: TokenStore) -> TokenStore:
  rows = []
  for language, part in sorted(store.languages.items(), key=lambda item: -item[1].tokens['train']):
    rows.append(
      (
        language,
        f'{part.documents["train"]:,}',
        f'{part.documents["validation"]:,}',
        f'{part.sentences:,}',
        f'{part.tokens["train"]:,}',
        f'{part.rows("train"):,}',
        f'{part.tokens["train"] / max(1, part.rows("train") * store.sequence_length):.0%}',
      )
    )
  columns = ('', 'documents', 'held out', 'sentences', 'tokens', 'rows', 'filled')
  console.table('Languages', columns, rows)
  show_lost(console, [part.lost for part in store.languages.values()])
  tokens = sum(part.tokens['train'] for part in store.languages.values())
  console.facts(
    'Store',
    {
      'languages': f'{len(store.languages)}',
      'tokens': f'{tokens:,}',
      'rows': f'{sum(part.rows("train") for part in store.languages.values()):,} of {store.sequence_length}',
      'bytes': human_bytes(sum(shard.bytes for shard in store.shards())),
      'folder': str(store.folder),
      'picture': str(store.folder / 'languages.png'),
    },
  )
  return store


def verify(argv: Sequence[str]) -> None:
  """`verify STORE`."""
  if len(argv) != 1:
    raise UsageError('one store is to be verified', fix='python -m tasks.token_store verify STORE')
  store = TokenStore(argv[0])
  altered = altered_shards(store)
  if altered:
    raise UsageError(
      f'{len(altered)} shards are not what the manifest says',
      where=', '.join(altered[:8]) + (' …' if len(altered) > 8 else ''),
      fix='fetch them again; or delete the manifest and these languages, and make the store again',
    )
  print(f'{len(store.shards())} shards are whole: {argv[0]}')


def main(argv: Sequence[str] | None = None) -> int:
  """Makes or verifies a store."""
  argv = list(sys.argv[1:] if argv is None else argv)
  if argv[:1] == ['verify']:
    return run_command('tasks.token_store', lambda: verify(argv[1:]))
  options, beam_flags = parse_flags(parser(), argv)
  return run_command('tasks.token_store', lambda: make_store(options, beam_flags), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
