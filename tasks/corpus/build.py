"""A corpus is built in this process, or by Apache Beam on any of its runners; both write the same bytes.

A folder has one recipe. Languages that are done stay, and the manifest comes last.
"""

import collections
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from rembert.data.config import DataConfig
from rembert.errors import RunError, UsageError
from rembert.files import write_errors, write_whole
from rembert.tracking.console import Console, human_bytes
from tasks.corpus.documents import (
  CorpusConfig,
  Document,
  Lost,
  Part,
  bytes_by_language,
  clean,
  find_parts,
  first_of,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
  read_part,
  shard_of,
)
from tasks.corpus.format import (
  MANIFEST,
  RECIPE,
  Corpus,
  WrittenShard,
  finish_corpus,
  finish_language,
  finished_languages,
  open_corpus,
  write_shard,
)

if TYPE_CHECKING:
  import apache_beam as beam

LARGEST = 1 << 30  # bytes of input of a language, compressed or not, that one process takes
_TELL_EVERY = 1000  # documents
_HELP = 'python -m tasks.corpus --help'

Tell = Callable[[str], None]  # shows a note on how far something is


def make_corpus(
  parts: Sequence[Part],
  folder: epath.PathLike,
  config: CorpusConfig,
  console: Console,
  *,
  runner: 'BeamRunner | None' = None,
  group_mb: float = 0,
  command: str = _HELP,
) -> Corpus:
  """Makes the languages that are not done yet, and writes the manifest; opens what is complete.

  Args:
    parts: what to read into the folder of the corpus.
    config: how documents are chosen.
    runner: of Apache Beam. None: in this process, a language at a time, all of it in memory.
    group_mb: Beam makes languages together up to so many MB of input; 0 for all at once.
    command: does the same with Apache Beam; for the message.

  Raises:
    UsageError: the folder holds a corpus built with different options; or all of it holds no text to train on; or,
      without Beam, a language has more than about 1 GB of input.
    RunError: the pipeline failed; the same call resumes it.
  """
  where, folder, sizes = os.fspath(folder), epath.Path(folder), bytes_by_language(parts)
  is_complete = (folder / MANIFEST).exists()
  large = [f'{name}: {human_bytes(size)}' for name, size in sizes.items() if size > LARGEST]
  if large and runner is None and not is_complete:
    raise UsageError(
      f'too much text to prepare in this process: at most {human_bytes(LARGEST)} of input per language',
      where=', '.join(large[:6]) + (', …' if len(large) > 6 else ''),
      fix=command,
    )
  # The recipe does not depend on where the sources lie.
  moved = [dataclasses.replace(part, path=part.path.rsplit('/', 1)[-1], data_dir=None) for part in parts]
  recipe = dataclasses.asdict(config) | {'sources': [list(dataclasses.astuple(part)) for part in moved]}
  refuse_other_recipe(folder / RECIPE, recipe, 'corpus')
  if not is_complete:
    with write_errors('the corpus', folder):
      write_whole(folder / RECIPE, json.dumps(recipe, indent=1))
    done = finished_languages(folder)

    def run(languages: list[str], tell: Tell) -> None:
      some = [part for part in parts if part.language in languages]
      if runner is None:
        finished = _add_languages(_LocalSteps(tell), some, where, config)
        with write_errors('the corpus', folder):
          list(finished)
      else:
        runner.run(lambda pipeline: _add_languages(_BeamSteps(pipeline), some, where, config), where)

    left = {language: size for language, size in sizes.items() if language not in done}
    run_in_groups(left, 1 if runner is None else group_mb * (1 << 20), console, 'making the corpus', run)
    with write_errors('the corpus', folder):
      finish_corpus(folder, sizes, recipe)
  corpus = open_corpus(folder)
  if not any(counts.documents for counts in corpus.languages.values()):
    lost = ', '.join(f'{reason}: {count:,}' for reason, count in corpus.lost.items())
    raise UsageError(
      'the corpus holds no text to train on' + (f'; left out are {lost}' if lost else ''),
      where=f'{folder}; languages: {", ".join(corpus.languages)}',
      fix='write the files as UTF-8: iconv -f LATIN1 -t UTF-8'
      if corpus.lost.get('not UTF-8')
      else 'check that dumps are of articles (pages-articles), or lower min_characters and held_out',
    )
  return corpus


