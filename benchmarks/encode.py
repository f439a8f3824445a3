"""Computes sentence embeddings, the mean of the last layer, for sentences of natural lengths.

Lengths are sampled from a log-normal distribution (Williams, Biometrika 31, 1940): a median of 22 tokens, a mean of 26,
1 % above 88. Ids are random, since tokenization is a separate benchmark, and without [CLS] and [SEP], which only this
project excludes from the mean. Weights are random and the same for all candidates, from one Hugging Face model
directory.

This project embeds as `python -m rembert.jobs.predict embed` and the retrieval tasks do. The comparison is with Hugging
Face's torch RemBERT on batches of 32, padded to the longest sentence: in the given order, as is common; sorted by
length; and by `encode` of sentence-transformers, which sorts internally (without its tokenizer). In bfloat16, torch is
sorted and runs under autocast.

`positions` counts computed positions, with padding; `norm of mean` is the norm of the mean over all embeddings.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks import matmuls
from benchmarks.interleaved import OURS, Benchmark, Candidate, Run
from benchmarks.settings import BASE, FIRST_TOKEN, SMALL, encoder_sizes, write_random_model
from rembert.data.packing import BATCH_SIZE, SentenceBatch, packed_sentences
from rembert.model.config import Execution, RemBertConfig

THEIR_BATCH_SIZE = 32  # the default of sentence-transformers
MEDIAN_LENGTH, SPREAD = 22, 0.6  # of the log-normal distribution, in tokens; SPREAD is that of the logarithm

TORCH, TORCH_SORTED, TORCH_BF16 = 'torch, as they come', 'torch, sorted', 'torch, sorted, bfloat16 autocast'
SENTENCE_TRANSFORMERS = 'sentence-transformers'


@dataclasses.dataclass(frozen=True)
class Setting:
  """An encoder, the number of sentences per run, and the dtype of the computation."""

  config: RemBertConfig
  sentences: int
  dtype: str = 'float32'

  @property
  def description(self) -> str:
    rows = sentences(self)
    tokens = sum(len(row) for row in rows)
    return (
      f'{len(rows):,} sentences of {tokens / len(rows):.1f} tokens on average, {max(map(len, rows))} at most, '
      f'{self.dtype} · {encoder_sizes(self.config)}'
    )


# Sizes for which a round takes less than a minute on two cores.
SETTINGS = {
  'small': Setting(SMALL, sentences=1000),
  'base': Setting(BASE, sentences=200),
  'small_bfloat16': Setting(SMALL, sentences=1000, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, sentences=200, dtype='bfloat16'),
}


def sentences(setting: Setting) -> list[np.ndarray]:
  """Ids of each sentence, without special ids."""
  random, config = np.random.default_rng(0), setting.config
  drawn = random.lognormal(np.log(MEDIAN_LENGTH), SPREAD, setting.sentences)
  lengths = np.clip(np.rint(drawn), 1, config.max_position_embeddings).astype(int)
  return [random.integers(FIRST_TOKEN, config.vocab_size, length) for length in lengths]


def packed(setting: Setting) -> Iterator[SentenceBatch]:
  """The batches of this project."""
  options = {'pad': setting.config.pad_token_id, 'longest': setting.config.max_position_embeddings}
  return packed_sentences(sentences(setting), batch_size=BATCH_SIZE, **options)


def facts(embeddings_NxH: np.ndarray, positions: int) -> dict[str, float]:
  """Facts that show that all candidates embed the same sentences."""
  return {'positions': positions, 'norm of mean': float(np.linalg.norm(embeddings_NxH.mean(0)))}


# --- candidates: each returns a function that embeds all sentences ----------------------------------------------------


def prepare_ours(setting: Setting, folder: pathlib.Path) -> Run:
  """As `rembert.jobs.predict embed`, without tokenization."""
  from rembert.inference.embed import sentence_vectors
  from rembert.inference.model import load

  model, rows = load(folder, execution=Execution(setting.dtype)), sentences(setting)
  positions = sum(batch.input_ids.size for batch in packed(setting))

  def run() -> dict[str, float]:
    return facts(sentence_vectors(model, rows), positions)

  return run


def prepare_torch(setting: Setting, folder: pathlib.Path, is_sorted: bool) -> Run:
  """Batches of `RemBertModel`, and the mean over the positions of the mask."""
  import torch
  import transformers

  model, rows = transformers.RemBertModel.from_pretrained(folder, add_pooling_layer=False).eval(), sentences(setting)

  def run() -> dict[str, float]:
    order = np.argsort([len(row) for row in rows])[::-1] if is_sorted else np.arange(len(rows))
    embeddings_NxH, positions = np.zeros((len(rows), setting.config.hidden_size), np.float32), 0
    with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16, enabled=setting.dtype == 'bfloat16'):
      for start in range(0, len(rows), THEIR_BATCH_SIZE):
        chosen = order[start : start + THEIR_BATCH_SIZE]
        ids_BxS, mask_BxS = padded([rows[index] for index in chosen], setting.config.pad_token_id)
        states_BxSxH = model(input_ids=ids_BxS, attention_mask=mask_BxS).last_hidden_state
        weights_BxSx1 = mask_BxS[..., None].float()
        embeddings_NxH[chosen] = ((states_BxSxH * weights_BxSx1).sum(1) / weights_BxSx1.sum(1)).numpy()
        positions += ids_BxS.numel()
    return facts(embeddings_NxH, positions)

  return run


def prepare_sentence_transformers(setting: Setting, folder: pathlib.Path) -> Run:
  """`SentenceTransformer.encode` with mean pooling, of texts in which the character with code i is token i."""
  import torch
  import transformers
  from sentence_transformers import SentenceTransformer
  from sentence_transformers.sentence_transformer.modules import Pooling

  positions = 0

  class Encoder(torch.nn.Module):
    """The `Transformer` of sentence-transformers, without the tokenizer."""

    def __init__(self):
      super().__init__()
      self.model = transformers.RemBertModel.from_pretrained(folder, add_pooling_layer=False)

    def tokenize(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
      ids_BxS, mask_BxS = padded([np.array([*map(ord, text)]) for text in texts], setting.config.pad_token_id)
      return {'input_ids': ids_BxS, 'attention_mask': mask_BxS}

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
      nonlocal positions
      positions += features['input_ids'].numel()
      return features | {'token_embeddings': self.model(**features).last_hidden_state}

  pooling = Pooling(setting.config.hidden_size, pooling_mode='mean')
  model = SentenceTransformer(modules=[Encoder(), pooling], device='cpu')
  texts = [''.join(map(chr, row)) for row in sentences(setting)]

  def run() -> dict[str, float]:
    nonlocal positions
    positions = 0
    embeddings_NxH = model.encode(texts, batch_size=THEIR_BATCH_SIZE, show_progress_bar=False)
    return facts(embeddings_NxH, positions)

  return run


def padded(rows: Sequence[np.ndarray], pad: int):
  """Ids and mask, tensors [B, S], where S is the maximum length."""
  import torch

  sequence = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
  tensors = [torch.from_numpy(row) for row in rows]
  return sequence(tensors, padding_value=pad), sequence([torch.ones_like(row) for row in tensors])


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  folder = scratch / 'model'
  write_random_model(folder, setting.config)
  work = {'sentences': setting.sentences, 'tokens': sum(len(row) for row in sentences(setting))}

  def candidate(name: str, prepare: Callable[..., Run], *is_sorted: bool) -> Candidate:
    return Candidate(name, prepare, (setting, folder, *is_sorted), work)

  if setting.dtype == 'bfloat16':
    others = [candidate(TORCH_BF16, prepare_torch, True)]
  else:
    others = [
      candidate(TORCH, prepare_torch, False),
      candidate(TORCH_SORTED, prepare_torch, True),
      candidate(SENTENCE_TRANSFORMERS, prepare_sentence_transformers),
    ]
  shapes = [batch.input_ids.shape for batch in packed(setting)]
  products = sum((matmuls.of_forward(setting.config, *shape) for shape in shapes), collections.Counter())
  return [candidate(OURS, prepare_ours), *others, *matmuls.candidates(products, setting.dtype, work)]


ENCODING = Benchmark(SETTINGS, candidates)
