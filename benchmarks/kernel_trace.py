"""Where the time of this project's training step goes, kernel by kernel, from a trace of JAX's profiler.

python -m benchmarks.kernel_trace --setting base        on a CPU
python -m benchmarks.kernel_trace --setting large       RemBERT's own size, on an NVIDIA GPU

The first table adds kernels up by kind and by the part of the step that they belong to in the compiled program; the
second has the longest ones. The gradients of the head's loss are computed with the loss, in the forward part. On a CPU
several kernels may run at a time: their times may add up to more than a step.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence

import rich.table

from benchmarks import run, train_step
from benchmarks.interleaved import Unavailable
from benchmarks.settings import Setting

WARM_UP_STEPS, TRACED_STEPS = 8, 3
LONGEST = 15
# By the name of the operation in JAX's trace; the first that matches.
PARTS = (
  (r'transpose\(jvp\(jit\(layer_step', 'layers, backward'),
  (r'jvp\(jit\(layer_step', 'layers, forward'),
  (r'transpose\(jvp\(', 'embeddings, head and loss, backward'),
  (r'jvp\(', 'embeddings, head and loss, forward'),
  (r'jit\(', 'clipping, AdamW, metrics'),
)
REST = 'not said'
KINDS = (
  (r'sdpa|fmha|flash|attention', 'attention kernels'),
  (r'dot|gemm|matmul|cublas|nvjet|cutlass', 'products'),
  (r'nccl|all-reduce|all-gather|reduce-scatter|collective', 'between devices'),
  (r'copy|memcpy|memset|transpose|concatenate|stack|slice|bitcast|split', 'copies'),
  (r'gather|scatter|take', 'rows looked up or added'),
)
PASSES = 'passes over arrays'


@dataclasses.dataclass(frozen=True)
class Kernel:
  """All runs of one operation of the compiled program.

  Attributes:
    name: the compiler's, or that of a GPU's kernel without an operation.
    operation: in JAX's trace, or ''.
    seconds: per step, without those of operations that it runs.
    runs: per step.
  """

  name: str
  operation: str
  seconds: float
  runs: float

  @property
  def part(self) -> str:
    """Of the step."""
    return next((part for pattern, part in PARTS if re.search(pattern, self.operation)), REST)

  @property
  def kind(self) -> str:
    """By the traced operation if that says it, else by the kernel's name."""
    names = (self.operation.rsplit('/', 1)[-1], self.name)
    return next((kind for name in names for pattern, kind in KINDS if re.search(pattern, name, re.I)), PASSES)


def operations(compiled_text: str) -> dict[str, str]:
  """Instructions of a compiled program, and the operations that JAX traced them from."""
  found = re.findall(r'^\s*(?:ROOT )?%?([\w.\-]+) = [^\n]*?op_name="([^"]*)"', compiled_text, re.MULTILINE)
  return dict(found)


def own_times(events: Iterable[tuple[float, float, str]]) -> list[tuple[str, float]]:
  """Of (start, length, name) on one thread, where some run within others: names, and times without the inner ones."""
  own: list[tuple[str, float]] = []
  open_until: list[tuple[float, int]] = []
  for start, length, name in sorted(events, key=lambda event: (event[0], -event[1])):
    while open_until and open_until[-1][0] <= start:
      open_until.pop()
    if open_until:
      outer = open_until[-1][1]
      own[outer] = (own[outer][0], own[outer][1] - length)
    own.append((name, length))
    open_until.append((start + length, len(own) - 1))
  return own


def read_kernels(folder: pathlib.Path, compiled_text: str, steps: int) -> list[Kernel]:
  """From the files of JAX's profiler; the longest first."""
  import jax

  file = max(folder.rglob('*.xplane.pb'))
  planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
  gpus = [plane for plane in planes if plane.name.startswith('/device:GPU')]
  seconds, runs = collections.Counter[str](), collections.Counter[str]()
  for line in (line for plane in gpus or planes for line in plane.lines):
    if gpus and not line.name.startswith('Stream'):
      continue  # the same again, grouped
    events = []
    for event in line.events:
      # On a CPU, what has no operation is not XLA's. On a GPU, it counts by its own name.
      name = next((str(value) for key, value in event.stats if key == 'hlo_op'), event.name if gpus else '')
      if name:
        events.append((event.start_ns, event.duration_ns, name))
    for name, own in own_times(events):
      seconds[name] += own / 1e9
      runs[name] += 1
  traced = operations(compiled_text)
  return [
    Kernel(name, traced.get(name, ''), total / steps, runs[name] / steps) for name, total in seconds.most_common()
  ]


