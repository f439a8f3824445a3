"""Benchmarks: this project beside what one would otherwise run, on this machine, as ratios."""

import argparse
import dataclasses
import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import tempfile
from typing import Any

import rich.console
import rich.table

from benchmarks import (
  checkpointing,
  cleaning,
  encoding,
  finetuning,
  growth,
  head,
  largest_batch,
  masking,
  reading,
  starting,
  tokenizing,
  train_step,
  windows,
)
from benchmarks.turns import Contestant, Measurement, NotHere, measure_in_turn, ratios, unit_of_comparison

# Each has SETTINGS, by name, with a `description`; contestants(setting, scratch folder), ours first, or NotHere. Some
# say how many runs warm up, WARM_UP_RUNS (2), and make a turn, RUNS_IN_A_ROW (1; see `measure_in_turn`). What is not to
# be measured in turns has measure(setting, contestants, rounds, say), which returns contestants, and measurements by
# name; where a table does not say all, there is conclusion(setting, measurements by name).
BENCHMARKS: dict[str, Any] = {
  'train_step': train_step,
  'largest_batch': largest_batch,
  'head': head,
  'finetuning': finetuning,
  'encoding': encoding,
  'masking': masking,
  'cleaning': cleaning,
  'reading': reading,
  'tokenizing': tokenizing,
  'windows': windows,
  'checkpointing': checkpointing,
  'starting': starting,
  'growth': growth,
}
PACKAGES = (
  *('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'array-record', 'grain', 'mwparserfromhell', 'sentencepiece'),
  *('torch', 'transformers', 'tokenizers', 'sentence-transformers', 'datasets', 'pyarrow'),
  *('seqio', 'tensorflow-text', 'wikiextractor'),
)

EXAMPLES = """
Each contestant runs in a process of its own; warmed up, they take turns (A B C A B C …), so that all see one and the
same machine. The table shows medians, and ratios taken round by round: how many times as long as this project, for the
same number of tokens, rows or MB (whatever comes first in the table). A turn is one run, and of steps of training three
in a row, after one that is not measured, since that is how they come. A shared machine changes every time in it, the
ratios less, and the ratios of CPU seconds (all threads together) least.

"useful GFLOP/s" counts the same work for everyone: the products that the model needs with the head on masked positions
only (rembert/training/flops.py). Who computes more than that is not credited for it.

  python -m benchmarks.run                                      everything (half an hour, and 25 GB for base)
  python -m benchmarks.run --only train_step --setting small    one table
  python -m benchmarks.run --only train_step --setting base --beside 'torch, float32'     15 GB instead of 25
  python -m benchmarks.run --only largest_batch --setting small the largest batch in 4 GB; `large`: on a GPU
  python -m benchmarks.run --only growth                        cost against layers, vocabulary, E_out, length, …
  python -m benchmarks.run --only head                          the MLM head alone, V from 32,000 to 500,000
  python -m benchmarks.run --only finetuning                    a step of XNLI, a step of SQuAD
  python -m benchmarks.run --only encoding --setting small      embeddings of 1,000 sentences
  python -m benchmarks.run --only masking                       rows masked on one core; seconds
  python -m benchmarks.run --only cleaning                      dumps to text on one core, beside wikiextractor
  REMBERT_BENCH_DUMPS=/path/to/dumps python -m benchmarks.run --only cleaning --setting dumps
  python -m benchmarks.run --only reading                       a token store to batches on one core, beside datasets
  python -m benchmarks.run --only tokenizing                    text to ids on one core, beside tokenizers
  python -m benchmarks.run --only windows                       windows of XTREME on one core, beside transformers
  python -m benchmarks.run --only checkpointing                 the state to disk and back, beside torch.save
  python -m benchmarks.run --only starting                      imports, and a run to its first step; eight minutes
  python -m benchmarks.run --rounds 15                          quieter figures

`make bench` installs torch, sentence-transformers, datasets and wikiextractor (benchmarks/requirements.txt); what is
missing is said in the table.
"""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
  """Command-line flags."""
  parser = argparse.ArgumentParser(
    'python -m benchmarks.run',
    description=__doc__,
    epilog=EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  settings = sorted({name for benchmark in BENCHMARKS.values() for name in benchmark.SETTINGS}, reverse=True)
  parser.add_argument('--only', choices=BENCHMARKS, metavar='NAME', help=f'one benchmark: {", ".join(BENCHMARKS)}')
  parser.add_argument('--setting', choices=settings, help='one setting; default: all of a benchmark')
  parser.add_argument(
    '--beside', action='append', metavar='NAME', help='only this contestant beside this project; repeatable (memory!)'
  )
  parser.add_argument('--rounds', type=int, default=7, help='turns of each contestant, at least 5; default %(default)s')
  parser.add_argument(
    '--output', type=pathlib.Path, default='runs/benchmarks', metavar='DIR', help='JSON files; default %(default)s'
  )
  options = parser.parse_args(arguments)
  if options.rounds < 5:
    parser.error('--rounds: a median of fewer than 5 says nothing')
  return options


def machine() -> dict:
  """What the figures were taken on."""
  model = platform.processor() or platform.machine()
  if os.path.exists('/proc/cpuinfo'):
    with open('/proc/cpuinfo') as lines:
      model = next((line.split(':')[1].strip() for line in lines if line.startswith('model name')), model)
  return {
    'cpu': model,
    'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
    'memory_bytes': os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'),
    'system': platform.platform(),
    'load_before': os.getloadavg()[0],
  }


def versions() -> dict[str, str | None]:
  """Of the packages that matter; None where one is not installed."""
  found: dict[str, str | None] = {'python': platform.python_version()}
  for package in PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = None
  return found


def table(title: str, contestants: list[Contestant], measured: dict[str, Measurement]) -> rich.table.Table:
  """Medians, rates, ratios to the first contestant, facts; who did not run takes a row that says why."""
  units = list(dict.fromkeys(unit for contestant in contestants for unit in contestant.work))
  facts = list(dict.fromkeys(fact for contestant in contestants for fact in measured[contestant.name].facts))
  rates = [f'{unit}/s' for unit in units]
  result = rich.table.Table(title=title, title_justify='left')
  result.add_column('')
  for column in (
    *('seconds', 'CPU seconds', *rates, '× this project', 'min … max', 'in CPU seconds', 'memory'),
    *facts,
  ):
    result.add_column(column, justify='right')
  for contestant in contestants:
    own = measured[contestant.name]
    if own.failure:
      result.add_row(contestant.name, f'NOT MEASURED: {own.failure}', style='bold red')
      continue
    ratio, cpu_ratio = compared(contestant, contestants[0], measured)
    result.add_row(
      contestant.name,
      f'{own.median:.3f}',
      f'{own.cpu_median:.3f}',
      *(_rate(contestant.work[unit] / own.median) if unit in contestant.work else '' for unit in units),
      f'{statistics.median(ratio):.2f}' if ratio else '',
      f'{min(ratio):.2f} … {max(ratio):.2f}' if ratio else '',
      f'{statistics.median(cpu_ratio):.2f}' if cpu_ratio else '',
      f'{own.peak_bytes / 1e9:.1f} GB',
      *(_fact(own.facts[fact]) if fact in own.facts else '' for fact in facts),
    )
  return result


def compared(other: Contestant, ours: Contestant, measured: dict[str, Measurement]) -> tuple[list[float], list[float]]:
  """How many times as long the other took for the same work, in seconds and in CPU seconds; empty without a meaning."""
  theirs, own, unit = measured[other.name], measured[ours.name], unit_of_comparison(other, ours)
  if other is ours or unit is None or theirs.failure or own.failure:
    return [], []
  share = ours.work[unit] / other.work[unit]
  return ratios(theirs.seconds, own.seconds, share), ratios(theirs.cpu_seconds, own.cpu_seconds, share)


def _rate(value: float) -> str:
  return f'{value:,.0f}' if value >= 100 else f'{value:.2f}'


def _fact(value: float) -> str:
  return f'{value:,}' if isinstance(value, int) else f'{value:.3f}'


def record(contestants: list[Contestant], measured: dict[str, Measurement]) -> list[dict]:
  """Raw samples, and what the table derives from them."""
  entries = []
  for contestant in contestants:
    own = measured[contestant.name]
    entry = {'name': contestant.name, **dataclasses.asdict(own)}
    entry |= {'work': dict(contestant.work), 'one_core': contestant.one_core}
    if own.seconds:
      entry['median_seconds'] = own.median
      entry['median_rates'] = {f'{unit}/s': amount / own.median for unit, amount in contestant.work.items()}
      ratio, cpu_ratio = compared(contestant, contestants[0], measured)
      if ratio:
        entry |= {'times_this_project': ratio, 'times_this_project_in_cpu_seconds': cpu_ratio}
    entries.append(entry)
  return entries


def measure(name: str, setting_name: str, options: argparse.Namespace, console: rich.console.Console) -> None:
  """One setting of a benchmark: measures, prints, writes."""
  console.rule(f'{name}, {setting_name}')
  benchmark = BENCHMARKS[name]
  facts = {
    'benchmark': name,
    'setting': setting_name,
    'date': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
    'versions': versions(),
    'machine': machine(),
  }
  with tempfile.TemporaryDirectory(prefix='rembert-benchmark-') as scratch:
    try:
      contestants = benchmark.contestants(setting_name, pathlib.Path(scratch))
    except NotHere as missing:
      console.print(f'{name}, {setting_name}: NOT MEASURED: {missing}', style='bold red', markup=False)
      return
    if options.beside:
      contestants = [contestants[0], *(each for each in contestants[1:] if each.name in options.beside)]
    facts['description'] = benchmark.SETTINGS[setting_name].description
    say = functools.partial(console.print, style='dim')
    if hasattr(benchmark, 'measure'):
      contestants, measured = benchmark.measure(setting_name, contestants, options.rounds, say)
    else:
      measured = measure_in_turn(
        contestants,
        options.rounds,
        say,
        warm_up_runs=getattr(benchmark, 'WARM_UP_RUNS', 2),
        runs_in_a_row=getattr(benchmark, 'RUNS_IN_A_ROW', 1),
      )
  console.print(table(f'{name}, {setting_name}: {facts["description"]}', contestants, measured))
  facts['conclusion'] = benchmark.conclusion(setting_name, measured) if hasattr(benchmark, 'conclusion') else ''
  if facts['conclusion']:
    console.print(facts['conclusion'])
  beside = ''.join(f'-{re.sub("[^a-z0-9]+", "_", other.lower())}' for other in options.beside or ())
  path = options.output / f'{name}-{setting_name}{beside}.json'
  path.write_text(json.dumps(facts | {'contestants': record(contestants, measured)}, indent=2) + '\n')
  console.print(f'{facts["machine"]["cpu"]}, {facts["machine"]["cores"]} cores · raw samples in {path}')
  if missing := [c.name for c in contestants if measured[c.name].failure]:
    console.print(f'Incomplete: {", ".join(missing)}. `make bench` installs what is missing.', style='bold red')


def make_console() -> rich.console.Console:
  """Where tables are printed."""
  console = rich.console.Console(highlight=False)
  if not console.is_terminal:
    console.width = 200  # a log holds the whole table
  return console


def main(arguments: list[str] | None = None) -> None:
  """All that is asked for."""
  options = parse_arguments(arguments)
  console = make_console()
  options.output.mkdir(parents=True, exist_ok=True)
  for name, benchmark in BENCHMARKS.items():
    if options.only not in (None, name):
      continue
    for setting_name in benchmark.SETTINGS:
      if options.setting in (None, setting_name):
        measure(name, setting_name, options, console)


if __name__ == '__main__':
  main()
