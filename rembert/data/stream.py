"""From a corpus to batches as its text streams by: vocabulary, SeqIO tasks, `StreamedBatches`.

The corpus, unless it has a place of its own, and the vocabulary are kept in the workdir and found by a second start.
"""

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import jax
from etils import epath

from rembert.data.batches import OpenedData, StreamedBatches
from rembert.data.config import DataRequest, VocabularyConfig
from rembert.data.language_table import show_languages
from rembert.data.masking import SpecialIds
from rembert.data.mixture import sampling_rates
from rembert.errors import UsageError
from rembert.storage import write_whole
from rembert.training.console import Console

if TYPE_CHECKING:
  from tasks.corpus.format import Corpus


def open_stream(request: DataRequest, *, workdir: epath.Path, console: Console) -> OpenedData:
  """Opens the corpus of `request`; UsageError where something is missing, before anything expensive is begun."""
  # TensorFlow takes seconds to import: only who streams text pays.
  from tasks.corpus.opening import find_corpus
  from tasks.vocabulary import begins_word, check_vocabulary

  data, vocabulary, vocab_size = request.data, request.vocabulary, request.vocab_size
  special, problems = None, []
  if vocabulary.path is not None:
    try:
      special = check_vocabulary(vocabulary.path, vocab_size)
    except UsageError as error:
      problems.append(error)
  try:
    make_corpus = find_corpus(data, workdir, console)
  except UsageError as error:
    problems.append(error)
  if problems:  # all at once: who mends one should not meet the next only then
    raise UsageError(
      '; '.join(error.what for error in problems),
      where='; '.join(error.where for error in problems),
      fix=[fix for error in problems for fix in error.fix],
    )

  corpus = make_corpus()
  sentences = {language: counts.sentences for language, counts in corpus.languages.items()}
  rates = sampling_rates(sentences, data.alpha, max_share=data.max_share, max_upsampling=data.max_upsampling)
  show_languages(console, corpus.languages, rates, limits_of=data)
  vocabulary_file, special = _prepared_vocabulary(
    corpus, vocabulary, special, rates, vocab_size=vocab_size, workdir=workdir, console=console
  )
  with console.task('opening SeqIO tasks'):
    from tasks import mlm

    mixture = mlm.register(corpus, str(vocabulary_file), rates)

  batches = StreamedBatches(
    rates=rates,
    open_documents=mlm.open_documents(mixture, corpus),
    batch_size=request.batch_size,
    sequence_length=request.sequence_length,
    vocab_size=vocab_size,
    seed=request.seed,
    special=special,
    masking=request.masking,
    begins_word_V=begins_word(vocabulary_file, vocab_size) if request.masking.whole_word else None,
    packing=request.packing,
    shuffle_rows=data.shuffle_rows,
    evaluation_rows=request.evaluation_rows,
    process=(jax.process_index(), jax.process_count()),
  )
  digest = hashlib.sha256(vocabulary_file.read_bytes()).hexdigest()
  identity = {
    'corpus': corpus.fingerprint,
    'vocabulary': digest,
    **{f'rate of {language}': rate for language, rate in rates.items()},
  }
  return OpenedData(batches=batches, vocabulary=vocabulary_file, identity=identity)


def _prepared_vocabulary(
  corpus: 'Corpus',
  vocabulary: VocabularyConfig,
  special: SpecialIds | None,
  rates: dict[str, float],
  *,
  vocab_size: int,
  workdir: epath.Path,
  console: Console,
) -> tuple[epath.Path, SpecialIds]:
  """The vocabulary as a file of the workdir: copied there, or trained there, unless that has been done already."""
  from tasks.vocabulary import check_vocabulary, train_on_corpus

  file, origin_file = workdir / 'vocabulary' / 'sentencepiece.model', workdir / 'vocabulary' / 'origin.json'
  if vocabulary.path is not None:
    write_whole(file, epath.Path(vocabulary.path).read_bytes())
    write_whole(origin_file, json.dumps({'copied_from': vocabulary.path}))
    return file, special
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
  return file, check_vocabulary(file, vocab_size)
