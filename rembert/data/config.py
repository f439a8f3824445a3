"""What to read, in which languages, and how it becomes rows."""

import dataclasses
from typing import Annotated

from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, FractionBelowOne, NotNegative, OneOf, Range, check_fields

SAMPLE = 'sample'  # the corpus that comes with the project


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """Where text comes from and how it is sampled.

  Attributes:
    source: `dumps` (MediaWiki exports), `tfds` (TensorFlow Datasets' `wikipedia`) or `text` (plain text, JSON lines,
      CSV, TSV, Parquet), which are streamed; or `store`.
    corpus: folder that `python -m tasks.corpus` made, to be streamed. None: a corpus is made in the workdir first.
    mixture: a SeqIO task or mixture to be streamed, by the name it is registered under (`--module`, or one of
      `tasks.mixtures`). Languages, rates and vocabulary are the mixture's. None: the text that other fields name.
    store: for `store`: the folder that `python -m tasks.token_store` made. It has a vocabulary of its own.
    read_threads: for `store`: threads that prepare batches ahead.
    dumps: for `dumps`: a folder, a glob, or a list of them, local or `gs://`; `sample` is the small corpus that comes
      with the project.
    tfds: for `tfds`: the dataset with `{language}` in it.
    tfds_data_dir: for `tfds`: where prepared datasets are; None is TFDS's default folder, then its public bucket.
    text: for `text`: a file, a folder or a glob, local or a URL that fsspec reads (`gs://`, `s3://`, `hf://datasets/`).
    text_column: for `text`: the column of the text; plain text has none.
    language_column: for `text`: the column of the language's code. None: files are named by language, `de.jsonl`.
    language: for `text`: the language of all files. None: see `language_column`.
    languages: codes to use, or None for all that the dumps hold. `mbert` and `rembert` stand for the languages of these
      models (`tasks.wikipedia.languages`), as far as the corpus holds them; a code by itself has to be there.
    alpha: sampling rates are proportional to (sentences of a language) ** alpha; 0.5 for RemBERT (paper, A.7), 0.7 for
      mBERT, 1 for as they come.
    max_share: no language is drawn more often than this; what is cut off goes to the others in proportion. None: no
      limit.
    max_upsampling: no language's sentences are drawn more than this many times as often as the average sentence of the
      corpus: rate of l ≤ max_upsampling · (sentences of l) / (sentences of all). 1 is alpha = 1; None: no limit.
    held_out: share of the documents that is kept for evaluation, chosen by a hash of their text.
    min_characters: shorter documents are left out.
    survey_documents: without effect: a corpus has exact counts. Accepted for one release.
    shuffle_rows: rows of one language are shuffled in windows of this many.
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
      raise UsageError('no token store is named', where='data.store', fix='--gin.data.store=FOLDER')
    if self.source == 'text' and not (self.text or self.corpus or self.mixture):
      raise UsageError('no text is named', where='data.text', fix='--gin.data.text=FOLDER')
    self._refuse_contradictions()

  def _refuse_contradictions(self) -> None:
    """UsageError if several fields name the text, or if others would change the tasks or rates of a mixture."""
    changed = {field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default}
    texts: list[str] = [name for name in ('mixture', 'corpus') if name in changed]
    texts += [name for name in ('store', 'dumps', 'text') if self.source == name and name in changed] if texts else []
    if len(texts) > 1:
      raise self._contradiction(texts[1:], f'data.{texts[0]} names the text to train on, and others name another')
    rates: list[str] = [name for name in ('languages', 'alpha', 'max_share', 'max_upsampling') if name in changed]
    if self.mixture and rates:
      raise self._contradiction(rates, 'data.mixture has tasks and rates of its own, and others would change them')

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
  """Which SentencePiece model turns text into ids.

  Attributes:
    path: a `sentencepiece.model`, local or `gs://`. None: that of `train.init_from` in pre-training, else one of
      `RemBertConfig.vocab_size` pieces that is trained on the corpus, in the workdir.
    sample_characters: how much text, over all languages, a vocabulary is trained on.
    character_coverage: fraction of the characters that have a token; the rest falls back to bytes.
  """

  path: str | None = None
  sample_characters: Count = 50_000_000
  character_coverage: Annotated[float, Range(above=0, most=1)] = 0.9995

  def __post_init__(self):
    check_fields(self, 'vocabulary')


@dataclasses.dataclass(frozen=True)
class DataRequest:
  """What a run asks of its data: which text, how it becomes rows, and what the global batch looks like.

  `vocab_size` is that of the model, `evaluation_rows` are per language. `vocabulary` and `packing` are of streamed
  text: a store has a vocabulary and packed rows of its own.
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
