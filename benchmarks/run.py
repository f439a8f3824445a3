"""Runs benchmarks of this project and the usual alternatives on this machine, and prints relative times."""

import argparse
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile
from typing import Annotated

import rich.console
import rich.table

from benchmarks import checkpoint, data_pipeline, encode, growth, startup, train_step
from benchmarks.interleaved import Benchmark, Candidate, Measurements, Unavailable, measure_interleaved, relative_times
from rembert.command_line import command_parser
from rembert.doctor.checks import installed_versions
from rembert.validation import Range, number

BENCHMARKS: dict[str, Benchmark] = {
  'train_step': train_step.TRAIN_STEP,
  'head': train_step.HEAD,
  'finetuning': train_step.FINETUNING_STEP,
  'encoding': encode.ENCODING,
  'reading': data_pipeline.READING,
  'pretraining': data_pipeline.PRETRAINING,
  'checkpointing': checkpoint.CHECKPOINTING,
  'starting': startup.STARTING,
  'growth': growth.GROWTH,
}
PACKAGES = (
  *('python', 'jax', 'jaxlib', 'flax', 'optax', 'numpy', 'array-record', 'grain', 'mwparserfromhell', 'sentencepiece'),
  *('torch', 'transformers', 'tokenizers', 'sentence-transformers', 'datasets', 'pyarrow'),
  'seqio',
)

EXAMPLES = """
Each candidate runs in its own process. After a warm-up they take turns (A B C A B C …), so that all are measured on
the same machine in the same minutes. The table has medians, and relative times computed round by round: 2 takes twice
as long as this project, for the same number of tokens, sequences or MB (the first rate of the table). A turn is one
run; for training steps it is three in a row, after one that is not measured. On a shared machine times vary, ratios
vary less, and ratios of CPU seconds (all threads together) vary least.

"useful GFLOP/s" counts the same work for all: the matmuls that the model needs with its head at masked positions only
(rembert/aot/flops.py). Additional computations do not count.

  python -m benchmarks.run                                      everything (half an hour, and 25 GB for base)
  python -m benchmarks.run --only train_step --setting small    one table
  python -m benchmarks.run --only train_step --setting base --baseline 'torch, float32'     15 GB instead of 25
  python -m benchmarks.run --rounds 15                          less noise

`make bench` installs torch, sentence-transformers and datasets (benchmarks/requirements.txt); the table
names those that are missing.
"""


# By family and model: the names of virtual machines' processors have no number.
_EPYC = {('25', '1'): 'Zen 3', ('25', '17'): 'Zen 4', ('26', '2'): 'Zen 5'}


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
  parser = command_parser('benchmarks.run', __doc__, EXAMPLES)
  settings = sorted({name for benchmark in BENCHMARKS.values() for name in benchmark.settings}, reverse=True)
  parser.add_argument('--only', choices=BENCHMARKS, metavar='NAME', help=f'one of {", ".join(BENCHMARKS)}')
  parser.add_argument('--setting', choices=settings, help='setting to run (default: all of a benchmark)')
  help_text = 'compare only with this candidate; repeatable'
  parser.add_argument('--baseline', action='append', default=[], metavar='NAME', help=help_text)
  help_text = 'turns of each candidate, at least 5 (default: %(default)s)'
  parser.add_argument('--rounds', type=number(Annotated[int, Range(5)]), default=7, help=help_text)
  help_text = 'JSON results (default: %(default)s)'
  parser.add_argument('--output', type=pathlib.Path, default='runs/benchmarks', metavar='DIR', help=help_text)
  return parser.parse_args(arguments)


def machine() -> dict:
  """Describes this machine."""
  model = platform.processor() or platform.machine()
  if os.path.exists('/proc/cpuinfo'):
    with open('/proc/cpuinfo') as text:
      facts = dict(re.findall(r'^(.+?)\s*: (.*)$', text.read(), re.MULTILINE))
    generation = _EPYC.get((facts.get('cpu family'), facts.get('model')))
    model = facts.get('model name', model) + (f' ({generation})' if generation else '')
  return {
    'cpu': model,
    'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
    'memory_bytes': os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'),
    'system': platform.platform(),
    'load_before': os.getloadavg()[0],
  }