def refuse_other_recipe(file: epath.Path, recipe: Mapping, what: str) -> None:
  """Raises UsageError with the differences if a folder holds a corpus or store of another recipe."""
  if not file.exists():
    return
  before = json.loads(file.read_text())
  different = [name for name in recipe if before.get(name) != recipe[name]]
  if different:
    raise UsageError(
      f'the folder holds a {what} built with different options: {", ".join(different)}',
      where=str(file.parent),
      fix=f'choose another --output or --workdir, delete that {what}, or repeat the old command to continue with it',
    )


def run_in_groups(
  sizes: Mapping[str, float],
  most_bytes: float,
  console: Console,
  description: str,
  run: Callable[[list[str], Tell], None],
) -> None:
  """Calls `run` with names of some languages at a time, up to `most_bytes` together; 0 for all at once."""
  groups: list[list[str]] = []
  filled = 0.0
  for name, size in sizes.items():
    if not groups or (most_bytes and filled + size > most_bytes):
      groups.append([])
      filled = 0.0
    groups[-1].append(name)
    filled += size
  if not groups:
    return
  with console.task(description) as progress:
    for number, group in enumerate(groups):
      tell = lambda note, number=number: progress(number / len(groups), note)
      tell(' '.join(group[:6]) + (' …' if len(group) > 6 else ''))
      run(group, tell)


# --- where a corpus is needed -----------------------------------------------------------------------------------------


def find_corpus(data: DataConfig, workdir: epath.PathLike, console: Console) -> Callable[[], Corpus]:
  """A function that opens the corpus of a streamed run, `data.corpus`, or makes `WORKDIR/corpus` unless it is there.

  What is missing is a UsageError now, before any work; the function raises as `make_corpus` does.
  """
  if data.corpus:
    opened = open_corpus(data.corpus).of_languages(data.languages, console.say)
    return lambda: opened
  kind, name = ('tfds', data.tfds) if data.source == 'tfds' else ('dumps', data.dumps)
  parts = find_parts(kind, name, data.languages, data_dir=data.tfds_data_dir, say=console.say)
  config = CorpusConfig(held_out=data.held_out, min_characters=data.min_characters)
  same = {field: getattr(data, field) for field in ('tfds_data_dir', 'languages', 'held_out', 'min_characters')}
  command = beam_command({kind: name, **same}, '--gin.data.corpus')
  return lambda: make_corpus(parts, epath.Path(workdir) / 'corpus', config, console, command=command)


def beam_command(options: Mapping[str, Any], flag: str) -> str:
  """The command that makes a corpus with Apache Beam, and the flag that names it; without options that are None."""
  given = shlex.join(
    f'--{name}={",".join(value) if isinstance(value, tuple) else value}'
    for name, value in options.items()
    if value is not None
  )
  return f'python -m tasks.corpus {given} --output=CORPUS; then {flag}=CORPUS'


@contextlib.contextmanager
def temporary_corpus(
  parts: Sequence[Part], config: CorpusConfig, console: Console, *, command: str = _HELP
) -> Iterator[Corpus]:
  """As `make_corpus` in this process, in a directory that is deleted at the end."""
  with tempfile.TemporaryDirectory() as folder:
    yield make_corpus(parts, folder, config, console, command=command)


def corpus_or_text(
  folder: epath.PathLike, languages: Sequence[str] | None, console: Console
) -> contextlib.AbstractContextManager[Corpus]:
  """The corpus in a folder; or its plain text, all of it, as a temporary corpus."""
  if (epath.Path(folder) / MANIFEST).exists():
    return contextlib.nullcontext(open_corpus(folder).of_languages(languages, console.say))
  parts = find_parts('text', os.fspath(folder), languages, say=console.say)
  return temporary_corpus(parts, CorpusConfig(held_out=0, min_characters=1), console)


