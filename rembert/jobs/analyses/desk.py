"""What every analysis is given to work with, and what it hands back."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from rembert.analysis.config import AnalyzeConfig, ProbeConfig
from rembert.convert.importing import Source, open_source
from rembert.data.config import DataConfig, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.model.config import Execution, RemBertConfig
from rembert.runtime.signals import Stopped, StopSignal
from rembert.tracking.console import Console, Progress
from rembert.train.sharding import MeshConfig
from rembert.train.trainer import TrainConfig
from tasks.xtreme.config import XtremeConfig


@dataclasses.dataclass(frozen=True)
class AnalysisConfig:
  """Everything that an analysis is told. Of `train` the length of rows and the seed of their masks count."""

  analyze: AnalyzeConfig
  probe: ProbeConfig
  xtreme: XtremeConfig
  vocabulary: VocabularyConfig
  execution: Execution
  data: DataConfig
  masking: MaskingConfig
  packing: PackingConfig
  mesh: MeshConfig
  train: TrainConfig


@dataclasses.dataclass(frozen=True)
class Table:
  """A table to be shown."""

  title: str
  columns: Sequence[str]
  rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Analysed:
  """What comes of an analysis.

  Attributes:
    results: JSON, as the head of its file in `rembert/analysis` says.
    facts: JSON: what it was made of.
    tables: for the person at the keyboard.
    remarks: lines that stand behind the tables.
  """

  results: dict[str, Any]
  facts: dict[str, Any]
  tables: Sequence[Table]
  remarks: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Desk:
  """Where an analysis is at work.

  Attributes:
    config: what it is told.
    workdir: where it may write.
    console: tells.
    stop: set when the program is asked to end.
  """

  config: AnalysisConfig
  workdir: epath.Path
  console: Console
  stop: StopSignal

  @contextlib.contextmanager
  def task(self, description: str) -> Iterator[Progress]:
    """`Console.task` that ends the analysis, by Stopped, when the program is asked to."""
    with self.console.task(description) as update:

      def heeding(fraction: float, note: str = '') -> None:
        if self.stop.requested:
          raise Stopped(self.stop.requested)
        update(fraction, note)

      yield heeding

  def source(self) -> Source:
    """The model's tensors, unread; UsageError if none is named."""
    if self.config.analyze.model is None:
      raise UsageError(
        'which model?', where='analyze.model', fix='--gin.analyze.model=WORKDIR, or a folder of Hugging Face'
      )
    return open_source(self.config.analyze.model)


def model_facts(config: RemBertConfig, path: str) -> dict[str, Any]:
  """What is to be known of a model that was analysed."""
  names = ('vocab_size', 'input_embedding_size', 'output_embedding_size', 'hidden_size', 'num_hidden_layers')
  return {'checkpoint': path, **{name: getattr(config, name) for name in (*names, 'tie_word_embeddings')}}


def number(value: float | None, digits: int = 1) -> str:
  """A number of a table; – where there is none."""
  return '–' if value is None else f'{value:.{digits}f}'
