"""The command line: `python -m tasks.token_store --dumps=FOLDER --vocabulary=FILE --output=STORE`."""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from etils import epath

from rembert.command_line import run_command
from rembert.data.mixture import sampling_rates
from rembert.data.packing import PackingConfig
from rembert.data.token_store import FORMAT, MANIFEST, VOCABULARY, TokenStore, altered_shards, row_dtype
from rembert.errors import RunError, UsageError
from rembert.plotting.training import plot_languages
from rembert.storage import write_errors, write_whole
from rembert.training.console import Console, human_bytes

DESCRIPTION = """\
Make a token store: text is cleaned, deduplicated, cut into pieces and packed into rows once, by Apache Beam, and then
read by row number. Repeating the command goes on where it stopped: languages that are done are not made again."""

EPILOG = """\
examples
  dumps of dumps.wikimedia.org, with two processes of this machine:
    python -m tasks.token_store --dumps=dumps/ --vocabulary=sentencepiece.model --output=store --workers=2
  plain text, a file LL.txt (or .xz, .gz, .bz2) per language:
    python -m tasks.token_store --text=text/ --vocabulary=sentencepiece.model --output=store
  datasets that TensorFlow Datasets has prepared (wikipedia, wiki40b, c4):
    python -m tasks.token_store --tfds='wikipedia/20230601.{language}' --languages=de,sw --vocabulary=… --output=store
    python -m tasks.token_store --tfds='c4/multilingual[{language}]' --languages=de,sw --vocabulary=… --output=store
  somewhere else; flags that are not named here go to Beam:
    python -m tasks.token_store --dumps=gs://… --vocabulary=gs://… --output=gs://… --runner=DataflowRunner --project=…
  compare every shard of a store with its checksum:
    python -m tasks.token_store verify store

then
    python -m rembert.main --gin_file=gin/pretrain_base.gin --gin.data.source=store --gin.data.store=store
"""


