"""Dumps to clean text, and text to ids, on one core; and the sample corpus, on which benchmarks of the input are run.

`cleaning`: a run decompresses all dumps, finds the pages and cleans the articles, in one process, and keeps no text.
This project's side is what a corpus is made of: short articles are left out, and each text occurs once. It is
compared with wikiextractor 3.1.0, its page reader (`collect_pages`) and its `Extractor`, called for each page as in its
worker processes. Its command would start three processes, even with `--processes 1`, to share the one core and to send
pages through pipes. Its settings are those of `--text --no-templates`; reserved characters are not escaped. A dump that
begins in the middle has no definitions of templates, and this project expands none: it reads the arguments of those
within a sentence. wikiextractor's command nevertheless parses all templates, and drops those that it does not know,
nearly all of them; its `clean` can also drop them unread, which is faster. `MB` are the articles' wikitext in UTF-8.

`tokenizing`: a run encodes the documents of the sample corpus several times. This project calls SentencePiece's
library, document by document, as pre-training does. It is compared with SeqIO's `tokenize` in TensorFlow, 32 documents
at a time; with `tokenizers`, all documents in one call, with the vocabulary as `rembert.convert` exports it; and with
that tokenizer in transformers, called on a list as its users do, which adds special tokens and masks. Hugging Face's
threads are limited to one. `as SentencePiece` is the share of documents with the ids of SentencePiece's library;
`tokens` are its ids too.
"""

import collections
import dataclasses
import functools
import importlib.resources
import io
import logging
import lzma
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from etils import epath

from benchmarks.interleaved import OURS, Benchmark, Candidate, Run, Unavailable
from rembert.errors import UsageError
from tasks.corpus.documents import CorpusConfig, Document, RawDocument, clean, find_parts, read_part
from tasks.wikipedia.dumps import find_dumps, read_articles

DUMPS_VARIABLE = 'REMBERT_BENCH_DUMPS'
SAMPLE = str(importlib.resources.files('tasks.wikipedia') / 'sample')
TENSORFLOW_BATCH = 32
ONE_THREAD = {'RAYON_NUM_THREADS': '1', 'TOKENIZERS_PARALLELISM': 'false'}

WIKIEXTRACTOR, UNREAD = 'wikiextractor', '… templates dropped unread'
SEQIO, TOKENIZERS, TRANSFORMERS = 'SeqIO in TensorFlow', 'tokenizers', 'transformers, called on a list'

Ids = Sequence[int] | np.ndarray


# --- the sample corpus ------------------------------------------------------------------------------------------------


def read_texts(pattern: str, counts: collections.Counter) -> Iterator[str]:
  """The texts of dumps, cleaned, each once; `counts` gets the articles read and the documents."""
  config, seen = CorpusConfig(held_out=0), set()
  for found in (found for part in find_parts('dumps', pattern) for found in read_part(part)):
    counts['articles'] += isinstance(found, RawDocument)
    document = clean(found, config)
    if isinstance(document, Document) and (document.language, document.digest) not in seen:
      seen.add((document.language, document.digest))
      counts['documents'] += 1
      yield document.text


def sample_texts() -> list[str]:
  """All documents of the sample corpus."""
  return list(read_texts(SAMPLE, collections.Counter()))


def make_vocabulary(size: int, file: pathlib.Path) -> None:
  """Trains one on the sample corpus, as the smoke run does; five seconds."""
  call('tasks.vocabulary', f'--dumps={SAMPLE}', f'--size={size}', f'--output={file}')


def call(module: str, *flags: str) -> None:
  """`python -m module flags`, silently; Unavailable with its output if it fails."""
  done = subprocess.run([sys.executable, '-m', module, *flags], capture_output=True, text=True)
  if done.returncode:
    raise Unavailable(f'python -m {module} failed: {done.stderr.strip()}')