# --- the steps, the same in this process and for Apache Beam ----------------------------------------------------------


class _LocalSteps:
  """Steps on lists in this process; what a step gives is used once, but for the parts of `partition`."""

  def __init__(self, tell: Tell):
    self._tell = tell

  def create(self, label: str, items: Iterable) -> Iterable:
    return items

  def flat_map(self, label: str, items: Iterable, function: Callable[[Any], Iterable], spread=False) -> Iterable:
    return itertools.chain.from_iterable(map(function, items))

  def partition(self, label: str, items: Iterable) -> tuple[Iterable, Iterable]:
    documents: list[Document] = []
    losses: list[Lost] = []
    for each in items:
      if isinstance(each, Lost):
        losses.append(each)
        continue
      if label == 'clean' and len(documents) % _TELL_EVERY == 0:
        self._tell(f'{each.language} · {len(documents):,} documents')
      documents.append(each)
    return documents, losses

  def group(self, label: str, pairs: Iterable) -> Iterable:
    groups = collections.defaultdict(list)
    for key, value in pairs:
      groups[key].append(value)
    yield from groups.items()

  def combine(self, label: str, pairs: Iterable, function: Callable[[Iterable], Any]) -> Iterable:
    return ((key, function(values)) for key, values in self.group(label, pairs))

  def flatten(self, label: str, *several: Iterable) -> Iterable:
    return itertools.chain(*several)


class _BeamSteps:
  """Only what every runner has is used: one output per step, no state, one last step that everything flows into."""

  def __init__(self, pipeline: 'beam.Pipeline'):
    import apache_beam as beam

    self._beam, self._pipeline = beam, pipeline

  def create(self, label, items):
    return self._pipeline | label >> self._beam.Create(items)

  def flat_map(self, label, items, function, spread=False):
    items = items | f'spread to {label}' >> self._beam.Reshuffle() if spread else items
    return items | label >> self._beam.FlatMap(function)

  def partition(self, label, items):
    # Tagged outputs would do the same, but not every runner has them.
    of_kind = lambda kind: self._beam.Filter(lambda each: isinstance(each, kind))
    return items | f'{label}: documents' >> of_kind(Document), items | f'{label}: lost' >> of_kind(Lost)

  def group(self, label, pairs):
    return pairs | label >> self._beam.GroupByKey()

  def combine(self, label, pairs, function):
    return pairs | label >> self._beam.CombinePerKey(function)

  def flatten(self, label, *several):
    return several | label >> self._beam.Flatten()


def _add_languages(steps: '_LocalSteps | _BeamSteps', parts: Sequence[Part], folder: str, config: CorpusConfig) -> Any:
  """Everything that makes the languages of `parts`; what comes of the last step is empty."""
  by_text = lambda document: [((document.language, document.digest), document)]
  numbers = numbers_of_shards(parts, config)

  # --- documents, cleaned --------------------------------------------------------------
  found = steps.flat_map('read', steps.create('parts', parts), read_part, spread=True)
  found = steps.flat_map('clean', found, lambda each: [clean(each, config)], spread=True)
  documents, lost = steps.partition('clean', found)
  losses = [lost]

  # --- each document once ---------------------------------------------------------------
  if config.dedupe != 'none':
    same = steps.group('same text', steps.flat_map('by text', documents, by_text))
    found = steps.flat_map('each document once', same, lambda element: first_of(element[1]))
    documents, lost = steps.partition('documents', found)
    losses.append(lost)

  # --- each paragraph once --------------------------------------------------------------
  if config.dedupe == 'paragraphs':
    # Not the function itself, whose types Beam would read, and want exactly.
    places = steps.flat_map('paragraphs', documents, lambda document: paragraph_places(document))
    first = steps.combine('first place of each', places, min)
    kept = steps.flat_map(
      'places by document', first, lambda element: [((element[0][0], element[1][0]), element[1][1])]
    )
    both = steps.flatten('documents and places', steps.flat_map('by document', documents, by_text), kept)
    together = steps.group('document and its places', both)
    found = steps.flat_map('each paragraph once', together, lambda element: keep_paragraphs(element[1], config))
    documents, lost = steps.partition('paragraphs', found)
    losses.append(lost)

  # --- shards, counts, statistics -------------------------------------------------------
  to_shard = lambda document: [((document.language, *shard_of(document, numbers)), document)]
  shards = steps.group('by shard', steps.flat_map('to shards', documents, to_shard))
  written = steps.flat_map('write', shards, lambda element: _write_shard(element, folder, numbers))
  reasons = steps.flat_map(
    'by reason', steps.flatten('all losses', *losses), lambda lost: [((lost.language, lost.reason), lost.count)]
  )
  counted = steps.flat_map(
    'losses by language',
    steps.combine('count losses', reasons, sum),
    lambda element: [(element[0][0], Lost(element[0][0], element[0][1], element[1]))],
  )
  languages = steps.create('languages', [(language, None) for language in numbers])
  by_language = steps.group('by language', steps.flatten('all of it', languages, written, counted))
  finish = lambda language, found: finish_language(folder, language, numbers[language], found)
  return steps.flat_map('finish', by_language, lambda element: finish(*element))