def parser() -> argparse.ArgumentParser:
  """The command line; what it does not know is Beam's."""
  flags = argparse.ArgumentParser(
    prog='python -m tasks.token_store',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  source = flags.add_mutually_exclusive_group(required=True)
  source.add_argument('--dumps', metavar='FOLDER', help='MediaWiki dumps: a folder or glob, local or gs://')
  source.add_argument('--text', metavar='FOLDER', help='plain text, LL.txt[.xz|.gz|.bz2]; blank lines part documents')
  source.add_argument('--tfds', metavar='NAME', help='a prepared dataset, {language} in its name or [split]')
  flags.add_argument('--tfds_data_dir', metavar='DIR', help='where prepared datasets lie')
  flags.add_argument('--languages', metavar='CODES', help='codes, or mbert, rembert (default: all that are there)')
  flags.add_argument('--vocabulary', required=True, metavar='FILE', help='sentencepiece.model of RemBERT’s layout')
  flags.add_argument('--output', required=True, metavar='STORE', help='folder of the store')
  flags.add_argument('--sequence_length', type=int, default=512, metavar='S', help='tokens in a row (default 512)')
  flags.add_argument('--held_out', type=float, default=0.005, help='share of documents for validation (default 0.005)')
  flags.add_argument('--min_characters', type=int, default=100, help='shorter documents are left out (default 100)')
  flags.add_argument(
    '--dedupe', choices=('paragraphs', 'documents', 'none'), default='paragraphs', help='what comes once (default both)'
  )
  flags.add_argument('--one_document_a_row', action='store_true', help='do not fill rows up with the next documents')
  flags.add_argument('--short_rows', type=float, default=0.0, help='share of rows that end early (BERT has 0.1)')
  flags.add_argument('--shard_mb', type=float, default=64, help='input to a shard, MB (default 64)')
  flags.add_argument(
    '--group_mb', type=float, default=256, help='languages done together, MB of input; 0: all at once (default 256)'
  )
  flags.add_argument('--runner', default='DirectRunner', help='DirectRunner (default), DataflowRunner, FlinkRunner, …')
  flags.add_argument('--workers', type=int, default=1, metavar='N', help='processes of the DirectRunner (default 1)')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def make_store(options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  """The whole of it."""
  logging.getLogger().setLevel(logging.ERROR)  # Beam says much on it, from its import on
  if importlib.util.find_spec('apache_beam') is None:
    raise UsageError(
      'Apache Beam is not installed', where='python -m tasks.token_store', fix='pip install "apache-beam>=2.77,<3"'
    )
  from tasks.token_store.pipeline import StoreConfig
  from tasks.vocabulary import check_vocabulary, load_vocabulary

  console, output = Console(), epath.Path(options.output)
  parts = _parts(options)
  content = epath.Path(options.vocabulary)
  special = check_vocabulary(options.vocabulary, sys.maxsize)
  pieces = load_vocabulary(options.vocabulary).get_piece_size()
  config = StoreConfig(
    folder=options.output,
    vocabulary=options.vocabulary,
    vocab_size=pieces,
    sequence_length=options.sequence_length,
    held_out=options.held_out,
    min_characters=options.min_characters,
    dedupe=options.dedupe,
    shard_bytes=max(1, int(options.shard_mb * (1 << 20))),
    packing=PackingConfig(options.one_document_a_row, options.short_rows),
    special=special,
  )
  _check(config)

  # --- what a store is a store of ----------------------------------------------
  digest = hashlib.sha256(content.read_bytes()).hexdigest()
  recipe = _recipe(config, digest, parts)
  recipe_file = output / 'recipe.json'
  if recipe_file.exists():
    before = json.loads(recipe_file.read_text())
    different = [name for name in recipe if before.get(name) != json.loads(json.dumps(recipe[name]))]
    if different:
      raise UsageError(
        f'the folder holds a store that is made otherwise: {", ".join(different)}',
        where=options.output,
        fix='name another --output, or repeat the old command to go on with that store',
      )
  if (output / MANIFEST).exists():
    console.say(f'{options.output} is complete')
    _show(console, TokenStore(output))
    return
  with write_errors('the store', output):
    write_whole(recipe_file, json.dumps(recipe, indent=1))
    write_whole(output / VOCABULARY, content.read_bytes())

  # --- languages, some at a time -------------------------------------------------
  done = {path.parent.name for path in output.glob('*/language.json')}
  groups = _groups([part for part in parts if part.language not in done], options.group_mb * (1 << 20))
  if done:
    console.say(f'{len(done)} languages are done already')
  with console.task('making the store') as progress:
    for number, group in enumerate(groups):
      languages = sorted({part.language for part in group})
      progress(number / len(groups), ' '.join(languages[:6]) + (' …' if len(languages) > 6 else ''))
      _run_pipeline(group, config, options, beam_flags)

  # --- manifest --------------------------------------------------------------------
  languages = {}
  for language in sorted({part.language for part in parts}):
    languages[language] = json.loads((output / language / 'language.json').read_text())
  manifest = {
    'format': FORMAT,
    'sequence_length': config.sequence_length,
    'dtype': row_dtype(pieces).str,
    'vocabulary': {'sha256': digest, 'pieces': pieces},
    'special': dataclasses.asdict(special),
    'recipe': recipe,
    'versions': {name: importlib.metadata.version(name) for name in ('apache-beam', 'array-record', 'sentencepiece')},
    'languages': languages,
  }
  with write_errors('the store', output):
    tokens = {language: part['tokens']['train'] for language, part in languages.items()}
    sentences = {language: part['sentences'] for language, part in languages.items() if tokens[language]}
    rates = {alpha: sampling_rates(sentences, alpha) for alpha in (1.0, 0.7, 0.5)}
    write_whole(output / 'languages.png', plot_languages(tokens, rates))
    write_whole(output / MANIFEST, json.dumps(manifest, indent=1))
  _show(console, TokenStore(output))


def _parts(options: argparse.Namespace) -> list:
  from tasks.token_store import sources

  languages = [code.strip() for code in options.languages.split(',')] if options.languages else None
  if options.dumps:
    return sources.dump_parts(options.dumps, languages)
  if options.text:
    return sources.text_parts(options.text, languages)
  if languages is None or '{language}' not in options.tfds:
    raise UsageError(
      'a dataset needs {language} in its name, and languages',
      where=f'--tfds={options.tfds}, --languages={options.languages}',
      fix="--tfds='wikipedia/20230601.{language}' --languages=de,sw",
    )
  return sources.tfds_parts(options.tfds, options.tfds_data_dir, languages)


def _check(config) -> None:
  for name, least, most in (('sequence_length', 16, 1 << 16), ('held_out', 0, 0.9), ('min_characters', 1, 1 << 30)):
    if not least <= getattr(config, name) <= most:
      raise UsageError(
        f'{name} must lie between {least} and {most}', where=f'--{name}={getattr(config, name)}', fix='correct the flag'
      )


def _recipe(config, vocabulary_hash: str, parts: list) -> dict:
  """What decides the bytes of a store."""
  fields = dataclasses.asdict(config)
  for name in ('folder', 'vocabulary', 'special'):
    del fields[name]
  sources = [
    dataclasses.astuple(dataclasses.replace(part, path=part.path.rsplit('/', 1)[-1], data_dir=None)) for part in parts
  ]
  return fields | {'vocabulary': vocabulary_hash, 'sources': sources}


def _groups(parts: list, most_bytes: float) -> list[list]:
  """Languages together, up to so many bytes of input; a language is never parted."""
  by_language: dict[str, list] = {}
  for part in parts:
    by_language.setdefault(part.language, []).append(part)
  groups, filled = [], most_bytes + 1
  for of_language in by_language.values():
    size = sum(part.size for part in of_language)
    if not groups or (most_bytes and filled + size > most_bytes):
      groups.append([])
      filled = 0
    groups[-1] += of_language
    filled += size
  return groups


def _run_pipeline(parts: list, config, options: argparse.Namespace, beam_flags: Sequence[str]) -> None:
  import apache_beam as beam
  from apache_beam.options.pipeline_options import PipelineOptions

  from tasks.token_store.pipeline import build

  flags, runner = list(beam_flags), options.runner
  if runner == 'DirectRunner':
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    # By name, DirectRunner may be one that is downloaded first.
    runner = FnApiRunner()
    mode = 'multi_processing' if options.workers > 1 else 'in_memory'
    flags += [f'--direct_num_workers={options.workers}', f'--direct_running_mode={mode}']
  try:
    with _quiet_processes(options), beam.Pipeline(runner=runner, options=PipelineOptions(flags)) as pipeline:
      build(pipeline, parts, config)
  except UsageError:
    raise
  except Exception as error:  # a worker's exception comes wrapped, with its traceback as text
    lines = [line for line in str(error).splitlines() if line.strip()]
    if options.traceback:
      raise
    raise RunError(
      f'the pipeline failed: {lines[-1] if lines else type(error).__name__}',
      where=f'{options.output}, {options.runner}',
      fix=['mend the cause and repeat the command: languages that are done are kept', 'or look closer: --traceback'],
    ) from error


@contextlib.contextmanager
def _quiet_processes(options: argparse.Namespace) -> Iterator[None]:
  """Beam's processes on this machine narrate their start on standard error, whatever level they are given."""
  if options.runner != 'DirectRunner' or options.workers == 1 or options.traceback:
    yield
    return
  kept = os.dup(2)
  with open(os.devnull, 'wb') as nowhere:
    os.dup2(nowhere.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def _show(console: Console, store: TokenStore) -> None:
  rows, lost = [], {}
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
    for reason, count in part.lost.items():
      lost[reason] = lost.get(reason, 0) + count
  columns = ('', 'documents', 'held out', 'sentences', 'tokens', 'rows', 'filled')
  console.table('Languages', columns, rows)
  if lost:
    console.facts('Left out', {reason: f'{count:,}' for reason, count in sorted(lost.items())})
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
  options, beam_flags = parser().parse_known_args(argv)
  return run_command('tasks.token_store', lambda: make_store(options, beam_flags), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
