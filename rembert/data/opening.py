"""From `data.source` to batches: text as it streams by, or a token store."""

import jax
from etils import epath

from rembert.data.batches import OpenedData
from rembert.data.config import DataRequest
from rembert.data.language_table import show_languages
from rembert.data.mixture import sampling_rates
from rembert.data.packing import PackingConfig
from rembert.data.stored_batches import StoredBatches
from rembert.data.token_store import VOCABULARY, StoredLanguage, TokenStore
from rembert.errors import UsageError
from rembert.storage import write_whole
from rembert.training.console import Console
from tasks.corpus.format import LanguageStatistics
from tasks.vocabulary import begins_word
from tasks.wikipedia.languages import chosen_languages, missing_in_words


def open_data(request: DataRequest, *, workdir: epath.Path, console: Console) -> OpenedData:
  """Opens what `request` names; UsageError where something is missing, before anything expensive is begun."""
  if request.data.source == 'store':
    return open_store(request, workdir=workdir, console=console)
  from rembert.data.stream import open_stream

  return open_stream(request, workdir=workdir, console=console)


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
  # What has sentences and no row to train on is left out like what has none.
  sentences = {language: counts.sentences for language, counts in statistics.items() if store.rows(language, 'train')}
  if not any(sentences.values()):
    raise UsageError('the store holds no rows to train on', where=str(store.folder), fix='choose other languages')
  rates = sampling_rates(sentences, data.alpha, max_share=data.max_share, max_upsampling=data.max_upsampling)
  show_languages(console, statistics, rates, limits_of=data)
  file = workdir / 'vocabulary' / 'sentencepiece.model'
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
  identity = {'store': store.manifest_hash, **{f'rate of {language}': rate for language, rate in rates.items()}}
  return OpenedData(batches=batches, vocabulary=file, identity=identity)


def _refuse_other_model(store: TokenStore, sequence_length: int, vocab_size: int) -> None:
  if store.sequence_length != sequence_length:
    raise UsageError(
      f'the store has rows of {store.sequence_length} tokens, and training wants {sequence_length}',
      where=f'{store.folder}, train.sequence_length',
      fix=f'--gin.train.sequence_length={store.sequence_length}, or a store with --sequence_length={sequence_length}',
    )
  if store.vocab_size > vocab_size:
    raise UsageError(
      f'the store has a vocabulary of {store.vocab_size:,} pieces, and the model one of {vocab_size:,}',
      where=f'{store.folder}, RemBertConfig.vocab_size',
      fix=f'--gin.RemBertConfig.vocab_size={store.vocab_size}',
    )


def _statistics(part: StoredLanguage) -> LanguageStatistics:
  return LanguageStatistics(
    documents=part.documents['train'],
    held_out=part.documents['validation'],
    sentences=part.sentences,
    characters=part.characters,
    lost=part.lost,
  )