def trace(setting: Setting) -> tuple[list[Kernel], float]:
  """Kernels of a step of `train_step`, and the seconds that it takes without the profiler."""
  import jax

  step, state, batch, mesh = train_step.our_step(setting)
  with jax.set_mesh(mesh), tempfile.TemporaryDirectory() as folder:
    compiled = step.lower(state, batch).compile()

    def run_steps(count: int) -> None:
      nonlocal state
      for _ in range(count):
        state, _metrics = compiled(state, batch)
      jax.block_until_ready(state)

    run_steps(WARM_UP_STEPS)
    start = time.perf_counter()
    run_steps(TRACED_STEPS)
    seconds = (time.perf_counter() - start) / TRACED_STEPS
    with jax.profiler.trace(folder):
      run_steps(TRACED_STEPS)
    return read_kernels(pathlib.Path(folder), compiled.as_text(), TRACED_STEPS), seconds


def by_part(kernels: Sequence[Kernel]) -> Mapping[tuple[str, str], float]:
  """Seconds per step by part and kind, parts in the order of the step, the longest kind first."""
  seconds = collections.Counter[tuple[str, str]]()
  for kernel in kernels:
    seconds[kernel.part, kernel.kind] += kernel.seconds
  parts = [part for _, part in PARTS] + [REST]
  return dict(sorted(seconds.items(), key=lambda item: (parts.index(item[0][0]), -item[1])))


def tables(title: str, kernels: Sequence[Kernel]) -> list[rich.table.Table]:
  """By part and kind, and the longest."""
  total = sum(kernel.seconds for kernel in kernels)
  parts = _table(title, ('part', 'kind'), ('ms a step', 'share'))
  for (part, kind), seconds in by_part(kernels).items():
    parts.add_row(part, kind, f'{1e3 * seconds:.2f}', f'{seconds / total:.1%}')
  parts.add_row('all', '', f'{1e3 * total:.2f}', '', style='bold')
  title = f'the {min(LONGEST, len(kernels))} longest'
  longest = _table(title, ('kernel', 'traced from'), ('runs a step', 'ms a step', 'share'), overflow='fold')
  for each in kernels[:LONGEST]:
    cells = (f'{each.runs:.0f}', f'{1e3 * each.seconds:.2f}', f'{each.seconds / total:.1%}')
    longest.add_row(each.name, each.operation or each.kind, *cells)
  return [parts, longest]


def _table(title: str, words: Sequence[str], numbers: Sequence[str], **of_words) -> rich.table.Table:
  table = rich.table.Table(title=title, title_justify='left')
  for column in words:
    table.add_column(column, **of_words)
  for column in numbers:
    table.add_column(column, justify='right')
  return table


def main(arguments: Sequence[str] | None = None) -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    'python -m benchmarks.kernel_trace', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  flags.add_argument('--setting', choices=train_step.SETTINGS, default='small', help='default %(default)s')
  flags.add_argument(
    '--output', type=pathlib.Path, default='runs/kernels', metavar='DIR', help='a JSON file; default %(default)s'
  )
  options = flags.parse_args(arguments)
  console = run.make_console()
  setting = train_step.SETTINGS[options.setting]
  try:
    train_step.require_gpu(setting)
  except Unavailable as missing:
    raise SystemExit(f'{options.setting}: NOT MEASURED: {missing}') from None
  console.print(f'{WARM_UP_STEPS + 2 * TRACED_STEPS} steps: {setting.description}', style='dim')
  kernels, seconds = trace(setting)
  facts = {'versions': run.versions(), 'machine': run.machine(), 'description': setting.description}
  threads = f', on {facts["machine"]["cores"]} cores' if setting.platform == 'cpu' else ''
  title = f'{options.setting}: {1e3 * seconds:.1f} ms a step{threads}; {setting.description}'
  console.print(*tables(title, kernels), sep='\n')
  options.output.mkdir(parents=True, exist_ok=True)
  path = options.output / f'{options.setting}.json'
  each = [dataclasses.asdict(kernel) | {'part': kernel.part, 'kind': kernel.kind} for kernel in kernels]
  path.write_text(json.dumps(facts | {'seconds': seconds, 'kernels': each}, indent=1) + '\n')
  console.print(f'all {len(kernels)} in {path}')


if __name__ == '__main__':
  main()
