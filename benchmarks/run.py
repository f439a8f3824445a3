"""Benchmarks: this project beside what one would otherwise run, on this machine, as ratios."""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics

import rich.console
import rich.table

from benchmarks import masking, train_step
from benchmarks.turns import Contestant, Measurement, measure_in_turn, ratios

# Each has SETTINGS, by name, with a `description`; and contestants(setting), ours first.
BENCHMARKS = {'train_step': train_step, 'masking': masking}
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'torch', 'transformers')

EXAMPLES = """
Each contestant runs in a process of its own; warmed up, they take turns (A B C A B C …), so that all see one and the
same machine. The table shows medians, and ratios taken round by round: how many times as long as this project. A shared
machine changes every time in it, the ratios less, and the ratios of CPU seconds (all threads together) least.

"useful GFLOP/s" counts the same work for everyone: the products that the model needs with the head on masked positions
only (rembert/training/flops.py). Who computes more than that is not credited for it.

  python -m benchmarks.run                                      everything (small: a minute; base: five, and 20 GB)
  python -m benchmarks.run --only train_step --setting small    one table
  python -m benchmarks.run --only masking                       rows masked on one core; seconds
  python -m benchmarks.run --rounds 15                          quieter figures

torch is installed by `make bench`; without it the table says that half of the comparison is missing.
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
  parser.add_argument('--rounds', type=int, default=7, help='runs of each contestant, at least 5; default %(default)s')
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


COLUMNS = (
  'seconds',
  'CPU seconds',
  'tokens/s',
  'useful GFLOP/s',
  '× this project',
  'min … max',
  'in CPU seconds',
  'memory',
  'first loss',
)


def table(title: str, contestants: list[Contestant], measured: dict[str, Measurement]) -> rich.table.Table:
  """Medians, rates, and ratios to the first contestant; a contestant that did not run takes a row that says why."""
  result = rich.table.Table(title=title, title_justify='left')
  result.add_column('')
  for column in COLUMNS:
    result.add_column(column, justify='right')
  ours = measured[contestants[0].name]
  for contestant in contestants:
    own = measured[contestant.name]
    if own.failure:
      result.add_row(contestant.name, f'NOT MEASURED: {own.failure}', style='bold red')
      continue
    has_ratio = contestant.tokens and own is not ours and not ours.failure
    ratio = ratios(own.seconds, ours.seconds) if has_ratio else []
    cpu_ratio = ratios(own.cpu_seconds, ours.cpu_seconds) if has_ratio else []
    result.add_row(
      contestant.name,
      f'{own.median:.3f}',
      f'{own.cpu_median:.3f}',
      f'{contestant.tokens / own.median:,.0f}' if contestant.tokens else '',
      f'{contestant.flops / own.median / 1e9:,.0f}' if contestant.flops else '',
      f'{statistics.median(ratio):.2f}' if ratio else '',
      f'{min(ratio):.2f} … {max(ratio):.2f}' if ratio else '',
      f'{statistics.median(cpu_ratio):.2f}' if cpu_ratio else '',
      f'{own.peak_bytes / 1e9:.1f} GB',
      '' if own.result is None else f'{own.result:.3f}',
    )
  return result


def record(contestants: list[Contestant], measured: dict[str, Measurement]) -> list[dict]:
  """Raw samples, and what the table derives from them."""
  ours = measured[contestants[0].name]
  entries = []
  for contestant in contestants:
    own = measured[contestant.name]
    entry = {
      'name': contestant.name,
      **dataclasses.asdict(own),
      'flops': contestant.flops,
      'tokens': contestant.tokens,
    }
    if own.seconds:
      entry['median_seconds'] = own.median
      if contestant.tokens and ours.seconds:
        entry['times_this_project'] = ratios(own.seconds, ours.seconds)
        entry['times_this_project_in_cpu_seconds'] = ratios(own.cpu_seconds, ours.cpu_seconds)
    entries.append(entry)
  return entries


def main(arguments: list[str] | None = None) -> None:
  """Measures, prints, writes."""
  options = parse_arguments(arguments)
  console = rich.console.Console(highlight=False)
  options.output.mkdir(parents=True, exist_ok=True)
  for name, benchmark in BENCHMARKS.items():
    if options.only not in (None, name):
      continue
    for setting_name, setting in benchmark.SETTINGS.items():
      if options.setting not in (None, setting_name):
        continue
      facts = {
        'benchmark': name,
        'setting': setting_name,
        'description': setting.description,
        'date': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
        'versions': versions(),
        'machine': machine(),
      }
      console.rule(f'{name}, {setting_name}')
      contestants = benchmark.contestants(setting_name)
      measured = measure_in_turn(contestants, options.rounds, lambda text: console.print(text, style='dim'))
      console.print(table(f'{name}, {setting_name}: {setting.description}', contestants, measured))
      path = options.output / f'{name}-{setting_name}.json'
      path.write_text(json.dumps(facts | {'contestants': record(contestants, measured)}, indent=2) + '\n')
      console.print(f'{facts["machine"]["cpu"]}, {facts["machine"]["cores"]} cores · raw samples in {path}')
      if missing := [c.name for c in contestants if measured[c.name].failure]:
        console.print(f'Incomplete: {", ".join(missing)}. `make bench` installs what is missing.', style='bold red')


if __name__ == '__main__':
  main()
