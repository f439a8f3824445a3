"""The data of pre-training: a token store, or SeqIO tasks as their text streams by."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
from etils import epath

from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
from rembert.data.masking import BatchSource
from rembert.data.mixture import sampling_rates
from rembert.data.packing import PackingConfig
from rembert.data.store_source import StoredBatches
from rembert.data.stream_source import StreamedBatches
from rembert.data.token_store import VOCABULARY, StoredLanguage, TokenStore
from rembert.errors import Setting, UsageError, joined
from rembert.files import write_whole
from rembert.tokenizer import SpecialIds, begins_word, check_vocabulary
from rembert.tracking.console import Console
from tasks.corpus.format import LanguageStatistics
from tasks.vocabulary import train_on_corpus
from tasks.wikipedia.languages import chosen_languages, missing_in_words

if TYPE_CHECKING:
  import seqio

  from tasks.corpus.format import Corpus

# The file of the workdir that every run has.
_VOCABULARY = 'vocabulary/sentencepiece.model'


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """Text made ready for training.

  Attributes:
    batches: the source of batches.
    vocabulary: file of the SentencePiece model, in the workdir.
    identity: what resuming depends on (sampling rates, vocabulary); JSON, by name.
  """

  batches: BatchSource
  vocabulary: epath.Path
  identity: dict


def open_data(request: DataRequest, *, workdir: epath.Path, console: Console) -> OpenedData:
  """Opens the data of a run, and puts its vocabulary into the workdir.

  A token store is opened without TensorFlow. Everything else is streamed through SeqIO tasks: those of `data.mixture`,
  or of a corpus, which is `data.corpus` or made in the workdir.

  Raises:
    UsageError: something is missing or does not fit, as far as that can be told before any expensive work.
  """
  if request.data.source == 'store':
    return open_store(request, workdir=workdir, console=console)
  if request.data.mixture:
    return _open_mixture(request.data.mixture, request, workdir, console)
  return _open_corpus(request, workdir, console)


# --- a token store ----------------------------------------------------------------------------------------------------


def open_store(request: DataRequest, *, workdir: epath.Path, console: Console) -> OpenedData:
  """Opens a token store; imports neither TensorFlow nor SeqIO."""
  if request.packing != PackingConfig():
    raise UsageError(
      'the rows of a store are packed already',
      where='packing.*, data.source',
      fix='leave packing as it is; a store is packed otherwise by python -m tasks.token_store --help',
    )
  data, vocab_size = request.data, request.vocab_size
  store = TokenStore(data.store)
  _refuse_other_model(store, request.sequence_length, vocab_size)
  languages = chosen_languages(data.languages, store.languages, where=f'data.languages, {store.folder}')
  if missing := missing_in_words(data.languages or (), store.languages):
    console.say(missing)
  statistics = {language: _statistics(store.languages[language]) for language in languages}
  rates = _stored_rates(store, languages, data, console)
  show_languages(console, statistics, rates, limits_of=data)
  file = workdir / _VOCABULARY
  write_whole(file, (store.folder / VOCABULARY).read_bytes())
  batches = StoredBatches(
    store=store,
    rates=rates,
    batch_size=request.batch_size,
    vocab_size=vocab_size,
    seed=request.seed,
    masking=request.masking,
    begins_word_V=begins_word(file, vocab_size) if request.masking.whole_word else None,
    evaluation_rows=request.evaluation_rows,
    process=(jax.process_index(), jax.process_count()),
    read_threads=data.read_threads,
  )
  return OpenedData(batches=batches, vocabulary=file, identity={'store': store.manifest_hash, **_named_rates(rates)})


def _refuse_other_model(store: TokenStore, sequence_length: int, vocab_size: int) -> None:
  if store.sequence_length != sequence_length:
    raise UsageError(
      f'the store has rows of {store.sequence_length} tokens, and training wants {sequence_length}',
      where=f'{store.folder}, train.sequence_length',
      fix=[
        Setting('train.sequence_length', store.sequence_length),
        f'or a store with --sequence_length={sequence_length}',
      ],
    )
  if store.vocab_size > vocab_size:
    raise UsageError(
      f'the store has a vocabulary of {store.vocab_size:,} pieces, and the model one of {vocab_size:,}',
      where=f'{store.folder}, RemBertConfig.vocab_size',
      fix=Setting('RemBertConfig.vocab_size', store.vocab_size),
    )


def _stored_rates(store: TokenStore, languages: Sequence[str], data: DataConfig, console: Console) -> dict[str, float]:
  """Those of the mixture that a store was made of, or by the sentences; of what has rows to train on."""
  with_rows = [language for language in languages if store.rows(language, 'train')]
  if store.rates is None:
    numbers = {language: store.languages[language].sentences for language in with_rows}
  else:
    numbers = {language: store.rates.get(language, 0.0) for language in with_rows}
  if not any(numbers.values()):
    raise UsageError('the store holds no rows to train on', where=str(store.folder), fix='choose other languages')
  if store.rates is None:
    return sampling_rates(numbers, data.alpha, max_share=data.max_share, max_upsampling=data.max_upsampling)
  console.say('rates are those of the mixture that the store was made of; data.alpha and its limits do not apply')
  return sampling_rates(numbers, alpha=1.0)


def _statistics(part: StoredLanguage) -> LanguageStatistics:
  return LanguageStatistics(
    documents=part.documents['train'],
    held_out=part.documents['validation'],
    sentences=part.sentences,
    characters=part.characters,
    lost=part.lost,
  )


# --- SeqIO tasks ------------------------------------------------------------------------------------------------------


def _open_corpus(request: DataRequest, workdir: epath.Path, console: Console) -> OpenedData:
  # TensorFlow takes seconds to import: only streaming needs it.
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
  sentences = {language: counts.sentences for language, counts in corpus.languages.items()}
  rates = sampling_rates(sentences, data.alpha, max_share=data.max_share, max_upsampling=data.max_upsampling)
  show_languages(console, corpus.languages, rates, limits_of=data)
  show_lost(console, corpus.lost)
  file = _prepared_vocabulary(corpus, vocabulary, rates, request.vocab_size, workdir, console)

  from tasks import registration
  from tasks.text_tasks import add_wikipedia

  add_wikipedia(
    corpus=corpus,
    vocabulary=file,
    alpha=data.alpha,
    max_share=data.max_share,
    max_upsampling=data.max_upsampling,
  )
  tasks = {language: registration.find(registration.valid_name('wikipedia', language)) for language in rates}
  return _open_tasks(request, tasks, rates, file, {'corpus': corpus.fingerprint}, console)


def _prepared_vocabulary(
  corpus: 'Corpus',
  vocabulary: VocabularyConfig,
  rates: Mapping[str, float],
  vocab_size: int,
  workdir: epath.Path,
  console: Console,
) -> epath.Path:
  """The vocabulary as a file of the workdir: copied there, or trained there unless that has been done already."""
  file, origin_file = workdir / _VOCABULARY, workdir / 'vocabulary' / 'origin.json'
  if vocabulary.path is not None:
    write_whole(file, epath.Path(vocabulary.path).read_bytes())
    write_whole(origin_file, json.dumps({'copied_from': vocabulary.path}))
    return file
  origin = {'trained_on': corpus.fingerprint, **dataclasses.asdict(vocabulary), 'size': vocab_size, 'rates': rates}
  origin = json.loads(json.dumps(origin))
  if not (file.exists() and origin_file.exists() and json.loads(origin_file.read_text()) == origin):
    train_on_corpus(
      corpus,
      file,
      rates=rates,
      size=vocab_size,
      characters=vocabulary.sample_characters,
      character_coverage=vocabulary.character_coverage,
      console=console,
    )
    write_whole(origin_file, json.dumps(origin, indent=1))
  check_vocabulary(file, vocab_size)
  return file


def _open_mixture(name: str, request: DataRequest, workdir: epath.Path, console: Console) -> OpenedData:
  import tasks.mixtures  # noqa: F401 - registers those of this project
  from tasks import pretraining, registration

  # isort: split
  import seqio

  mixture = registration.find(name)
  by_name = {task.name: task for task in seqio.get_subtasks(mixture)}
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
  content = epath.Path(vocabulary).read_bytes()
  if (path := request.vocabulary.path) is not None and epath.Path(path).read_bytes() != content:
    raise UsageError(
      f'the tasks of {name!r} have another vocabulary than vocabulary.path',
      where=f'{vocabulary}; vocabulary.path = {path}',
      fix=['--gin.vocabulary.path=None', f'or, for tasks of this project, export REMBERT_VOCABULARY={path}'],
    )
  file = workdir / _VOCABULARY
  write_whole(file, content)
  rates = pretraining.normalized_rates(mixture)
  show_tasks(console, name, rates, {task for task in rates if 'validation' in by_name[task].splits})
  return _open_tasks(request, {task: by_name[task] for task in rates}, rates, file, {}, console)


def _open_tasks(
  request: DataRequest,
  tasks: Mapping[str, 'seqio.Task'],
  rates: Mapping[str, float],
  vocabulary: epath.Path,
  identity: Mapping[str, str],
  console: Console,
) -> OpenedData:
  """The stream of tasks by language, or by name, with a rate each."""
  from tasks.pretraining import TaskDocuments

  vocab_size, data = request.vocab_size, request.data
  documents = TaskDocuments(
    tasks, special=SpecialIds(), vocab_size=vocab_size, sequence_length=request.sequence_length, seed=request.seed
  )
  with console.task(f'opening {len(tasks)} SeqIO task(s)') as update:
    if slow := documents.prepare(update):
      console.say(
        f'{", ".join(slow[:_MOST])}: the preprocessors look at several examples, or drop features after a filter; so a '
        'resumed run preprocesses again what it has read before'
      )
  batches = StreamedBatches(
    rates=rates,
    open_documents=documents,
    batch_size=request.batch_size,
    sequence_length=request.sequence_length,
    vocab_size=vocab_size,
    seed=request.seed,
    masking=request.masking,
    begins_word_V=begins_word(vocabulary, vocab_size) if request.masking.whole_word else None,
    packing=request.packing,
    shuffle_rows=data.shuffle_rows,
    evaluation_rows=request.evaluation_rows,
    process=(jax.process_index(), jax.process_count()),
  )
  digest = hashlib.sha256(vocabulary.read_bytes()).hexdigest()
  names = [task.name for task in tasks.values()]
  identity = {**identity, 'vocabulary': digest, 'tasks': names, **_named_rates(rates)}
  return OpenedData(batches=batches, vocabulary=vocabulary, identity=identity)


def _named_rates(rates: Mapping[str, float]) -> dict[str, float]:
  return {f'rate of {name}': rate for name, rate in rates.items()}


# --- tables -----------------------------------------------------------------------------------------------------------

_MOST = 24  # lines of a table; smaller languages share the last


def show_languages(
  console: Console,
  statistics: Mapping[str, LanguageStatistics],
  rates: Mapping[str, float],
  *,
  limits_of: DataConfig,
) -> None:
  """Documents, sentences and sampling rates by language, the largest first; small ones beyond `_MOST` in one row."""
  # Upsampled: how many times as often as the average sentence of the corpus a sentence of the language is drawn.
  total = sum(counts.sentences for counts in statistics.values())

  def row(label: str, languages: Sequence[str]) -> tuple[str, ...]:
    documents, held_out, sentences = (
      sum(getattr(statistics[language], name) for language in languages)
      for name in ('documents', 'held_out', 'sentences')
    )
    rate = sum(rates.get(language, 0.0) for language in languages)
    sampled = (
      f'{rate:.2%}' if rate else 'no text: left out',
      f'× {rate * total / sentences:.3g}' if rate * sentences else '',
    )
    return (label, f'{documents:,}', f'{held_out:,}', f'{sentences:,}', *sampled)

  largest_first = sorted(statistics, key=lambda language: -statistics[language].sentences)
  columns = ('', 'documents', 'held out', 'sentences', 'sampled', 'upsampled')
  console.table('Languages', columns, _rows(largest_first, row))
  if limits := _limits_in_words(limits_of):
    console.say(f'no language above {" or ".join(limits)}')
  broken = sum(counts.lost.get('broken pages', 0) for counts in statistics.values())
  if broken:
    console.say(f'{broken} broken page(s) left out')
  left_out = [language for language in statistics if language not in rates]
  if left_out:
    console.say(f'nothing to train on, left out: {", ".join(left_out)}')
  if not any(statistics[language].held_out for language in rates):
    console.say('no document is held out: there will be no evaluation (data.held_out)')


def show_tasks(console: Console, mixture: str, rates: Mapping[str, float], with_validation: Collection[str]) -> None:
  """Sampling rates of SeqIO tasks, the largest first, and whether they can be evaluated."""
  row = lambda label, names: (label, f'{sum(rates[name] for name in names):.2%}')
  console.table(f'SeqIO tasks of {mixture}', ('', 'sampled'), _rows(sorted(rates, key=lambda name: -rates[name]), row))
  if not with_validation:
    console.say("no task has a split 'validation': there will be no evaluation")


def _rows(names: Sequence[str], row: Callable[[str, Sequence[str]], tuple[str, ...]]) -> list[tuple[str, ...]]:
  rest = names[_MOST:]
  return [row(name, [name]) for name in names[:_MOST]] + ([row(f'{len(rest)} more', rest)] if rest else [])


def _limits_in_words(data: DataConfig) -> list[str]:
  share = [] if data.max_share is None else [f'{data.max_share:.4g} of all rows']
  upsampling = [] if data.max_upsampling is None else [f'{data.max_upsampling:.4g} times its share of the sentences']
  return share + upsampling