def gpu_name() -> str:
  """The first NVIDIA GPU: `NVIDIA H200`."""
  command = ['nvidia-smi', '--query-gpu=name', '--format=csv,noheader']
  return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def table(title: str, candidates: list[Candidate], measured: Measurements) -> rich.table.Table:
  """A table of medians, rates, relative times and facts, or the reason why a candidate was not measured."""
  units = list(dict.fromkeys(unit for candidate in candidates for unit in candidate.work))
  facts = list(dict.fromkeys(fact for candidate in candidates for fact in measured[candidate.name].facts))
  rates = [f'{unit}/s' for unit in units]
  result = rich.table.Table(title=title, title_justify='left')
  result.add_column('')
  times = ('seconds', 'CPU seconds', *rates, 'relative time', 'min … max', 'in CPU seconds', 'memory')
  for column in (*times, *facts):
    result.add_column(column, justify='right')
  for candidate in candidates:
    own = measured[candidate.name]
    if own.failure:
      result.add_row(candidate.name, f'NOT MEASURED: {own.failure}', style='bold red')
      continue
    ratio, cpu_ratio = relative_times(candidate, candidates[0], measured)
    result.add_row(
      candidate.name,
      f'{own.median:.3f}',
      f'{own.cpu_median:.3f}',
      *(_rate(candidate.work[unit] / own.median) if unit in candidate.work else '' for unit in units),
      f'{statistics.median(ratio):.2f}' if ratio else '',
      f'{min(ratio):.2f} … {max(ratio):.2f}' if ratio else '',
      f'{statistics.median(cpu_ratio):.2f}' if cpu_ratio else '',
      f'{own.peak_bytes / 1e9:.1f} GB',
      *(_fact(own.facts[fact]) if fact in own.facts else '' for fact in facts),
    )
  return result


def _rate(value: float) -> str:
  return f'{value:,.0f}' if value >= 100 else f'{value:.2f}'


def _fact(value: float) -> str:
  return f'{value:,}' if isinstance(value, int) else f'{value:.3f}'


def record(candidates: list[Candidate], measured: Measurements) -> list[dict]:
  """Raw samples and ratios, for JSON."""
  entries = []
  for candidate in candidates:
    own = measured[candidate.name]
    entry = {'name': candidate.name, **dataclasses.asdict(own)}
    entry |= {'work': dict(candidate.work), 'one_core': candidate.one_core}
    ratio, cpu_ratio = relative_times(candidate, candidates[0], measured)
    if ratio:
      entry |= {'times_this_project': ratio, 'times_this_project_in_cpu_seconds': cpu_ratio}
    entries.append(entry)
  return entries


def measure(name: str, setting_name: str, options: argparse.Namespace, console: rich.console.Console) -> None:
  """Measures one setting of a benchmark, prints the table and writes JSON."""
  console.rule(f'{name}, {setting_name}')
  benchmark, log = BENCHMARKS[name], functools.partial(console.print, style='dim')
  setting, baselines = benchmark.settings[setting_name], options.baseline
  installed = installed_versions() | {'python': platform.python_version()}
  facts = {
    'benchmark': name,
    'setting': setting_name,
    'date': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
    'versions': {package: installed.get(package) for package in PACKAGES},
    'machine': machine(),
  }
  with tempfile.TemporaryDirectory(prefix='rembert-benchmark-') as scratch:
    try:
      candidates = benchmark.candidates(setting, pathlib.Path(scratch))
    except Unavailable as missing:
      console.print(f'{name}, {setting_name}: NOT MEASURED: {missing}', style='bold red', markup=False)
      return
    if baselines:
      candidates = [candidates[0], *(each for each in candidates[1:] if each.name in baselines)]
    facts['description'] = setting.description
    if getattr(setting, 'platform', 'cpu') == 'cuda':
      facts['machine'] |= {'gpu': gpu_name()}
    how = {'warm_up_runs': benchmark.warm_up_runs, 'runs_per_turn': benchmark.runs_per_turn}
    measured = measure_interleaved(candidates, options.rounds, log, **how)
  console.print(table(f'{name}, {setting_name}: {facts["description"]}', candidates, measured))
  facts['conclusion'] = benchmark.conclusion(setting, measured)
  if facts['conclusion']:
    console.print(facts['conclusion'])
  suffix = ''.join(f'-{re.sub("[^a-z0-9]+", "_", other.lower())}' for other in baselines)
  path = options.output / f'{name}-{setting_name}{suffix}.json'
  # The name of candidates in files of earlier versions and in docs/performance.json.
  path.write_text(json.dumps(facts | {'contestants': record(candidates, measured)}, indent=2) + '\n')
  console.print(f'{facts["machine"]["cpu"]}, {facts["machine"]["cores"]} cores · raw samples in {path}')
  if missing := [each.name for each in candidates if measured[each.name].failure]:
    console.print(f'Incomplete: {", ".join(missing)}. `make bench` installs what is missing.', style='bold red')


def main(arguments: list[str] | None = None) -> None:
  options = parse_arguments(arguments)
  console = rich.console.Console(highlight=False)
  if not console.is_terminal:
    console.width = 200  # wide enough for the table in a log
  options.output.mkdir(parents=True, exist_ok=True)
  for name, benchmark in BENCHMARKS.items():
    for setting_name in benchmark.settings:
      if options.only in (None, name) and options.setting in (None, setting_name):
        measure(name, setting_name, options, console)


if __name__ == '__main__':
  main()
