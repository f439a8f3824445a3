"""Shared by all analyses: their configuration, the context that they run in, and their result."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etils import epath

from rembert.analysis.config import AnalyzeConfig, ProbeConfig
from rembert.checkpoint.load import open_source
from rembert.convert.tensor_names import Source
from rembert.data.config import DataConfig, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError
from rembert.model.config import Execution
from rembert.runtime.signals import Stopped, StopSignal
from rembert.runtime.xla import HardwareConfig
from rembert.tokenizer import check_vocabulary
from rembert.tracking.console import Console, Progress
from rembert.train.sharding import MeshConfig
from rembert.train.trainer import TrainConfig
from tasks.corpus.build import corpus_or_text
from tasks.xtreme import XtremeConfig


@dataclasses.dataclass(frozen=True)
class AnalysisConfig:
  """Configuration of an analysis job. From `train` it uses the sequence length and the seed of the masks."""

  analyze: AnalyzeConfig
  probe: ProbeConfig
  xtreme: XtremeConfig
  vocabulary: VocabularyConfig
  execution: Execution
  data: DataConfig
  masking: MaskingConfig
  packing: PackingConfig
  mesh: MeshConfig
  hardware: HardwareConfig
  train: TrainConfig


@dataclasses.dataclass(frozen=True)
class Table:
  """A table for the console."""

  title: str
  columns: Sequence[str]
  rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class AnalysisResult:
  """Results of an analysis, and how to show them."""

  results: dict[str, Any]  # JSON, documented at the top of the analysis' module
  facts: dict[str, Any]  # JSON that describes the inputs
  tables: Sequence[Table]
  remarks: Sequence[str] = ()  # lines below the tables


@dataclasses.dataclass(frozen=True)
class AnalysisContext:
  """Configuration, output directory and console of an analysis; and a function of `rembert.jobs`, a higher layer."""

  config: AnalysisConfig
  workdir: epath.Path
  console: Console
  stop: StopSignal
  open_data: Callable[..., Any]  # `rembert.jobs.pretrain_data.open_data`

  @contextlib.contextmanager
  def task(self, description: str) -> Iterator[Progress]:
    """`Console.task` whose updates raise Stopped after a stop request."""
    with self.console.task(description) as update:

      def update_or_stop(fraction: float, note: str = '') -> None:
        if self.stop.requested:
          raise Stopped(self.stop.requested)
        update(fraction, note)

      yield update_or_stop

  def texts(self, description: str) -> Iterator[tuple[str, list[str]]]:
    """Each language of `analyze.text`, and its training documents, up to `analyze.characters` characters."""
    analyze = self.config.analyze
    with (
      corpus_or_text(analyze.text, self.config.data.languages, self.console) as corpus,
      self.task(description) as progress,
    ):
      for done, language in enumerate(corpus.languages):
        progress(done / len(corpus.languages), language)
        yield language, list(corpus.sample(language, 'train', analyze.characters))

  def source(self) -> Source:
    """The model's tensors, unread."""
    return open_source(self.config.analyze.model)

  def vocabulary(self, source: Source) -> epath.PathLike:
    """The file of `vocabulary.path`, or of the model; UsageError if there is none, or it is another model's."""
    file = self.config.vocabulary.path or source.vocabulary
    if file is None:
      raise UsageError(
        'the model has no vocabulary', where=source.path, fix='--gin.vocabulary.path=sentencepiece.model'
      )
    check_vocabulary(file, source.config.vocab_size)
    return file


def model_facts(source: Source) -> dict[str, Any]:
  """Checkpoint and sizes of the analysed model, for `AnalysisResult.facts`."""
  names = ('vocab_size', 'input_embedding_size', 'output_embedding_size', 'hidden_size', 'num_hidden_layers')
  sizes = {name: getattr(source.config, name) for name in (*names, 'tie_word_embeddings')}
  return {'checkpoint': source.path, **sizes}


def format_number(value: float | None, digits: int = 1) -> str:
  """A number in a table; – for None."""
  return '–' if value is None else f'{value:.{digits}f}'
