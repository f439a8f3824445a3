"""Schedules over a run: what changes from phase to phase of pre-training, and the settings of every step.

Multilingual encoders since RemBERT are trained in phases: mmBERT (Marone et al., 2025, arXiv:2509.06888) lowers the
sampling exponent and the mask rate while languages join.
"""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Annotated, Any

from rembert.data.batches import Batch, BatchSource
from rembert.data.config import DataConfig
from rembert.data.masking import MaskingConfig
from rembert.data.stream_source import begin_window
from rembert.errors import Setting, UsageError
from rembert.tokenizer import SpecialIds
from rembert.validation import Count, NotNegative, Range, check_fields

_MOST_STAIRS = 100  # of a linear change: sampling rates are constant on each


@dataclasses.dataclass(frozen=True)
class PhasesConfig:
  """Phases of pre-training: a field has one value per phase, in order; one that is None keeps the run's own setting.

  Held-out rows are those of the run's own settings throughout, so that evaluations can be compared across phases.

  Attributes:
    begins: where each phase begins, ascending from 0: a whole number is a step, a number with a decimal point is a
      fraction of `train.steps`. A last phase that begins at 1.0, the end, is where a linear change arrives. None: the
      run has no phases.
    alpha: `data.alpha` of each phase.
    languages: `data.languages` of each phase, from among those of the run: `'de,en'`, or None for all.
    mixture: `data.mixture` of each phase: a SeqIO mixture with other rates for tasks of the run's.
    masking_rate: `masking.rate` of each phase.
    sequence_length: `train.sequence_length` of each phase.
    store: `data.store` of each phase; a store has one sequence length.
    linear: `alpha`, `masking_rate` or both: these change linearly from the value of a phase to that of the next, in at
      most 100 equal steps, instead of all at once.
  """

  begins: tuple[NotNegative, ...] | None = None
  alpha: tuple[NotNegative, ...] | None = None
  languages: tuple[str | None, ...] | None = None
  mixture: tuple[str, ...] | None = None
  masking_rate: tuple[Annotated[float, Range(above=0, most=1)], ...] | None = None
  sequence_length: tuple[Count, ...] | None = None
  store: tuple[str, ...] | None = None
  linear: tuple[str, ...] = ()

  def __post_init__(self):
    check_fields(self, 'phases')

  def steps(self, total: int) -> list[int]:
    """The first step of each phase of a run of `total` steps, and `total`."""
    begins = [begin if isinstance(begin, int) else round(begin * total) for begin in self.begins or (0,)]
    if begins[0] != 0 or any(a >= b for a, b in itertools.pairwise(begins)) or begins[-1] > total:
      raise UsageError(
        'phases begin at 0 and ascend up to the end of the run',
        where=f'phases.begins = {self.begins!r}: steps {", ".join(map(str, begins))} of {total}',
        fix='fractions have a decimal point, whole numbers are steps: --gin.phases.begins=(0, 0.6, 0.9)',
      )
    return [*begins, total]


@dataclasses.dataclass(frozen=True)
class Phase:
  """Settings of the steps from `begin` until before `end`; of a linear change, those of one of its equal steps."""

  begin: int
  end: int
  number: int  # of the phase it belongs to, from 0
  alpha: float
  languages: tuple[str, ...] | None
  mixture: str | None
  masking_rate: float
  largest_masking_rate: float  # of the phase; the number of masked positions per row, a shape, follows from it
  sequence_length: int
  store: str | None