def _write_shard(element, folder: str, numbers: Mapping[str, Mapping[str, int]]) -> list[tuple[str, WrittenShard]]:
  (language, split, index), documents = element
  return [(language, write_shard(folder, language, split, index, numbers[language][split], documents))]


# --- Apache Beam ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BeamRunner:
  """Where a pipeline runs; UsageError if Beam is not installed.

  Attributes:
    name: Beam's: `DirectRunner` (this machine), `DataflowRunner`, `FlinkRunner`, `SparkRunner`, `DaskRunner`.
    workers: processes of the DirectRunner.
    flags: passed on to Beam; `show_traceback` raises Beam's own exception.
  """

  name: str
  workers: int
  flags: Sequence[str]
  show_traceback: bool

  def __post_init__(self):
    if importlib.util.find_spec('apache_beam') is None:
      raise UsageError(
        'Apache Beam is not installed', where=f'--runner={self.name}', fix='pip install "rembert[prepare]"'
      )

  def run(self, build: Callable[['beam.Pipeline'], None], where: str) -> None:
    """Runs what `build` adds to a pipeline; RunError, in plain words, if it fails."""
    logging.getLogger().setLevel(logging.ERROR)  # Beam logs much, from its import on
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    flags, runner = list(self.flags), self.name
    if runner == 'DirectRunner':
      from apache_beam.runners.portability.fn_api_runner import FnApiRunner

      # By name, DirectRunner may be one that is downloaded first.
      runner = FnApiRunner()
      mode = 'multi_processing' if self.workers > 1 else 'in_memory'
      flags += [f'--direct_num_workers={self.workers}', f'--direct_running_mode={mode}']
    elif runner == 'DaskRunner':
      runner = 'apache_beam.runners.dask.dask_runner.DaskRunner'  # Beam does not know it by its short name
    pipeline = None
    try:
      with self._quiet_processes(), beam.Pipeline(runner=runner, options=PipelineOptions(flags)) as pipeline:
        build(pipeline)
    except UsageError:
      raise
    except Exception as error:  # a worker's exception comes wrapped, with its traceback as text
      lines = [line for line in str(error).splitlines() if line.strip()]
      if self.show_traceback:
        raise
      raise RunError(
        f'the pipeline failed: {lines[-1] if lines else type(error).__name__}',
        where=f'{where}, {self.name}',
        fix=[
          'fix the cause and repeat the command: languages that are done are kept',
          'to see where in the code it failed: --traceback',
        ],
      ) from error
    finally:
      if client := getattr(getattr(pipeline, 'result', None), 'client', None):
        client.close()  # the DaskRunner leaves it open

  @contextlib.contextmanager
  def _quiet_processes(self) -> Iterator[None]:
    """Beam's processes on this machine log their start to standard error, whatever level they are given."""
    if self.name != 'DirectRunner' or self.workers == 1 or self.show_traceback:
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
