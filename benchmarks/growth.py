"""How the cost of this project grows: with layers, vocabulary, E_out, length, hosts, and rows of a store.

Nobody is compared with: each contestant is this project at another size, and the ratios are to the smallest. Below the
table stands the slope, the exponent p of the power law seconds ∝ sizeᵖ that fits all medians best: 1 for a cost that
doubles with the size, 0 for one that does not feel it. Training steps are those of `train_step`, on all cores.
"""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from benchmarks import reading, train_step
from benchmarks.settings import SMALL, SMOKE, Setting
from benchmarks.turns import Contestant, Measurement, Run
from rembert.data.token_store import MANIFEST, Shard, TokenStore, row_dtype, sha256_of
from rembert.training.tracking import read_jsonl

BATCH = Setting(SMALL, rows=8, length=128, slots=20)
TOKENS = BATCH.rows * BATCH.length
STEPS_OF_HOSTS = 30


@dataclasses.dataclass(frozen=True)
class Growth:
  """What grows, and how far."""

  name: str
  sizes: tuple[int, ...]
  remark: str

  @property
  def description(self) -> str:
    """One line."""
    return f'{self.name} from {self.sizes[0]:,} to {self.sizes[-1]:,}; {self.remark}'


_STEP = 'a training step of 8 × 128 tokens of the small model'
SETTINGS = {
  'layers': Growth('layers', (2, 4, 8, 16), _STEP),
  'vocabulary': Growth('pieces', (16_000, 32_000, 64_000, 128_000), _STEP),
  'output': Growth('E_out', (256, 512, 1024, 2048), _STEP),
  'length': Growth('S', (64, 128, 256, 512), f'{_STEP}, of as many tokens in rows of S'),
  'hosts': Growth('hosts', (1, 2), f'{STEPS_OF_HOSTS} steps of the smoke run on 2 devices, from start to end'),
  'store': Growth('rows', (4_000, 40_000, 400_000), 'a store opened, and 100 batches of 32 × 64 read from it'),
}


def grown(name: str, size: int) -> Setting:
  """The training step with one of its sizes changed; the number of tokens stays."""
  if name == 'length':
    return dataclasses.replace(BATCH, rows=TOKENS // size, length=size, slots=size * BATCH.slots // BATCH.length)
  field = {'layers': 'num_hidden_layers', 'vocabulary': 'vocab_size', 'output': 'output_embedding_size'}[name]
  return dataclasses.replace(BATCH, config=dataclasses.replace(BATCH.config, **{field: size}))


# --- contestants ------------------------------------------------------------------------------------------------------


def prepare_hosts(hosts: int) -> Run:
  """A run on that many processes of this machine, which share two devices."""

  def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as workdir:
      bindings = {'train.steps': STEPS_OF_HOSTS, 'train.log_every': 5, 'train.eval_every': 1000, 'train.eval_rows': 8}
      flags = [f'--gin.{name}={value}' for name, value in bindings.items()]
      cluster = [sys.executable, '-m', 'launch.local_cluster', f'--processes={hosts}', f'--devices={2 // hosts}', '--']
      program = [sys.executable, '-m', 'rembert.main', f'--gin_file={SMOKE}', f'--workdir={workdir}']
      subprocess.run([*cluster, *program, *flags], check=True, capture_output=True)
      rows = read_jsonl(pathlib.Path(workdir) / 'metrics.jsonl')
    seconds = [row['step_seconds'] for row in rows if 'step_seconds' in row]
    return {'seconds a step': float(np.median(seconds[1:]))}

  return run


def prepare_store(folder: pathlib.Path, setting: reading.Setting) -> Run:
  """A store is opened, and its first batches are read; each time from the beginning, as a new run does."""

  def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as workdir:
      return dict(reading.prepare_ours(setting, folder, pathlib.Path(workdir))() or {})

  return run


def multiply_store(store: pathlib.Path, folder: pathlib.Path, rows: int) -> None:
  """A store of about that many training rows: those of `store`, again and again, a file for each language."""
  from tasks.token_store.shards import write_rows

  small, manifest = TokenStore(store), json.loads((store / MANIFEST).read_text())
  times = max(1, rows // sum(small.rows(language, 'train') for language in small.languages))
  for language, part in manifest['languages'].items():
    ids = small.read(language, 'train', range(small.rows(language, 'train')))
    path = epath.Path(folder) / language / 'train.array_record'
    count = write_rows(itertools.chain.from_iterable(itertools.repeat(ids, times)), path, row_dtype(small.vocab_size))
    file, size = path.relative_to(folder).as_posix(), path.stat().length
    part['shards'] = {
      'train': [dataclasses.asdict(Shard(file=file, rows=count, bytes=size, sha256=sha256_of(path)))],
      'validation': part['shards']['validation'],
    }
    for shard in part['shards']['validation']:
      (folder / shard['file']).hardlink_to(store / shard['file'])
  shutil.copytree(store / 'vocabulary', folder / 'vocabulary')
  (folder / MANIFEST).write_text(json.dumps(manifest))


def names(setting_name: str) -> dict[str, int]:
  """Contestants and their sizes."""
  setting = SETTINGS[setting_name]
  return {f'{setting.name} {size:,}': size for size in setting.sizes}


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """The sizes, the smallest first."""
  sizes = names(setting_name)
  if setting_name == 'hosts':
    return [Contestant(name, prepare_hosts, (size,), {'runs': 1}) for name, size in sizes.items()]
  if setting_name == 'store':
    of_batches = dataclasses.replace(reading.SETTINGS['rows64'], batches=100)
    small, work = reading.make_store(of_batches, scratch), {'rows': of_batches.rows * of_batches.batches}
    for size in sizes.values():
      multiply_store(small, scratch / f'{size}', size)
    return [
      Contestant(name, prepare_store, (scratch / f'{size}', of_batches), work, one_core=True)
      for name, size in sizes.items()
    ]
  contestant = functools.partial(Contestant, work={'tokens': TOKENS})
  return [contestant(name, train_step.prepare_ours, (grown(setting_name, size),)) for name, size in sizes.items()]


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
  """The exponent p of seconds ∝ sizeᵖ, by least squares of the logarithms."""
  return float(np.polyfit([math.log(size) for size in sizes], [math.log(each) for each in seconds], 1)[0])


def conclusion(setting_name: str, measured: Mapping[str, Measurement]) -> str:
  """What the table amounts to, in a line."""
  found = [(size, measured[name].median) for name, size in names(setting_name).items() if _is_measured(name, measured)]
  if len(found) < 2:
    return ''
  return f'seconds grow as {SETTINGS[setting_name].name} to the power of {slope(*zip(*found, strict=True)):.2f}'


def _is_measured(name: str, measured: Mapping[str, Measurement]) -> bool:
  return name in measured and bool(measured[name].seconds)
