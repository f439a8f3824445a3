"""Configuration of `--mode=analyze`."""

import dataclasses
from typing import Annotated

from rembert.errors import UsageError
from rembert.validation import Count, CountOrZero, NotNegative, OneOf, check_fields

ANALYSES = (
  *('masked_accuracy', 'layer_retrieval', 'word_similarity', 'edge_probing'),  # of the paper
  'fertility',
)
# What needs no model: a vocabulary is enough.
WITHOUT_MODEL = ('fertility',)


@dataclasses.dataclass(frozen=True)
class AnalyzeConfig:
  """Which analysis, of which model, on which files.

  Attributes:
    what: one of `ANALYSES`; `rembert/analysis` has a file for each, which says what it measures and what it writes.
    model: a workdir, a checkpoint or a Hugging Face model directory. `fertility` takes its vocabulary alone.
    model_name: what tables and pictures call it; None is the name of its folder.
    seed: of everything random.
    samples: of every bootstrap.
    batch_size: rows at a time; `layer_retrieval`: of 64 pieces each, or fewer that are longer.
    rows: `masked_accuracy`: held-out rows of each language at most. The text is that of `data.*`, as in training.
    source: `layer_retrieval`: a file, a sentence a line. None takes Tatoeba from `xtreme.data_dir`, in the languages of
      `xtreme.languages`.
    target: `layer_retrieval`: its translation, line by line.
    max_pairs: `layer_retrieval`: of the first lines so many; the paper's M is 5000.
    words: `word_similarity`: files of two words and a score a line.
    train: `edge_probing`: a file of JSON lines. None takes UDPOS from `xtreme.data_dir`, learned in
      `xtreme.train_language`, in the languages of `xtreme.languages`.
    dev: `edge_probing`: a file to stop by.
    test: `edge_probing`: files to be scored on.
    control: `edge_probing`: whether to probe an encoder with random parameters too, for comparison.
    text: `fertility`: a folder of `LL.txt`, also packed.
    characters: `fertility`: of each language's text at most.
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
      raise UsageError('two files are needed', where='analyze.source, analyze.target', fix='give both, or neither')

  def require(self, *names: str) -> None:
    """UsageError unless all of these fields are set."""
    for name in names:
      if not getattr(self, name):
        raise UsageError(f'{self.what} needs analyze.{name}', where=f'analyze.{name}', fix=f'--gin.analyze.{name}=…')


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """The probe of `edge_probing` and how it learns.

  Attributes:
    projection: width that states are projected to before spans are pooled.
    hidden: width of the net's inner layer.
    learning_rate: Adam's.
    batch_size: sentences of a batch.
    epochs: passes over the training set at most.
    patience: epochs without a better dev score until it stops.
    max_train: training sentences at most, drawn by `seed`; None takes all.
    cache_gb: hidden states are kept in memory where all of a set take no more, and computed again otherwise.
    seed: of parameters, order and the random encoder.
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
