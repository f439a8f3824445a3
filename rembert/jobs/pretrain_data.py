"""Opens the data of pre-training: a token store, or text that is streamed through SeqIO tasks."""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from rembert.data.batches import BatchSource, Sampling
from rembert.data.config import DataConfig, DataRequest
from rembert.data.mixture import sampling_rates
from rembert.data.packing import PackingConfig
from rembert.data.phases import Phase, PhasedBatches, PhasesConfig, phases_of
from rembert.data.store_source import StoredBatches
from rembert.data.stream_source import StreamedBatches
from rembert.data.token_store import SPLITS, VOCABULARY, TokenStore
from rembert.errors import Setting, UsageError, joined
from rembert.files import write_whole
from rembert.tokenizer import SpecialIds, check_vocabulary
from rembert.tracking.console import Console
from tasks.corpus.format import MANIFEST, LanguageStatistics, open_corpus
from tasks.vocabulary import origin_of, train_on_corpus
from tasks.wikipedia.languages import chosen_languages

if TYPE_CHECKING:
  import seqio

  from tasks.corpus.format import Corpus

_VOCABULARY, _ORIGIN = 'vocabulary/sentencepiece.model', 'vocabulary/origin.json'  # in every workdir
_MOST = 24  # languages or tasks of a table; smaller ones share the last row

