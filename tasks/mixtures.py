"""`import tasks.mixtures` registers the SeqIO tasks and mixtures of this project; it opens no file.

    wikipedia.{language}            TFDS's Wikipedia; `tasks.add_wikipedia(corpus=…)` replaces it by a corpus
    wikipedia, wikipedia.mbert, wikipedia.rembert
    mc4.{language}                  Common Crawl, TFDS's c4/multilingual
    rembert.pretraining             Wikipedia and Common Crawl in RemBERT's languages
    xtreme.{task}.{language}        see `tasks.xtreme.registry`

Environment variables: REMBERT_VOCABULARY is the vocabulary, TFDS_DATA_DIR the directory of the data. Rates of mixtures
are functions, since those over TFDS need its metadata.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
import collections
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import seqio
import tensorflow_datasets as tfds

from rembert.data.mixture import sampling_rates
from rembert.errors import UsageError, first_line, joined
from tasks import pretraining, registration
from tasks.corpus.format import Corpus, open_corpus
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.wikipedia.languages import LISTS, MC4, REMBERT, edition_of, without_lists
from tasks.xtreme.registry import add_xtreme

PRETRAINING = 'rembert.pretraining'
WIKIPEDIA = 'wikipedia/20230601.{language}:1.0.0'  # TFDS's names
COMMON_CRAWL = 'c4/multilingual:3.1.0'
# Without an eval split in TFDS, documents whose hash is in the first of this many buckets are held out.
BUCKETS = 200
_HASH_KEY = (0x72656D62, 0x65727431)  # arbitrary, but must not change

EDITIONS = {name: without_lists([name])[1] for name in LISTS}


class CorpusSource(seqio.DataSource):
  """Documents of one language of a corpus, in order: `{'text': string}`.

  `seqio.TfdsDataSource` reads the same files, with titles and ids, but skips a tenth as many examples per second and
  uses fifty threads. With `shuffle`, files come in random order; documents in a file are already in the order of a
  hash.
  """

  def __init__(self, corpus: Corpus, language: str):
    counts = corpus.languages[language]
    by_split = {'train': counts.documents, 'validation': counts.held_out}
    by_split = {split: count for split, count in by_split.items() if count}
    super().__init__(tuple(by_split), num_input_examples=by_split)
    self._corpus, self._language = corpus, language

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """False: shards are files."""
    return False

  def list_shards(self, split: str) -> Sequence[str]:
    """Files of a split, in order."""
    return [str(shard) for shard in self._corpus.shards(self._language, split)]

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **_) -> tf.data.Dataset:
    """Implements `seqio.DataSource`; raises UsageError if the split is empty."""
    shards = self.list_shards(split) if split in self.splits else []
    if not shards:
      raise UsageError(
        f'the corpus has no {split} documents in {self._language!r}',
        where=str(self._corpus.folder),
        fix=f'use another split ({", ".join(self.splits) or "none"}), or make a corpus with more text, or --held_out',
      )
    files = tf.data.Dataset.from_tensor_slices(shards)
    if shard_info:
      files = files.shard(shard_info.num_shards, shard_info.index)
    if shuffle:
      files = files.shuffle(len(shards), seed=seed)
    features = {'text': tf.io.FixedLenFeature([], tf.string)}

    def example(record: tf.Tensor) -> dict[str, tf.Tensor]:
      return tf.io.parse_single_example(record, features)

    return tf.data.TFRecordDataset(files).map(example)

  def __str__(self) -> str:
    return f'{self._corpus.folder}, language {self._language}'


class PreparedTfdsSource(seqio.TfdsDataSource):
  """`seqio.TfdsDataSource` of a text dataset that never downloads or prepares one; examples have `text`.

  Without `shuffle`, files are read one after the other without additional threads, since a hundred languages are read
  at a time. Constructing one opens no file. `splits` maps names of splits to those of the dataset.
  """

  def __init__(self, tfds_name: str, splits: Mapping[str, str]):
    super().__init__(tfds_name, splits=dict(splits), read_only=True)

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **_) -> tf.data.Dataset:
    """Implements `seqio.DataSource`; UsageError if the dataset is not prepared, or lacks the split."""
    self._refuse_unprepared(split)
    if shuffle or shard_info:
      return super().get_dataset(split, shuffle, seed, shard_info)
    config = tfds.ReadConfig(
      try_autocache=False,
      skip_prefetch=True,
      interleave_cycle_length=1,
      num_parallel_calls_for_decode=1,
      num_parallel_calls_for_interleave_files=1,
    )
    decoders = tfds.decode.PartialDecoding({'text': tfds.features.Text()})
    loader = self.tfds_dataset
    return loader.builder.as_dataset(split=loader._map_split(split), read_config=config, decoders=decoders)

  def num_input_examples(self, split: str) -> int:
    """Implements `seqio.DataSource`; raises the errors of `get_dataset`."""
    self._refuse_unprepared(split)
    return super().num_input_examples(split)

  def _refuse_unprepared(self, split: str) -> None:
    loader, problem = self.tfds_dataset, ''
    tfds_split = loader._map_split(split)
    try:
      splits = loader.info.splits
      if not splits:
        problem = 'is not prepared'
      elif tfds_split not in splits or not splits[tfds_split].num_examples:
        problem = f'has no examples in its split {tfds_split}'
    except Exception as error:  # TFDS passes on exceptions of its file systems and parsers
      problem = f'cannot be read: {first_line(error)}'
    if problem:
      name = loader.name.split(':')[0]
      folder = loader.data_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
      raise UsageError(
        f'{name} {problem}',
        where=f'TensorFlow Datasets, environment variable TFDS_DATA_DIR: {folder}',
        fix=[
          f'prepare it: tfds build {name} --data_dir=DIR; then export TFDS_DATA_DIR=DIR',
          'or make a corpus of dumps, python -m tasks.corpus --help, and call tasks.add_wikipedia(corpus=…)',
        ],
      )


class WikipediaSource(PreparedTfdsSource):
  """TFDS's `wikipedia` of one language, whose only split is divided by a hash of the text.

  `validation` is one document in `BUCKETS`, in any order and version; `train` is the rest. The numbers of examples are
  expected values.
  """

  def __init__(self, language: str):
    name = WIKIPEDIA.format(language=language)
    super().__init__(name, splits={'train': 'train', 'validation': 'train'})

  def get_dataset(self, split='train', shuffle=True, seed=None, shard_info=None, **_) -> tf.data.Dataset:
    """Implements `seqio.DataSource`."""
    is_validation = split == 'validation'

    def is_of_split(example: Mapping[str, tf.Tensor]) -> tf.Tensor:
      return (tf.strings.to_hash_bucket_strong(example['text'], BUCKETS, _HASH_KEY) == 0) == is_validation

    return super().get_dataset(split, shuffle, seed, shard_info).filter(is_of_split)

  def num_input_examples(self, split: str) -> int:
    """Expected number of examples, from TFDS's number for both splits."""
    held_out = super().num_input_examples(split) // BUCKETS
    return held_out if split == 'validation' else super().num_input_examples(split) - held_out


