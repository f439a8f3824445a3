"""How the time of a training step, of its input and of a start grows with what a user may change.

Each table has the times for several sizes, and the exponent of the power of the size that fits them best: 1 is
proportional, 0 independent, −1 halves the time when the size doubles.

- `layers`, `vocabulary`, `length`: a step of pre-training. The batch has as many sequences for each length.
- `hosts`: one host's part of 300 global batches of 512 sequences, from a token store, on one core.
- `shards`: the same batches on one host, from stores of more and smaller files.
- `languages`: from the command to the first step of the smoke run, from a store of N languages.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks import data_pipeline, settings, startup, train_step
from benchmarks.interleaved import Benchmark, Candidate, Measurements, Run

READ = data_pipeline.BatchSetting(rows=512, length=64, batches=300)


class Point(NamedTuple):
  """A size, and what is measured for it."""

  size: int
  prepare: Callable[..., Run]
  arguments: tuple


@dataclasses.dataclass(frozen=True)
class Growth:
  """Times for several sizes of one kind."""

  unit: str
  description: str
  points: Callable[[pathlib.Path], list[Point]]  # takes the scratch directory
  one_core: bool = False


# --- a step -----------------------------------------------------------------------------------------------------------


def _steps(by_size: Mapping[int, settings.Setting]) -> list[Point]:
  return [Point(size, train_step.prepare_pretraining, (setting,)) for size, setting in by_size.items()]


def _changed(setting: settings.Setting, **config: int) -> settings.Setting:
  return dataclasses.replace(setting, config=dataclasses.replace(setting.config, **config))


def _layers(scratch: pathlib.Path) -> list[Point]:
  del scratch
  return _steps(
    {layers: _changed(train_step.PRETRAINING['small'], num_hidden_layers=layers) for layers in (2, 4, 8, 16)}
  )


def _vocabularies(scratch: pathlib.Path) -> list[Point]:
  del scratch
  sizes = (8_000, 32_000, 128_000, 512_000)
  return _steps({size: _changed(train_step.PRETRAINING['small'], vocab_size=size) for size in sizes})


def _lengths(scratch: pathlib.Path) -> list[Point]:
  del scratch
  found = {}
  for length in (128, 256, 512, 1024):
    setting = dataclasses.replace(train_step.PRETRAINING['small'], rows=2, length=length, slots=round(0.15 * length))
    found[length] = _changed(setting, max_position_embeddings=length)
  return _steps(found)


# --- input ------------------------------------------------------------------------------------------------------------


def _hosts(scratch: pathlib.Path) -> list[Point]:
  store = data_pipeline.make_store(READ, scratch)
  return [Point(hosts, data_pipeline.prepare_reading, (READ, store, hosts)) for hosts in (1, 2, 4, 8, 16)]


def _shards(scratch: pathlib.Path) -> list[Point]:
  found = []
  for megabytes in (256, 0.02, 0.005):
    (folder := scratch / str(megabytes)).mkdir()
    store = data_pipeline.make_store(READ, folder, f'--shard_mb={megabytes}')  # which has the shards of its corpus
    found.append(Point(len(list(store.rglob('*.array_record'))), data_pipeline.prepare_reading, (READ, store)))
  return found


# --- a start ----------------------------------------------------------------------------------------------------------


def _languages(scratch: pathlib.Path) -> list[Point]:
  from tasks.wikipedia.languages import MBERT

  settings.make_vocabulary(startup.VOCABULARY_SIZE, scratch / startup.VOCABULARY)
  random, letters, found = np.random.default_rng(0), np.array(list('abcdefghijklmnoprstuvw')), []
  for count in (1, 10, 100):
    text, store = scratch / f'text{count}', scratch / f'store{count}'
    text.mkdir()
    for language in MBERT[:count]:
      words = [''.join(random.choice(letters, size=5)) for _ in range(6000)]
      documents = [' '.join(words[at : at + 60]) + '.' for at in range(0, len(words), 60)]
      (text / f'{language}.txt').write_text('\n\n'.join(documents) + '\n')
    flags = (f'--text={text}', f'--vocabulary={scratch / startup.VOCABULARY}', f'--output={store}')
    settings.call('tasks.token_store', *flags, f'--sequence_length={READ.length}', '--held_out=0.1')
    data = ('data.source=store', f'data.store={store}')
    found.append(Point(count, startup.prepare_first_step, (scratch, False, *data)))
  return found


# --- all --------------------------------------------------------------------------------------------------------------


def candidates(growth: Growth, scratch: pathlib.Path) -> list[Candidate]:
  """One for each size, with its number as the name."""
  return [
    Candidate(f'{point.size:,}', point.prepare, point.arguments, {}, one_core=growth.one_core)
    for point in growth.points(scratch)
  ]


def exponent(growth: Growth, measured: Measurements) -> str:
  """The power of the size that fits the medians best, by least squares of logarithms."""
  found = [(int(name.replace(',', '')), each.median) for name, each in measured.items() if each.seconds]
  if len(found) < 2:
    return ''
  sizes, seconds = np.log(np.array(found)).T
  return f'time ∝ {growth.unit}^{np.polyfit(sizes, seconds, 1)[0]:.2f}'


_step = 'a step of the small model, 16 × 128 tokens'
GROWTH = Benchmark(
  {
    'layers': Growth('layers', _step, _layers),
    'vocabulary': Growth('vocabulary', _step, _vocabularies),
    'length': Growth('length', 'a step of the small model, two sequences', _lengths),
    'hosts': Growth('hosts', f"one host's part of {READ.description}", _hosts, one_core=True),
    'shards': Growth('shards', READ.description, _shards, one_core=True),
    'languages': Growth('languages', 'pretrain_smoke to its first step, from a store', _languages),
  },
  candidates,
  warm_up_runs=1,
  conclusion=exponent,
)