def phases_of(
  config: PhasesConfig, *, steps: int, data: DataConfig, masking: MaskingConfig, sequence_length: int
) -> list[Phase]:
  """The phases of a run with these settings of its own, linear changes in small steps; just one if there are none.

  UsageError if they do not ascend, or contradict the run's own settings.
  """
  own: dict[str, Any] = {
    'alpha': data.alpha,
    'languages': data.languages,
    'mixture': data.mixture,
    'masking_rate': masking.rate,
    'sequence_length': sequence_length,
    'store': data.store,
  }
  given = {name: values for name in own if (values := getattr(config, name)) is not None}
  _check_values(config, given)
  _refuse_contradictions(given, data)
  borders = config.steps(steps)
  count = len(borders) - 1
  columns: dict[str, tuple] = {name: given.get(name) or (value,) * count for name, value in own.items()}
  columns['languages'] = tuple(
    tuple(part.strip() for part in each.split(',')) if isinstance(each, str) else each or data.languages
    for each in columns['languages']
  )
  phases = []
  for number, (begin, end) in enumerate(itertools.pairwise(borders)):
    values = {name: column[number] for name, column in columns.items()}
    after = {name: columns[name][number + 1] for name in config.linear if number + 1 < count}
    after = {name: value for name, value in after.items() if value != values[name]}
    stairs = min(_MOST_STAIRS, end - begin) if after else min(1, end - begin)
    largest = max(values['masking_rate'], after.get('masking_rate', 0))
    edges = [begin + (end - begin) * stair // stairs for stair in range(stairs + 1)] if stairs else []
    for first, last in itertools.pairwise(edges):
      at = ((first + last) / 2 - begin) / (end - begin)  # where the change has its mean over these steps
      changed = {name: values[name] + (value - values[name]) * at for name, value in after.items()}
      phases.append(Phase(begin=first, end=last, number=number, largest_masking_rate=largest, **values | changed))
  return phases


def _check_values(config: PhasesConfig, given: Mapping[str, tuple]) -> None:
  """UsageError unless every field that is set has a value per phase, and those that are to change linearly can."""
  begins = config.begins
  if begins is None and (given or config.linear):
    name = next(iter(given), 'linear')
    what = 'values of phases, and nothing says where these begin'
    raise UsageError(what, where=f'phases.{name}', fix='--gin.phases.begins=(0, 0.8)')
  for name, values in given.items():
    if len(values) != len(begins or ()):
      raise UsageError(
        f'{len(values)} values for {len(begins or ())} phases',
        where=f'phases.{name} = {values!r}, phases.begins = {begins!r}',
        fix='one value per phase',
      )
  for name in config.linear:
    if name not in ('alpha', 'masking_rate') or name not in given:
      raise UsageError(
        f'{name} cannot change linearly',
        where=f'phases.linear = {config.linear!r}',
        fix='alpha or masking_rate, with a value per phase each',
      )


def _refuse_contradictions(given: Mapping[str, tuple], data: DataConfig) -> None:
  """UsageError for what the run's source of text cannot change."""
  has_mixture, is_stored = data.mixture is not None, data.source == 'store'
  own = ('rates and languages of a SeqIO mixture are its own', 'data.mixture; phases.mixture changes them')
  one_length = ('a token store has one sequence length', 'phases.store, with a store per phase')
  rules = (
    ('store', is_stored, 'only a run on token stores can change its store', 'data.source'),
    ('mixture', has_mixture, 'only a run on a SeqIO mixture can change its mixture', 'data.mixture'),
    ('alpha', not has_mixture, *own),
    ('languages', not has_mixture, *own),
    ('sequence_length', not is_stored or 'store' in given, *one_length),
  )
  for name, is_possible, what, where in rules:
    if name in given and not is_possible:
      raise UsageError(what, where=f'phases.{name}, {where}', fix=Setting(f'phases.{name}', None))


def same_until(before: list[Phase], now: list[Phase], step: int) -> bool:
  """Whether two schedules have the same settings at every step before `step`."""
  settings = lambda phases: [
    dataclasses.replace(phase, end=min(phase.end, step), number=0) for phase in phases if phase.begin < step
  ]
  return settings(before) == settings(now)


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedBatches(BatchSource):
  """A `BatchSource` whose rows become longer or shorter, or come from another store, at some steps.

  `parts` are sources, each with its first step, in ascending order from 0. Streams continue where the part before
  stopped; the rows of the window that they were in are packed again, at the new length.
  """

  parts: tuple[tuple[int, BatchSource], ...]
  own: BatchSource  # of held-out batches

  @classmethod
  def chain(cls, parts: Sequence[tuple[int, BatchSource]], own: BatchSource) -> 'PhasedBatches':
    """The source with the seed, the languages and all else of `own`."""
    shared = {field.name: getattr(own, field.name) for field in dataclasses.fields(BatchSource)}
    return cls(parts=tuple(parts), own=own, **shared)

  @property
  def special(self) -> SpecialIds:
    """See `BatchSource`."""
    return self.own.special

  def batches(self, step: int = 0, state: dict | None = None) -> Generator[tuple[Batch, dict], None, None]:
    """See `BatchSource`."""
    ends = [begin for begin, _ in self.parts[1:]] + [sys.maxsize]
    for (begin, source), end in zip(self.parts, ends, strict=True):
      if step >= end:
        continue
      if state and step == begin > 0:
        state = {language: begin_window(place) for language, place in state.items()}
      with contextlib.closing(source.batches(step, state)) as batches:
        for batch, state in itertools.islice(batches, end - step):
          yield batch, state
      step = end

  def evaluation_batches(self) -> Iterator[Batch]:
    """See `BatchSource`."""
    return self.own.evaluation_batches()
