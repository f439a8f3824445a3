"""Text to ids on one core: this project beside Hugging Face's tokenizers, with one and the same vocabulary.

A run encodes the clean documents of the sample corpus, in the order of streaming, several times over. This project's
side is what cuts a token store (SentencePiece's own library, document by document). Beside it the preprocessor of
SeqIO tasks, TensorFlow Text, which streaming runs, given 32 documents at a time; `tokenizers`, all documents in one
call, with the vocabulary as `rembert.convert` exports it (its `Unigram` with the same pieces and scores, the rules for
white space as a normaliser, `Metaspace`); and that tokenizer as transformers loads it, called on a list as its users
do, which adds special pieces and masks.

Hugging Face's threads are held to one. `as SentencePiece` is the share of documents whose ids are those of
SentencePiece's library. `MB` are those of the documents, in UTF-8; `tokens` are the pieces that SentencePiece makes.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from benchmarks import sample_corpus
from benchmarks.turns import Contestant, Run

OURS, SEQIO = 'this project', 'SeqIO in TensorFlow'
TOKENIZERS, TRANSFORMERS = 'tokenizers', 'transformers, called on a list'

TEXTS_AT_ONCE = 32  # into TensorFlow

ONE_THREAD = {'RAYON_NUM_THREADS': '1', 'TOKENIZERS_PARALLELISM': 'false'}

Ids = Sequence[int] | np.ndarray
Encode = Callable[[list[str]], Iterable[Ids]]


@dataclasses.dataclass(frozen=True)
class Setting:
  """The size of the vocabulary, and how many times a run goes through the text."""

  pieces: int
  passes: int = 5

  @property
  def description(self) -> str:
    """One line."""
    return f'the sample corpus, 12 languages, {self.passes} ×, V {self.pieces:,}'


# The vocabulary of the smoke run, and about as large a one as the sample corpus supports.
SETTINGS = {'v5k': Setting(5000), 'v30k': Setting(30_000)}


# --- contestants: each returns a function that encodes all texts ------------------------------------------------------


def prepare_ours(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """What cuts a token store."""
  processor = _processor(vocabulary)
  return _run(setting, vocabulary, lambda texts: (np.array(processor.encode(text), np.int32) for text in texts))


def prepare_seqio(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """A task's preprocessors on a `tf.data.Dataset`."""
  from tasks import pretraining
  from tasks.seqio_vocabulary import RembertVocabulary
  from tasks.tensorflow_import import tensorflow as tf

  features = pretraining.features(RembertVocabulary(vocabulary))

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
  def ids(texts):
    examples = pretraining.tokenize(tf.data.Dataset.from_tensor_slices({'text': texts}), features)
    return examples.map(lambda example: example['targets']).ragged_batch(TEXTS_AT_ONCE).get_single_element()

  def encode(texts: list[str]) -> Iterator[Ids]:
    for at in range(0, len(texts), TEXTS_AT_ONCE):
      rows = ids(tf.constant(texts[at : at + TEXTS_AT_ONCE]))
      yield from np.split(rows.values.numpy(), rows.row_splits.numpy()[1:-1])

  return _run(setting, vocabulary, encode)


def prepare_tokenizers(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """All texts in one call, the one that leaves offsets out."""
  from rembert.convert.tokenizer_files import build_tokenizer

  tokenizer = build_tokenizer(vocabulary.read_bytes())

  def encode(texts: list[str]) -> list[Ids]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

  return _run(setting, vocabulary, encode)


def prepare_transformers(setting: Setting, vocabulary: pathlib.Path) -> Run:
  """The tokenizer as exported, called; its [CLS] and [SEP] are taken away only where ids are compared."""
  import transformers

  from rembert.convert.tokenizer_files import write_tokenizer

  folder = vocabulary.parent / 'exported'
  folder.mkdir(exist_ok=True)
  write_tokenizer(vocabulary, folder, longest=512)
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder, verbose=False)
  return _run(setting, vocabulary, lambda texts: tokenizer(texts)['input_ids'], has_special_pieces=True)


def _processor(vocabulary: pathlib.Path):
  import sentencepiece

  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(vocabulary.read_bytes())
  return processor


def _run(setting: Setting, vocabulary: pathlib.Path, encode: Encode, *, has_special_pieces: bool = False) -> Run:
  texts, processor, special = sample_corpus.texts(), _processor(vocabulary), 2 if has_special_pieces else 0
  inner = slice(1, -1) if special else slice(None)
  pairs = zip(encode(texts), texts, strict=True)
  same = sum(list(ids)[inner] == processor.encode(text) for ids, text in pairs) / len(texts)

  def run() -> dict[str, float]:
    for _ in range(setting.passes):
      count = sum(len(ids) - special for ids in encode(texts))
    return {'ids': count, 'as SentencePiece': same}

  return run


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  setting, vocabulary = SETTINGS[setting_name], scratch / 'sentencepiece.model'
  sample_corpus.make_vocabulary(setting.pieces, vocabulary)
  texts, processor = sample_corpus.texts(), _processor(vocabulary)
  work = {
    'MB': setting.passes * sum(len(text.encode()) for text in texts) / 1e6,
    'tokens': setting.passes * sum(len(processor.encode(text)) for text in texts),
  }
  contestant = functools.partial(Contestant, arguments=(setting, vocabulary), work=work, one_core=True)
  return [
    contestant(OURS, prepare_ours),
    contestant(SEQIO, prepare_seqio),
    contestant(TOKENIZERS, prepare_tokenizers, environment=ONE_THREAD),
    contestant(TRANSFORMERS, prepare_transformers, environment=ONE_THREAD),
  ]
