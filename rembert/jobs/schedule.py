"""The schedule of a pre-training run as tables and as a plot: phases, sampling rates, mask rate, learning rate."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rembert.data.phases import Phase
from rembert.data.token_store import TokenStore
from rembert.jobs.config import PretrainConfig
from rembert.jobs.pretrain_data import show_largest
from rembert.plotting.training import plot_schedule
from rembert.tracking.console import Console
from rembert.train.optimizer import learning_rate_schedule

PLOT = 'schedule.png'  # in the workdir
_POINTS = 400

Rates = Callable[[Phase], Mapping[str, float]]


def show_phases(console: Console, config: PretrainConfig) -> None:
  """A row per phase with the settings that any phase changes; nothing for a run without phases."""
  if config.phases.begins is None:
    return
  by_number: dict[int, list[Phase]] = collections.defaultdict(list)
  for phase in config.schedule():
    by_number[phase.number].append(phase)
  names = [name for name in _COLUMNS if getattr(config.phases, name) is not None]
  rows = []
  for number, phases in by_number.items():
    first, last = phases[0], phases[-1]
    tokens = sum(_tokens(config, phase) for phase in phases)
    change = lambda name, first=first, last=last: list(dict.fromkeys(_COLUMNS[name](p) for p in (first, last)))
    values = (' → '.join(change(name)) for name in names)
    rows.append((str(number + 1), f'{first.begin:,} to {last.end:,}', *values, f'{tokens:.3g}'))
  console.table('Phases', ('', 'steps', *(name.replace('_', ' ') for name in names), 'tokens'), rows)


_COLUMNS: dict[str, Callable[[Phase], str]] = {
  'alpha': lambda phase: f'{phase.alpha:.3g}',
  'languages': lambda phase: _languages(phase.languages),
  'mixture': lambda phase: str(phase.mixture),
  'masking_rate': lambda phase: f'{phase.masking_rate:.1%}',
  'sequence_length': lambda phase: str(phase.sequence_length),
  'store': lambda phase: str(phase.store),
}


def _languages(languages: tuple[str, ...] | None) -> str:
  codes = ', '.join(languages or ())
  return 'all' if languages is None else codes if len(codes) <= 30 else f'{len(languages)} codes'


def _tokens(config: PretrainConfig, phase: Phase) -> int:
  return (phase.end - phase.begin) * config.train.batch_size * phase.sequence_length


def show_sampling(console: Console, config: PretrainConfig, rates_in: Rates) -> None:
  """Tokens of the whole run by language, padding included, and from token stores the epochs of each."""
  tokens: dict[str, float] = collections.defaultdict(float)
  epochs: dict[str, float] = collections.defaultdict(float)
  open_store = functools.cache(TokenStore)
  for phase in config.schedule():
    store = open_store(phase.store) if phase.store else None
    for language, rate in rates_in(phase).items():
      tokens[language] += rate * _tokens(config, phase)
      if store is not None:
        rows = rate * (phase.end - phase.begin) * config.train.batch_size
        epochs[language] += rows / store.rows(language, 'train')
  total = sum(tokens.values())

  def row(label: str, languages: Sequence[str]) -> tuple[str, ...]:
    count = sum(tokens[language] for language in languages)
    passes = [epochs[language] for language in languages if language in epochs]
    span = dict.fromkeys(f'{passes:.3g}' for passes in (min(passes), max(passes))) if passes else {}
    return label, f'{count:.3g}', f'{count / total:.2%}', ' to '.join(span)

  show_largest(console, 'Tokens by language', ('', 'tokens', 'share', 'epochs'), tokens, row)
  if epochs:
    most = max(epochs, key=lambda language: epochs[language])
    console.say(f'most repeated: {most}, {epochs[most]:.3g} epochs')
  else:
    console.say('epochs are known of token stores only: python -m tasks.token_store --help')


def draw(config: PretrainConfig, rates_in: Rates | None) -> bytes:
  """Sampling rates by language, if they are known, mask rate and learning rate over the steps of the run, as PNG."""
  phases = config.schedule()
  begins = [phase.begin for phase in phases]
  steps = np.unique(
    [*np.linspace(0, config.train.steps - 1, _POINTS).astype(int), *begins, *(b - 1 for b in begins[1:])]
  )
  of_step = np.searchsorted(begins, steps, side='right') - 1
  rates = [{} if rates_in is None else rates_in(phase) for phase in phases]
  largest: dict[str, float] = {}
  for of_phase in rates:
    for language, rate in of_phase.items():
      largest[language] = max(rate, largest.get(language, 0.0))
  by_size = sorted(largest, key=lambda language: -largest[language])
  values = {language: np.array([rates[index].get(language, 0) for index in of_step]) for language in by_size}
  learning_rate = learning_rate_schedule(config.optimizer, config.train.steps)
  return plot_schedule(
    steps,
    rates=values,
    masking=np.array([phases[index].masking_rate for index in of_step]),
    learning_rate=np.asarray(learning_rate(steps)),
  )
