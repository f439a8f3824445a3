"""What `--mode=analyze` is told."""

import dataclasses

from rembert.errors import UsageError

ANALYSES = (
  *('masked_accuracy', 'layer_retrieval', 'word_similarity', 'edge_probing'),  # of the paper
  *('spectra', 'fertility', 'scaling'),
)
# What needs no model: a vocabulary is enough, or a file of scores.
WITHOUT_MODEL = ('fertility', 'scaling')


@dataclasses.dataclass(frozen=True)
class AnalyzeConfig:
  """Which analysis, of which model, on which files.

  Attributes:
    what: one of `ANALYSES`; `rembert/analysis` has a file for each, which says what it measures and what it writes.
    model: a workdir, a checkpoint or a folder of Hugging Face. `fertility` takes its vocabulary alone.
    model_name: what tables and pictures call it; None is the name of its folder.
    seed: of everything random.
    samples: of every bootstrap.
    batch_size: rows at a time; `layer_retrieval`: of 64 pieces each, or fewer that are longer.
    rows: `masked_accuracy`: held-out rows of each language at most. The text is that of `data.*`, as in training.
    source: `layer_retrieval`: a file, a sentence a line. None takes Tatoeba from `xtreme.data_dir`, in the languages of
      `xtreme.languages`.
    target: `layer_retrieval`: its translation, line by line.
    pair: `layer_retrieval`: what the two files are called; None is their names (`de-en`).
    max_pairs: `layer_retrieval`: of the first lines so many; the paper's M is 5000.
    reverse: `layer_retrieval`: whether the targets ask too.
    words: `word_similarity`: files of two words and a score a line.
    columns: `word_similarity`: of the two words and the score; numbers from 1, or names in the header.
    train: `edge_probing`: a file of JSON lines. None takes UDPOS from `xtreme.data_dir`, learned in
      `xtreme.train_language`, in the languages of `xtreme.languages`.
    dev: `edge_probing`: a file to stop by.
    test: `edge_probing`: files to be scored on.
    control: `edge_probing`: whether a probe of an encoder with random parameters stands beside it.
    text: `spectra`, `fertility`: a folder of `LL.txt`, also packed.
    store: `spectra`: a token store whose training rows are counted instead.
    counts: `spectra`: a file of `ID TAB COUNT` lines instead.
    characters: `spectra`, `fertility`: of each language's text at most.
    results: `fertility`: where scores by language come from: the workdir of a fine-tuning or evaluation, or of an
      analysis by `masked_accuracy` or `edge_probing`.
    task: `fertility`: which task's scores, where there are several.
    points: `scaling`: a CSV or JSON file of x, score and, if known, its standard deviation.
  """

  what: str = 'masked_accuracy'
  model: str | None = None
  model_name: str | None = None
  seed: int = 0
  samples: int = 1000
  batch_size: int = 64
  rows: int = 200
  source: str | None = None
  target: str | None = None
  pair: str | None = None
  max_pairs: int = 5000
  reverse: bool = False
  words: tuple[str, ...] = ()
  columns: tuple[int | str, ...] = (1, 2, 3)
  train: str | None = None
  dev: str | None = None
  test: tuple[str, ...] = ()
  control: bool = True
  text: str | None = None
  store: str | None = None
  counts: str | None = None
  characters: int = 1_000_000
  results: str | None = None
  task: str | None = None
  points: str | None = None

  def __post_init__(self):
    if self.what not in ANALYSES:
      raise UsageError(f'unknown analysis {self.what!r}', where='analyze.what', fix=f'one of {", ".join(ANALYSES)}')
    for name in ('words', 'test'):
      value = getattr(self, name)
      object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
    for name in ('samples', 'batch_size', 'rows', 'max_pairs', 'characters'):
      _check_count('analyze', name, getattr(self, name), least=0 if name == 'samples' else 1)
    if len(self.columns) != 3:
      raise UsageError('three columns are needed', where=f'analyze.columns = {self.columns!r}', fix='(1, 2, 3)')
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

  projection: int = 256
  hidden: int = 256
  learning_rate: float = 1e-3
  batch_size: int = 32
  epochs: int = 20
  patience: int = 3
  max_train: int | None = None
  cache_gb: float = 4.0
  seed: int = 0

  def __post_init__(self):
    for name in ('projection', 'hidden', 'batch_size', 'epochs', 'patience'):
      _check_count('probe', name, getattr(self, name))
    if self.max_train is not None:
      _check_count('probe', 'max_train', self.max_train)
    for name in ('learning_rate', 'cache_gb'):
      if not getattr(self, name) >= 0:
        raise UsageError(f'{name} is negative', where=f'probe.{name} = {getattr(self, name)!r}', fix='make it ≥ 0')


def _check_count(group: str, name: str, value: int, least: int = 1) -> None:
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise UsageError(f'{name} must be a whole number ≥ {least}', where=f'{group}.{name} = {value!r}', fix='correct it')
