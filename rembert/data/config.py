"""Configuration of the data: sources, languages, sampling and vocabulary."""

import dataclasses
from typing import Annotated

from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, FractionBelowOne, NotNegative, OneOf, Range, check_fields

SAMPLE = 'sample'  # the corpus that comes with the project


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The source of text, and how it is sampled.

  Attributes:
    source: `dumps` (MediaWiki exports), `tfds` (TensorFlow Datasets' `wikipedia`) or `text` (plain text, JSON lines,
      CSV, TSV, Parquet), which are streamed; or `store`.
    corpus: directory made by `python -m tasks.corpus`, to be streamed. None: a corpus is made in the workdir first.
    mixture: a SeqIO task or mixture to be streamed, by its registered name (`--module`, or one of `tasks.mixtures`),
      with its languages, rates and vocabulary. None: the text of the other fields.
    store: for `store`: directory made by `python -m tasks.token_store`, which has its own vocabulary.
    read_threads: for `store`: number of threads that prepare batches ahead.
    dumps: for `dumps`: a directory, a glob, or a list of them, local or `gs://`; `sample` is the small corpus of the
      project.
    tfds: for `tfds`: name of the dataset, with `{language}` in it.
    tfds_data_dir: for `tfds`: directory of prepared datasets; None is TFDS's default, then its public bucket.
    text: for `text`: a file, directory or glob, local or a URL that fsspec reads (`gs://`, `s3://`, `hf://datasets/`).
    text_column: for `text`: name of the text column; plain text has none.
    language_column: for `text`: name of the column of language codes. None: files are named by language, `de.jsonl`.
    language: for `text`: language of all files. None: see `language_column`.
    languages: codes to use; None for all in the data. `mbert` and `rembert` are the available languages of these models
      (`tasks.wikipedia.languages`); a code that is missing is an error.
    alpha: exponent of language sampling, p_l ∝ (sentences of l) ** alpha: 1 is proportional to size, 0 uniform; RemBERT
      0.5 (paper, A.7), mBERT 0.7.
    max_share: upper bound of any language's sampling rate; the excess is redistributed proportionally. None: no limit.
    max_upsampling: upper bound of how often a language's sentences are sampled, relative to the average sentence of the
      corpus: rate of l ≤ max_upsampling · (sentences of l) / (sentences of all). 1 is alpha = 1; None: no limit.
    held_out: fraction of documents that are held out for evaluation, chosen by a hash of their text.
    min_characters: shorter documents are skipped.
    survey_documents: without effect, since a corpus has exact counts. Accepted for one release.
    shuffle_rows: size of the shuffle window, in sequences of one language.
  """

  source: Annotated[str, OneOf(('dumps', 'tfds', 'text', 'store'))] = 'dumps'
  corpus: str | None = None
  mixture: str | None = None
  store: str | None = None
  read_threads: Count = 1
  dumps: str | tuple[str, ...] = SAMPLE
  tfds: str = 'wikipedia/20230601.{language}'
  tfds_data_dir: str | None = None
  text: str | None = None
  text_column: str = 'text'
  language_column: str | None = None
  language: str | None = None
  languages: tuple[str, ...] | None = None
  alpha: NotNegative = 0.5
  max_share: Annotated[float, Range(above=0, most=1)] | None = None
  max_upsampling: Annotated[float, Range(1)] | None = None
  held_out: FractionBelowOne = 0.005
  min_characters: Count = 100
  survey_documents: CountOrZero = 20_000
  shuffle_rows: Count = 64

  def __post_init__(self):
    check_fields(self, 'data')
    if isinstance(self.dumps, list):
      object.__setattr__(self, 'dumps', tuple(self.dumps))
    if self.source == 'store' and not self.store:
      raise UsageError('data.store is not set', where='data.store', fix='--gin.data.store=FOLDER')
    if self.source == 'text' and not (self.text or self.corpus or self.mixture):
      raise UsageError('data.text is not set', where='data.text', fix='--gin.data.text=FOLDER')
    self._refuse_contradictions()

  def _refuse_contradictions(self) -> None:
    """UsageError if several fields name the text, or if some contradict the tasks or rates of a mixture."""
    changed = {field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default}
    texts: list[str] = [name for name in ('mixture', 'corpus') if name in changed]
    texts += [name for name in ('store', 'dumps', 'text') if self.source == name and name in changed] if texts else []
    if len(texts) > 1:
      raise self._contradiction(texts[1:], f'data.{texts[0]} names the training text, but other fields name another')
    rates: list[str] = [name for name in ('languages', 'alpha', 'max_share', 'max_upsampling') if name in changed]
    if self.mixture and rates:
      raise self._contradiction(rates, 'data.mixture has its own tasks and rates, which other fields would change')

  def _contradiction(self, names: list[str], what: str) -> UsageError:
    fix = {field.name: field.default for field in dataclasses.fields(self)}
    fix['store'] = 'None --gin.data.source=dumps'
    return UsageError(
      what,
      where=', '.join(f'data.{name} = {getattr(self, name)!r}' for name in names),
      fix=' '.join(f'--gin.data.{name}={fix[name]}' for name in names),
    )


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
  """The SentencePiece vocabulary.

  Attributes:
    path: a `sentencepiece.model`, local or `gs://`. None: that of `train.init_from` in pre-training, else one of
      `RemBertConfig.vocab_size` tokens that is trained on the corpus, in the workdir.
    sample_characters: characters of text, over all languages, to train a vocabulary on.
    character_coverage: fraction of the characters that have a token; the rest falls back to bytes.
  """

  path: str | None = None
  sample_characters: Count = 50_000_000
  character_coverage: Annotated[float, Range(above=0, most=1)] = 0.9995

  def __post_init__(self):
    check_fields(self, 'vocabulary')


@dataclasses.dataclass(frozen=True)
class DataRequest:
  """Everything that determines a run's data: its text, packing, masking and batches.

  `vocab_size` is the model's, `evaluation_rows` is per language. `vocabulary` and `packing` apply to streamed text; a
  store has its own vocabulary and packed sequences.
  """

  data: DataConfig
  batch_size: int
  sequence_length: int
  vocab_size: int
  evaluation_rows: int
  seed: int = 0
  vocabulary: VocabularyConfig = VocabularyConfig()
  masking: MaskingConfig = MaskingConfig()
  packing: PackingConfig = PackingConfig()