def add_wikipedia(
  *,
  corpus: Corpus | str | os.PathLike | None = None,
  vocabulary: str | os.PathLike | None = None,
  name: str = 'wikipedia',
  alpha: float = 0.5,
  max_share: float | None = None,
  max_upsampling: float | None = None,
) -> None:
  """Registers a SeqIO task for each language, and mixtures, replacing those registered earlier by this project.

  Tasks are `NAME.{language}`; mixtures are `NAME` of all languages, and `NAME.mbert` and `NAME.rembert` of the
  languages of these models. An example is `{'targets': ids}`, a document without special ids. Hyphens in codes become
  underscores.

  Args:
    corpus: a corpus (`python -m tasks.corpus`), open or its directory. None is TFDS's `wikipedia/20230601` in every
      language of the two lists; one document in 200 is held out, by a hash of its text.
    vocabulary: a `sentencepiece.model`. None is the file in the environment variable `REMBERT_VOCABULARY` when
      it is first needed.
    alpha: rates of the mixtures are proportional to n ** alpha, where n is the number of sentences of a language in a
      corpus; over TFDS, which counts no sentences, the number of documents.
    max_share: see `rembert.data.mixture.sampling_rates`.
    max_upsampling: see there.

  Raises:
    UsageError: there is no corpus, it has no text, or another module has registered a name.
  """
  if corpus is not None and not isinstance(corpus, Corpus):
    corpus = open_corpus(corpus)
  sources: dict[str, seqio.DataSource]
  counts: Callable[[Sequence[str]], Mapping[str, int]]
  if corpus is None:
    sources = {language: WikipediaSource(language) for language in sorted({*EDITIONS['mbert'], *EDITIONS['rembert']})}
    counts = functools.partial(numbers_of_documents, sources)
  else:
    of_corpus = {language: CorpusSource(corpus, language) for language in corpus.languages}
    sources = {language: source for language, source in of_corpus.items() if 'train' in source.splits}
    if not sources:
      what = 'the corpus has no text to train on'
      raise UsageError(what, where=str(corpus.folder), fix='python -m tasks.corpus --help')
    counts = lambda languages: {language: corpus.languages[language].sentences for language in languages}
  registration.remove_ours(name)
  _add_language_tasks(name, sources, RembertVocabulary(vocabulary))
  for suffix, languages in {'': tuple(sources), **EDITIONS}.items():
    if chosen := {registration.valid_name(name, each): each for each in languages if each in sources}:

      def rates(chosen: Mapping[str, str] = chosen) -> dict[str, float]:
        of_languages = sampling_rates(
          counts(list(chosen.values())), alpha, max_share=max_share, max_upsampling=max_upsampling
        )
        return {task: of_languages.get(language, 0.0) for task, language in chosen.items()}

      _add_mixture(f'{name}.{suffix}' if suffix else name, chosen, rates)


