"""Configuration of `--mode=analyze`."""

import dataclasses
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, NotNegative, OneOf, check_fields

ANALYSES = (
  *('masked_accuracy', 'layer_retrieval', 'word_similarity', 'edge_probing'),  # of the paper
  'fertility',
)
# These need a vocabulary only, no model.
WITHOUT_MODEL = ('fertility',)


@dataclasses.dataclass(frozen=True)
class AnalyzeConfig:
  """The analysis to run, its model and its files.

  Attributes:
    what: one of `ANALYSES`; `rembert/analysis` has a file for each, which documents its measure and its output.
    model: a workdir, a checkpoint or a Hugging Face model directory. `fertility` uses its vocabulary only.
    model_name: name of the model in tables and plots; None is the name of its directory.
    seed: seed of everything random.
    samples: bootstrap samples per confidence interval.
    batch_size: sequences per batch, rounded up to a multiple of the devices; `layer_retrieval`: of 64 tokens each, or
      fewer that are longer.
    rows: `masked_accuracy`: maximum number of eval sequences per language, from `data.*` as in training.
    source: `layer_retrieval`: file with one sentence per line. None reads Tatoeba from `xtreme.data_dir`, in the
      languages of `xtreme.languages`.
    target: `layer_retrieval`: file with its translation, line by line.
    max_pairs: `layer_retrieval`: maximum number of pairs, from the first line on; the paper's M is 5000.
    words: `word_similarity`: files with two words and a score per line.
    train: `edge_probing`: training set, JSON lines. None reads UDPOS from `xtreme.data_dir`: training data in
      `xtreme.train_language`, test data in `xtreme.languages`.
    dev: `edge_probing`: dev set, for early stopping.
    test: `edge_probing`: test sets.
    control: `edge_probing`: also probe an encoder with random parameters, for comparison.
    text: `fertility`: directory of `LL.txt`, compressed or not.
    characters: `fertility`: maximum number of characters per language.
    task: `edge_probing`: name of the task of `train`; None is the name of the file.
  """

  what: Annotated[str, OneOf(ANALYSES)] = 'masked_accuracy'
  model: str | None = None
  model_name: str | None = None
  seed: CountOrZero = 0
  samples: CountOrZero = 1000
  batch_size: Count = 64
  rows: Count = 200
  source: str | None = None
  target: str | None = None
  max_pairs: Count = 5000
  words: tuple[str, ...] = ()
  train: str | None = None
  dev: str | None = None
  test: tuple[str, ...] = ()
  control: bool = True
  text: str | None = None
  characters: Count = 1_000_000
  task: str | None = None

  def __post_init__(self):
    check_fields(self, 'analyze')
    if (self.source is None) != (self.target is None):
      raise UsageError(
        'analyze.source and analyze.target must be set together',
        where='analyze.source, analyze.target',
        fix='set both, or neither',
      )

  def require(self, *names: str) -> None:
    """UsageError unless all of these fields are set."""
    for name in names:
      if not getattr(self, name):
        raise UsageError(f'{self.what} needs analyze.{name}', where=f'analyze.{name}', fix=f'--gin.analyze.{name}=…')


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """The probe of `edge_probing` and its training.

  Attributes:
    projection: size that hidden states are projected to before spans are pooled.
    hidden: size of the MLP's inner layer.
    learning_rate: Adam's learning rate.
    batch_size: sentences per batch.
    epochs: maximum number of passes over the training set.
    patience: epochs without a better dev score before training stops.
    max_train: maximum number of training sentences, sampled by `seed`; None for all.
    cache_gb: hidden states of a set that fits into this memory (GB) are kept; those of larger sets are recomputed.
    seed: seed of the parameters, the order of examples and the random encoder.
  """

  projection: Count = 256
  hidden: Count = 256
  learning_rate: NotNegative = 1e-3
  batch_size: Count = 32
  epochs: Count = 20
  patience: Count = 3
  max_train: Count | None = None
  cache_gb: NotNegative = 4.0
  seed: CountOrZero = 0

  def __post_init__(self):
    check_fields(self, 'probe')