Rates = Callable[[Phase], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """Opened training data."""

  batches: BatchSource
  vocabulary: epath.Path  # file of the SentencePiece model, in the workdir
  identity: dict  # values that must be the same on resuming (sampling rates, vocabulary); JSON, by name
  rates_in: Rates  # sampling rates of a phase
  source_in: Callable[[Phase], BatchSource]  # with the sequence length and store of a phase, but not its rates


def open_data(
  request: DataRequest, *, workdir: epath.Path, console: Console, phases: Sequence[Phase] = ()
) -> OpenedData:
  """Opens the data of a run, and puts its vocabulary into the workdir.

  A token store is opened without TensorFlow. All other text is streamed through SeqIO tasks: those of `data.mixture`,
  or of a corpus, which is `data.corpus` or made in the workdir. Batches follow `phases`, if there are any.

  Raises:
    UsageError: something is missing or inconsistent; before any expensive work, if possible.
  """
  is_stored, has_mixture = request.data.source == 'store', request.data.mixture is not None
  open_text = _open_store if is_stored else _open_mixture if has_mixture else _open_corpus
  # The run's own settings are those of a run with one phase.
  [own] = phases_of(
    PhasesConfig(), steps=1, data=request.data, masking=request.masking, sequence_length=request.sequence_length
  )
  opened = open_text(request, own, workdir, console)
  rates = {f'rate of {name}': rate for name, rate in opened.batches.rates.items()}
  batches = _in_phases(opened, phases) if phases else opened.batches
  return dataclasses.replace(opened, batches=batches, identity=opened.identity | rates)


def _in_phases(opened: OpenedData, phases: Sequence[Phase]) -> BatchSource:
  """The batches of a run in phases."""
  own = opened.batches
  sources: dict[tuple, BatchSource] = {}
  schedules: dict[tuple, list[Sampling]] = {}
  for phase in phases:
    rates = opened.rates_in(phase)
    if others := sorted(set(rates) - set(own.rates)):
      raise UsageError(
        f'phase {phase.number + 1} samples {", ".join(others)}, which the run leaves out',
        where='phases.languages, phases.mixture, phases.store',
        fix='data.languages, data.mixture or data.store with all that any phase samples: held-out rows are of these',
      )
    key = phase.sequence_length, phase.store
    if key not in sources:
      sources[key], schedules[key] = opened.source_in(phase), []
    slots = dataclasses.replace(own.masking, rate=phase.largest_masking_rate).slots(phase.sequence_length)
    in_order = tuple(rates.get(language, 0.0) for language in own.rates)
    schedules[key].append(Sampling(phase.begin, phase.end, in_order, phase.masking_rate, slots))
  sources = {
    key: dataclasses.replace(source, rates=own.rates, schedule=tuple(schedules[key])) for key, source in sources.items()
  }
  begins = itertools.groupby(phases, lambda phase: (phase.sequence_length, phase.store))
  return PhasedBatches.chain([(next(same).begin, sources[key]) for key, same in begins], own)


def _batch_options(request: DataRequest, rates: Mapping[str, float]) -> dict[str, Any]:
  """The arguments that stored and streamed batches share."""
  shared = ('batch_size', 'vocab_size', 'seed', 'masking', 'evaluation_rows')
  process = jax.process_index(), jax.process_count()
  return {'rates': rates, 'process': process, **{name: getattr(request, name) for name in shared}}


def _copy_vocabulary(source: epath.PathLike, workdir: epath.Path) -> epath.Path:
  file = workdir / _VOCABULARY
  write_whole(file, epath.Path(source).read_bytes())
  return file


def _limits(data: DataConfig) -> dict[str, Any]:
  return {'max_share': data.max_share, 'max_upsampling': data.max_upsampling}


def known_rates(data: DataConfig, workdir: epath.Path) -> Rates | None:
  """A function from phase to sampling rates; None if they follow from a mixture, or from a corpus still to be made.

  Imports no TensorFlow. UsageError for a store or corpus that is not there.
  """
  if data.source == 'store':
    return _StoredText(data).rates
  folder = epath.Path(data.corpus or workdir / 'corpus')
  if data.mixture or not (data.corpus or (folder / MANIFEST).exists()):
    return None
  return functools.partial(_corpus_rates, data, open_corpus(folder).of_languages(data.languages))


# --- a token store ----------------------------------------------------------------------------------------------------


class _StoredText:
  """Languages and sampling rates of the token store of a phase."""

  def __init__(self, data: DataConfig):
    self._data, self.open_store = data, functools.cache(TokenStore)

  def statistics(self, phase: Phase, say: Callable[[str], None] = lambda text: None) -> dict[str, LanguageStatistics]:
    """Counts of the languages of a phase; UsageError for one that is not in the store."""
    store = self.open_store(phase.store)
    where = f'data.languages, phases.languages, {store.folder}'
    found = {}
    for language in chosen_languages(phase.languages, store.languages, where=where, say=say):
      part = store.languages[language]
      documents, held_out = (part.documents[split] for split in SPLITS)
      found[language] = LanguageStatistics(documents, held_out, part.sentences, part.characters, part.lost)
    return found

  def rates(self, phase: Phase) -> dict[str, float]:
    """Rates of the languages with training rows: the mixture's that the store was made of, or by sentences."""
    store = self.open_store(phase.store)
    sizes = {language: part.sentences for language, part in self.statistics(phase).items()}
    if store.rates is not None:
      sizes = {language: store.rates.get(language, 0.0) for language in sizes}
    sizes = {language: size for language, size in sizes.items() if store.rows(language, 'train')}
    if not any(sizes.values()):
      raise UsageError('the store has no training sequences', where=str(store.folder), fix='choose other languages')
    if store.rates is not None:
      return sampling_rates(sizes, alpha=1.0)
    return sampling_rates(sizes, phase.alpha, **_limits(self._data))


def _open_store(request: DataRequest, own: Phase, workdir: epath.Path, console: Console) -> OpenedData:
  if request.packing != PackingConfig():
    raise UsageError(
      'packing does not apply to a token store, which is already packed',
      where='packing.*, data.source',
      fix='omit packing; python -m tasks.token_store has flags for it',
    )
  text = _StoredText(request.data)
  store = text.open_store(own.store)
  _refuse_other_model(store, request.sequence_length, request.vocab_size)
  statistics, rates = text.statistics(own, console.say), text.rates(own)
  if store.rates is not None:
    console.say('sampling rates are those of the mixture of the store; data.alpha and its limits do not apply')
  _show_languages(console, statistics, rates, request.data)
  batches = StoredBatches(store=store, read_threads=request.data.read_threads, **_batch_options(request, rates))

  def source_in(phase: Phase) -> BatchSource:
    other = text.open_store(phase.store)
    _refuse_other_model(other, phase.sequence_length, request.vocab_size)
    if other.vocabulary_hash != store.vocabulary_hash:
      raise UsageError(
        'the stores of the phases have different vocabularies',
        where=f'{store.folder}, {other.folder}',
        fix='make both with the same --vocabulary',
      )
    return dataclasses.replace(batches, store=other)

  vocabulary = _copy_vocabulary(store.folder / VOCABULARY, workdir)
  return OpenedData(batches, vocabulary, {'store': store.manifest_hash}, text.rates, source_in)


def _refuse_other_model(store: TokenStore, sequence_length: int, vocab_size: int) -> None:
  if store.sequence_length != sequence_length:
    raise UsageError(
      f'sequence length mismatch: {store.sequence_length} in the token store, {sequence_length} in training',
      where=f'{store.folder}, train.sequence_length',
      fix=[
        Setting('train.sequence_length', store.sequence_length),
        f'or make a store with --sequence_length={sequence_length}',
      ],
    )
  if store.vocab_size > vocab_size:
    raise UsageError(
      f'vocabulary size mismatch: {store.vocab_size:,} in the token store, {vocab_size:,} in the model',
      where=f'{store.folder}, RemBertConfig.vocab_size',
      fix=Setting('RemBertConfig.vocab_size', store.vocab_size),
    )


# --- a corpus ---------------------------------------------------------------------------------------------------------


def _corpus_rates(data: DataConfig, corpus: 'Corpus', phase: Phase) -> dict[str, float]:
  chosen = chosen_languages(phase.languages, corpus.languages, where='data.languages, phases.languages')
  sizes = {language: corpus.languages[language].sentences for language in chosen}
  return sampling_rates(sizes, phase.alpha, **_limits(data))


def _open_corpus(request: DataRequest, own: Phase, workdir: epath.Path, console: Console) -> OpenedData:
  from tasks.corpus.__main__ import show_lost
  from tasks.corpus.build import find_corpus

  data, vocabulary = request.data, request.vocabulary
  errors = []
  if vocabulary.path is not None:
    try:
      check_vocabulary(vocabulary.path, request.vocab_size)
    except UsageError as error:
      errors.append(error)
  try:
    make_corpus = find_corpus(data, workdir, console)
  except UsageError as error:
    errors.append(error)
  if errors:
    raise joined(errors)

  corpus = make_corpus()
  rates = _corpus_rates(data, corpus, own)
  _show_languages(console, corpus.languages, rates, data)
  show_lost(console, corpus.lost)
  file = _prepare_vocabulary(corpus, request, rates, workdir, console)

  # TensorFlow takes seconds to import: only streaming needs it.
  from tasks import registration
  from tasks.mixtures import add_wikipedia

  add_wikipedia(corpus=corpus, vocabulary=file, alpha=data.alpha, **_limits(data))
  tasks = {language: registration.find(registration.valid_name('wikipedia', language)) for language in rates}
  rates_in = functools.partial(_corpus_rates, data, corpus)
  return _open_tasks(request, tasks, rates, file, {'corpus': corpus.fingerprint}, console, rates_in)


def _prepare_vocabulary(
  corpus: 'Corpus', request: DataRequest, rates: Mapping[str, float], workdir: epath.Path, console: Console
) -> epath.Path:
  """Copies the vocabulary to the workdir, or trains it there unless it exists; returns its path."""
  file, origin_file = workdir / _VOCABULARY, workdir / _ORIGIN
  vocabulary, size = request.vocabulary, request.vocab_size
  if vocabulary.path is not None:
    write_whole(origin_file, json.dumps({'copied_from': vocabulary.path}))
    return _copy_vocabulary(vocabulary.path, workdir)
  origin = origin_of(corpus, vocabulary, size, rates)
  if not (file.exists() and origin_file.exists() and json.loads(origin_file.read_text()) == origin):
    train_on_corpus(corpus, file, vocabulary, size=size, rates=rates, console=console)
    write_whole(origin_file, json.dumps(origin, indent=1))
  check_vocabulary(file, size)
  return file


def copied_vocabulary(workdir: epath.Path) -> str | None:
  """The file that the vocabulary of a workdir was copied from; None if it was trained there."""
  origin = workdir / _ORIGIN
  return json.loads(origin.read_text()).get('copied_from') if origin.exists() else None


# --- SeqIO tasks ------------------------------------------------------------------------------------------------------


def _open_mixture(request: DataRequest, own: Phase, workdir: epath.Path, console: Console) -> OpenedData:
  import tasks.mixtures  # noqa: F401 - registers those of this project
  from tasks import pretraining, registration

  # isort: split
  import seqio

  name = request.data.mixture or ''
  by_name = {task.name: task for task in seqio.get_subtasks(registration.find(name))}
  vocabulary = pretraining.check_tasks(list(by_name.values())).sentencepiece_model_file
  try:
    check_vocabulary(vocabulary, request.vocab_size)
  except UsageError as error:
    raise UsageError(
      error.what,
      where=f'{error.where}; vocabulary of {name!r}',
      fix="give the tasks a vocabulary with RemBERT's special ids, python -m tasks.vocabulary --help, that fits "
      'RemBertConfig.vocab_size',
    ) from error
  path = request.vocabulary.path
  if path is not None and epath.Path(path).read_bytes() != epath.Path(vocabulary).read_bytes():
    raise UsageError(
      f'the vocabulary of the tasks of {name!r} differs from vocabulary.path',
      where=f'{vocabulary}; vocabulary.path = {path}',
      fix=['--gin.vocabulary.path=None', f'or, for tasks of this project, export REMBERT_VOCABULARY={path}'],
    )
  file = _copy_vocabulary(vocabulary, workdir)
  rates_in = lambda phase: pretraining.normalized_rates(registration.find(phase.mixture or ''))
  rates = rates_in(own)
  row = lambda label, names: (label, f'{sum(rates[name] for name in names):.2%}')
  show_largest(console, f'SeqIO tasks of {name}', ('', 'sampled'), rates, row)
  if not any('validation' in by_name[task].splits for task in rates):
    console.say('warning: no task has a validation split; evaluation is disabled')
  return _open_tasks(request, {task: by_name[task] for task in rates}, rates, file, {}, console, rates_in)


def _open_tasks(
  request: DataRequest,
  tasks: Mapping[str, 'seqio.Task'],
  rates: Mapping[str, float],
  vocabulary: epath.Path,
  identity: Mapping[str, str],
  console: Console,
  rates_in: Rates,
) -> OpenedData:
  """The stream of tasks by language, or by name, each with its rate."""
  from tasks.pretraining import TaskDocuments

  @functools.cache
  def source(sequence_length: int) -> StreamedBatches:
    documents = TaskDocuments(
      tasks,
      special=SpecialIds(),
      vocab_size=request.vocab_size,
      sequence_length=sequence_length,
      seed=request.seed,
    )
    with console.task(f'opening {len(tasks)} SeqIO task(s)') as update:
      if slow := documents.prepare(update):
        console.say(
          f'{", ".join(slow[:_MOST])}: preprocessors combine several examples, or drop features after a filter, so '
          'a resumed run preprocesses earlier text again'
        )
    return StreamedBatches(
      open_documents=documents,
      sequence_length=sequence_length,
      packing=request.packing,
      shuffle_rows=request.data.shuffle_rows,
      **_batch_options(request, rates),
    )

  digest = hashlib.sha256(vocabulary.read_bytes()).hexdigest()
  names = [task.name for task in tasks.values()]
  identity = {**identity, 'vocabulary': digest, 'tasks': names}
  batches = source(request.sequence_length)
  return OpenedData(batches, vocabulary, identity, rates_in, lambda phase: source(phase.sequence_length))


# --- tables -----------------------------------------------------------------------------------------------------------


def _show_languages(
  console: Console, statistics: Mapping[str, LanguageStatistics], rates: Mapping[str, float], data: DataConfig
) -> None:
  """Prints documents, sentences and sampling rates by language, and the skipped languages."""
  total = sum(counts.sentences for counts in statistics.values())

  def row(label: str, languages: Sequence[str]) -> tuple[str, ...]:
    count = lambda name: sum(getattr(statistics[language], name) for language in languages)
    rate, sentences = sum(rates.get(language, 0.0) for language in languages), count('sentences')
    counts = tuple(f'{count(name):,}' for name in ('documents', 'held_out', 'sentences'))
    # Upsampling: how often a sentence of the language is sampled, relative to the corpus average.
    upsampled = f'× {rate * total / sentences:.3g}' if rate * sentences else ''
    return (label, *counts, f'{rate:.2%}' if rate else 'skipped: no text', upsampled)

  columns = ('', 'documents', 'held out', 'sentences', 'sampled', 'upsampled')
  sizes = {language: counts.sentences for language, counts in statistics.items()}
  show_largest(console, 'Languages', columns, sizes, row)
  limits = [f'{data.max_share:.4g} of all sequences'] if data.max_share is not None else []
  if data.max_upsampling is not None:
    limits.append(f'{data.max_upsampling:.4g} times its share of the sentences')
  if limits:
    console.say(f'sampling capped at {" or ".join(limits)}')
  if broken := sum(counts.lost.get('broken pages', 0) for counts in statistics.values()):
    console.say(f'skipped {broken} malformed page(s)')
  if left_out := [language for language in statistics if language not in rates]:
    console.say(f'skipped, no text to train on: {", ".join(left_out)}')
  if not any(statistics[language].held_out for language in rates):
    console.say('warning: no held-out documents; evaluation is disabled (data.held_out)')


def show_largest(
  console: Console,
  title: str,
  columns: Sequence[str],
  sizes: Mapping[str, float],
  row: Callable[[str, Sequence[str]], tuple[str, ...]],
) -> None:
  """Prints a table with a row for each of the largest `_MOST`, and one for the rest."""
  names = sorted(sizes, key=lambda name: -sizes[name])
  rows, rest = [row(name, [name]) for name in names[:_MOST]], names[_MOST:]
  console.table(title, columns, rows + ([row(f'{len(rest)} more', rest)] if rest else []))