def add_mc4(*, vocabulary: str | os.PathLike | None = None, name: str = 'mc4') -> None:
  """Registers a SeqIO task for each language of mC4, over TFDS's `c4/multilingual`; see `add_wikipedia`."""
  registration.remove_ours(name)
  # TFDS has one split each: `de`, `de-validation`.
  splits = {language: {'train': language, 'validation': f'{language}-validation'} for language in MC4}
  sources = {language: PreparedTfdsSource(COMMON_CRAWL, of_language) for language, of_language in splits.items()}
  _add_language_tasks(name, sources, RembertVocabulary(vocabulary))


def numbers_of_documents(sources: Mapping[str, seqio.DataSource], languages: Sequence[str]) -> dict[str, int]:
  """Number of training documents per language; UsageError with all languages that are missing."""
  counts, errors = {}, []
  for language in languages:
    try:
      counts[language] = sources[language].num_input_examples('train')
    except UsageError as error:
      errors.append(error)
  if errors:
    raise joined(errors)
  return counts


def _add_mixture(name: str, tasks: Iterable[str], rates: Callable[[], Mapping[str, float]]) -> None:
  """Registers a mixture of tasks; their rates by name are computed when the first is needed."""
  rates = functools.cache(rates)

  def rate(task: seqio.Task) -> float:
    return rates().get(task.name, 0.0)

  registration.add_mixture(name, dict.fromkeys(tasks, rate))


def _add_language_tasks(name: str, sources: Mapping[str, seqio.DataSource], vocabulary: RembertVocabulary) -> None:
  """Registers `NAME.{language}` over sources whose examples have `text`."""
  for language, source in sources.items():
    registration.add_task(
      registration.valid_name(name, language),
      source=source,
      preprocessors=[pretraining.tokenize],
      output_features=pretraining.features(vocabulary),
    )


# --- both texts -------------------------------------------------------------------------------------------------------


def pretraining_tasks() -> dict[str, str]:
  """Names of the tasks of `rembert.pretraining`, and the language of each; `iw` and `he` are one."""
  tasks = {registration.valid_name('wikipedia', edition): edition for edition in EDITIONS['rembert']}
  crawled = [code for code in MC4 if code in REMBERT or code == 'zh']  # REMBERT names Chinese by its scripts
  return tasks | {registration.valid_name('mc4', code): edition_of(code) or code for code in crawled}


def pretraining_rates(documents: dict[str, int], language_of: dict[str, str], alpha: float = 0.5) -> dict[str, float]:
  """Rates of tasks: (documents of the language) ** alpha, divided among its tasks in proportion to documents."""
  by_language = collections.Counter[str]()
  for task, count in documents.items():
    by_language[language_of[task]] += count
  rates = sampling_rates(by_language, alpha)
  return {
    task: rates[language_of[task]] * count / by_language[language_of[task]]
    for task, count in documents.items()
    if count
  }


def add_pretraining() -> None:
  """Registers `rembert.pretraining`: RemBERT was pre-trained on Wikipedia and Common Crawl in 110 languages.

  A language is sampled in proportion to n ** 0.5 (paper, A.7), where n is the number of its documents in both, and each
  of its documents equally often. The paper counts sentences, which TFDS does not.
  """
  language_of = pretraining_tasks()
  sources = {name: seqio.TaskRegistry.get(name).source for name in language_of}  # current: tasks may be replaced

  rates = lambda: pretraining_rates(numbers_of_documents(sources, list(sources)), language_of)
  _add_mixture(PRETRAINING, language_of, rates)


add_wikipedia()
add_mc4()
add_pretraining()
add_xtreme()
