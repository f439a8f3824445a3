"""Measures the start of processes: commands that print, and a run up to its first update.

A turn starts a process, and ends when the process ends or has written a row of metrics. Files are in the system's
cache, as after an earlier start. CPU seconds and memory are those of the process. Other projects have no equivalent, so
nothing is compared.

- `commands`: commands that are used before a run.
- `first_step`: the smoke run from the command to its first row of metrics, in a new directory, its vocabulary given,
  with an empty and with a filled compilation cache (`hardware.compile_cache`).
- `resumed`: the same run, stopped and saved once, from the command to the first new update.

The process is then killed, so that its final checkpoint does not count.
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from benchmarks.interleaved import Benchmark, Candidate, Run
from benchmarks.settings import SMOKE, make_vocabulary
from rembert.tracking.metric_writers import read_jsonl

VOCABULARY, VOCABULARY_SIZE = 'sentencepiece.model', 5000  # of the smoke run
_POLL_SECONDS = 0.01

MAIN = (sys.executable, '-m', 'rembert.main')


@dataclasses.dataclass(frozen=True)
class Setting:
  """Processes to start: `prepare` and its arguments after the scratch directory, by name of the candidate."""

  description: str
  candidates: Mapping[str, tuple]
  needs_vocabulary: bool = True


# --- candidates: each returns a function that starts a process and waits for it ---------------------------------------


def prepare_command(scratch: pathlib.Path, *command: str) -> Run:
  """Runs a command until it ends."""
  del scratch
  return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True) and None


def prepare_first_step(scratch: pathlib.Path, is_cache_empty: bool, *bindings: str) -> Run:
  """Starts a new run in its own directory."""

  def run() -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
      workdir, cache = pathlib.Path(folder, 'run'), pathlib.Path(folder if is_cache_empty else scratch, 'cache')
      with smoke_run(workdir, scratch, cache, *bindings) as process:
        wait_for_step(process, workdir, 1)

  if not is_cache_empty:
    run()
  return run


def prepare_resumed(scratch: pathlib.Path) -> Run:
  """Resumes a run that was stopped once, and kills it at the same step each time."""
  workdir, cache = scratch / 'resumed', scratch / 'cache'
  with smoke_run(workdir, scratch, cache) as process:
    wait_for_step(process, workdir, 1)
    process.terminate()
    process.wait()  # it has saved
    saved = wait_for_step(process, workdir, 1)

  def run() -> dict[str, float]:
    with smoke_run(workdir, scratch, cache) as process:
      return {'new step': wait_for_step(process, workdir, saved + 1)}

  return run


@contextlib.contextmanager
def smoke_run(
  workdir: pathlib.Path, scratch: pathlib.Path, cache: pathlib.Path, *bindings: str
) -> Iterator[subprocess.Popen]:
  """Starts the smoke run, with `bindings` and metrics after every step, without rows of an earlier process; kills it.

  It has a compilation cache even if the caller disabled it.
  """
  (workdir / 'metrics.jsonl').unlink(missing_ok=True)
  bindings = ('train.log_every=1', f'vocabulary.path={scratch / VOCABULARY}', *bindings)
  command = (*MAIN, f'--gin_file={SMOKE}', f'--workdir={workdir}', *(f'--gin.{binding}' for binding in bindings))
  cached = {'XDG_CACHE_HOME': str(cache), 'JAX_ENABLE_COMPILATION_CACHE': 'true', 'JAX_PLATFORMS': 'cpu'}
  with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **cached}) as process:
    try:
      yield process
    finally:
      process.kill()  # its CPU seconds count when it has ended


def wait_for_step(process: subprocess.Popen, workdir: pathlib.Path, step: int) -> int:
  """Waits for the metrics of a step, and returns the last step; RuntimeError if the process ends first."""
  while True:
    has_ended = process.poll() is not None
    reached = max((row['step'] for row in read_jsonl(workdir / 'metrics.jsonl')), default=0)
    if reached >= step:
      return reached
    if has_ended:
      raise RuntimeError(f'ended before step {step}, with exit code {process.returncode}')
    time.sleep(_POLL_SECONDS)


SETTINGS = {
  'commands': Setting(
    'python -m rembert.main',
    {
      '--help': (prepare_command, *MAIN, '--help'),
      '--dry_run (pretrain_large)': (prepare_command, *MAIN, '--gin_file=gin/pretrain_large.gin', '--dry_run'),
    },
    needs_vocabulary=False,
  ),
  'first_step': Setting(
    'pretrain_smoke to its first step, a vocabulary given',
    {'compiled before': (prepare_first_step, False), 'nothing compiled before': (prepare_first_step, True)},
  ),
  'resumed': Setting('pretrain_smoke from a checkpoint to the step after it', {'resumed': (prepare_resumed,)}),
}


def candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  if setting.needs_vocabulary:
    make_vocabulary(VOCABULARY_SIZE, scratch / VOCABULARY)
  return [
    Candidate(name, prepare, (scratch, *arguments), {}) for name, (prepare, *arguments) in setting.candidates.items()
  ]


# One warm-up: only the system's cache persists between processes.
STARTING = Benchmark(SETTINGS, candidates, warm_up_runs=1)