# --- cleaning ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DumpSetting:
  """Dumps, as `find_dumps` looks for them, and how many times a run reads them."""

  pattern: str
  passes: int

  @functools.cached_property
  def dumps(self) -> list[list[epath.Path]]:
    """By language."""
    return list(find_dumps(self.pattern).values())

  @functools.cached_property
  def article_bytes(self) -> list[int]:
    """The length of each article."""
    files = [dump for dumps in self.dumps for dump in dumps]
    return [len(page.text.encode()) for file in files for page in read_articles(file)]

  @property
  def description(self) -> str:
    """One line."""
    return (
      f'{sum(map(len, self.dumps))} dumps in {len(self.dumps)} languages, {len(self.article_bytes):,} articles, '
      f'{sum(self.article_bytes) / 1e6:.1f} MB of wikitext, {self.passes} ×'
    )

  def facts(self, articles: int, documents: int, characters: int) -> dict[str, int]:
    """Of one of the passes."""
    counts = {'articles': articles, 'documents': documents, 'characters kept': characters}
    return {name: count // self.passes for name, count in counts.items()}


def prepare_cleaning(setting: DumpSetting) -> Run:
  """The documents of a corpus."""
  logging.getLogger('tasks.wikipedia.dumps').setLevel(logging.ERROR)  # the warning that a dump is truncated

  def run() -> dict[str, int]:
    counts = collections.Counter()
    characters = sum(len(text) for _ in range(setting.passes) for text in read_texts(setting.pattern, counts))
    return setting.facts(counts['articles'], counts['documents'], characters)

  return run


def prepare_wikiextractor(setting: DumpSetting, read_templates: bool) -> Run:
  """All pages through its `Extractor`; or, without reading templates, through the part of it that cleans."""
  from wikiextractor import WikiExtractor, extract

  ignored_tags = [*extract._DEFAULT_IGNORED_TAG_PATTERNS, extract.ignoreTag('a')]  # as in its command
  files = [str(dump) for dumps in setting.dumps for dump in dumps]

  def clean(extractor: extract.Extractor) -> str:
    if not read_templates:
      return '\n'.join(extractor.clean_text(''.join(extractor.page), expand_templates=False, html_safe=False))
    text = io.StringIO()
    extractor.extract(text, html_safe=False)
    return text.getvalue().strip()

  def open_lines(file: str):
    # It does not read xz. This is how it opens the others.
    return lzma.open(file, 'rt', encoding='utf-8') if file.endswith('.xz') else WikiExtractor.decode_open(file)

  def read_header(lines: Iterable[str]) -> dict[str, object]:
    """As its `process_dump` does: the prefix of templates, and all namespaces."""
    prefix, namespaces = '', {'Template'}
    for line in lines:
      found = WikiExtractor.tagRE.search(line)
      if found and found[2] == 'namespace':
        namespaces.add(found[3])
        if 'key="10"' in line:
          WikiExtractor.templateNamespace, prefix = found[3], f'{found[3]}:'
      elif found and found[2] == '/siteinfo':
        break
    return {'templatePrefix': prefix, 'knownNamespaces': namespaces}

  def run() -> dict[str, int]:
    pages = characters = 0
    for file in files * setting.passes:
      with open_lines(file) as lines:
        options = read_header(lines) | {'ignored_tag_patterns': ignored_tags, 'to_text': True}
        for page_id, revision, title, page in WikiExtractor.collect_pages(lines):
          characters += len(clean(extract.Extractor(page_id, revision, '', title, page, **options)))
          pages += 1
    return setting.facts(pages, pages, characters)

  return run


def cleaning_candidates(setting: DumpSetting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  del scratch
  if not setting.pattern:
    raise Unavailable(f'no larger dumps are named: {DUMPS_VARIABLE}=FOLDER (or a glob of MediaWiki exports)')
  try:
    sizes = setting.article_bytes
  except UsageError as error:
    raise Unavailable(f'{error.what} ({error.where})') from error
  work = {'MB': setting.passes * (sum(sizes) / 1e6), 'pages': setting.passes * len(sizes)}
  candidate = functools.partial(Candidate, work=work, one_core=True)
  return [
    candidate(OURS, prepare_cleaning, (setting,)),
    candidate(WIKIEXTRACTOR, prepare_wikiextractor, (setting, True)),
    candidate(UNREAD, prepare_wikiextractor, (setting, False)),
  ]


CLEANING = Benchmark(
  {'sample': DumpSetting(SAMPLE, passes=5), 'dumps': DumpSetting(os.environ.get(DUMPS_VARIABLE, ''), passes=1)},
  cleaning_candidates,
)


# --- tokenizing -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TextSetting:
  """The size of the vocabulary, and how many times a run encodes the text."""

  vocab_size: int
  passes: int = 5

  @property
  def description(self) -> str:
    """One line."""
    return f'the sample corpus, 12 languages, {self.passes} ×, V {self.vocab_size:,}'


def load_sentencepiece(vocabulary: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
  """SentencePiece's library."""
  return sentencepiece.SentencePieceProcessor(model_proto=vocabulary.read_bytes())


def prepare_tokenizing(setting: TextSetting, vocabulary: pathlib.Path) -> Run:
  """As a token store is made."""
  encode = load_sentencepiece(vocabulary).encode
  return encoding_run(setting, vocabulary, lambda texts: (np.array(encode(text), np.int32) for text in texts))


def prepare_seqio(setting: TextSetting, vocabulary: pathlib.Path) -> Run:
  """The preprocessor of this project's tasks on a `tf.data.Dataset`, as text is streamed."""
  from tasks import pretraining
  from tasks.seqio_vocabulary import RembertVocabulary
  from tasks.tensorflow_import import tensorflow as tf

  features = pretraining.features(RembertVocabulary(vocabulary))

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
  def tokenize(texts):
    examples = pretraining.tokenize(tf.data.Dataset.from_tensor_slices({'text': texts}), features)
    ids = examples.map(lambda example: example[pretraining.TARGETS])
    return ids.ragged_batch(TENSORFLOW_BATCH).get_single_element()

  def encode(texts: list[str]) -> Iterator[Ids]:
    for start in range(0, len(texts), TENSORFLOW_BATCH):
      rows = tokenize(tf.constant(texts[start : start + TENSORFLOW_BATCH]))
      yield from np.split(rows.values.numpy(), rows.row_splits.numpy()[1:-1])

  return encoding_run(setting, vocabulary, encode)


def prepare_tokenizers(setting: TextSetting, vocabulary: pathlib.Path) -> Run:
  """All texts in one call, without offsets."""
  from rembert.convert.tokenizer_files import build_tokenizer

  tokenizer = build_tokenizer(vocabulary.read_bytes())
  encode = lambda texts: [row.ids for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
  return encoding_run(setting, vocabulary, encode)


def prepare_transformers(setting: TextSetting, vocabulary: pathlib.Path) -> Run:
  """The exported tokenizer, called; its [CLS] and [SEP] are removed only to compare ids."""
  import transformers

  from rembert.convert.tokenizer_files import write_tokenizer

  folder = vocabulary.parent / 'exported'
  folder.mkdir(exist_ok=True)
  write_tokenizer(vocabulary, folder, longest=512)
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder, verbose=False)
  return encoding_run(setting, vocabulary, lambda texts: tokenizer(texts)['input_ids'], special_tokens=1)


def encoding_run(
  setting: TextSetting,
  vocabulary: pathlib.Path,
  encode: Callable[[list[str]], Iterable[Ids]],
  special_tokens: int = 0,
) -> Run:
  """A run of `encode` over the sample corpus, `special_tokens` of it at each end of a text."""
  texts, reference = sample_texts(), load_sentencepiece(vocabulary)
  inner = lambda ids: list(ids)[special_tokens : len(ids) - special_tokens]
  same = sum(inner(ids) == reference.encode(text) for ids, text in zip(encode(texts), texts, strict=True)) / len(texts)

  def run() -> dict[str, float]:
    for _ in range(setting.passes):
      count = sum(len(ids) - 2 * special_tokens for ids in encode(texts))
    return {'ids': count, 'as SentencePiece': same}

  return run


def tokenizing_candidates(setting: TextSetting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  vocabulary = scratch / 'sentencepiece.model'
  make_vocabulary(setting.vocab_size, vocabulary)
  texts, reference = sample_texts(), load_sentencepiece(vocabulary)
  work = {
    'MB': setting.passes * sum(len(text.encode()) for text in texts) / 1e6,
    'tokens': setting.passes * sum(len(reference.encode(text)) for text in texts),
  }
  candidate = functools.partial(Candidate, arguments=(setting, vocabulary), work=work, one_core=True)
  return [
    candidate(OURS, prepare_tokenizing),
    candidate(SEQIO, prepare_seqio),
    candidate(TOKENIZERS, prepare_tokenizers, environment=ONE_THREAD),
    candidate(TRANSFORMERS, prepare_transformers, environment=ONE_THREAD),
  ]


# The vocabulary of the smoke run, and about as large a one as the sample corpus supports.
TOKENIZING = Benchmark({'v5k': TextSetting(5000), 'v30k': TextSetting(30_000)}, tokenizing_candidates)
