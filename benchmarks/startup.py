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

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

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


def prepare_command(scratch: pathlib.Path, command: tuple[str, ...]) -> Run:
  """Runs a command until it ends."""
  del scratch

  def run() -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
      raise RuntimeError(f'{" ".join(command)}: {done.stderr.strip()}')

  return run


def prepare_first_step(scratch: pathlib.Path, is_cache_empty: bool) -> Run:
  """Starts a new run in its own directory."""

  def run() -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
      cache = pathlib.Path(folder, 'cache') if is_cache_empty else scratch / 'cache'
      with start_smoke_run(pathlib.Path(folder, 'run'), scratch, cache) as running:
        running.wait_for_step(1)

  if not is_cache_empty:
    run()
  return run


def prepare_resumed(scratch: pathlib.Path) -> Run:
  """Resumes a run that was stopped once, and kills it at the same step each time."""
  workdir, cache = scratch / 'resumed', scratch / 'cache'
  with start_smoke_run(workdir, scratch, cache) as running:
    running.wait_for_step(1)
    running.stop()
    saved = running.last_step()

  def run() -> dict[str, float]:
    with start_smoke_run(workdir, scratch, cache) as running:
      return {'new step': running.wait_for_step(saved + 1)}

  return run


class RunningJob:
  """A training process, observed through `metrics.jsonl` (old rows are deleted); killed at the end of the context."""

  def __init__(self, command: Sequence[str], workdir: pathlib.Path, environment: Mapping[str, str]):
    self._metrics = workdir / 'metrics.jsonl'
    self._metrics.unlink(missing_ok=True)
    self._log = tempfile.TemporaryFile('w+')  # noqa: SIM115 - lives as long as the process
    self._process = subprocess.Popen(
      command, stdout=self._log, stderr=subprocess.STDOUT, env={**os.environ, **environment}
    )

  def __enter__(self) -> 'RunningJob':
    return self

  def __exit__(self, *error) -> None:
    self._process.kill()
    self._process.wait()  # its CPU seconds count only after this
    self._log.close()

  def last_step(self) -> int:
    """Step of the newest row of metrics; 0 without rows."""
    return max((row['step'] for row in read_jsonl(self._metrics)), default=0)

  def wait_for_step(self, step: int) -> int:
    """Waits for the metrics of a step, and returns the last step; RuntimeError if the process ends first."""
    while True:
      has_ended = self._process.poll() is not None
      if (reached := self.last_step()) >= step:
        return reached
      if has_ended:
        self._log.seek(0)
        raise RuntimeError(f'ended before step {step}, with exit code {self._process.returncode}: {self._log.read()}')
      time.sleep(_POLL_SECONDS)

  def stop(self) -> None:
    """Stops the run after it has saved."""
    self._process.terminate()
    self._process.wait()


def start_smoke_run(workdir: pathlib.Path, scratch: pathlib.Path, cache: pathlib.Path) -> RunningJob:
  """Starts the smoke run with metrics after every step, and with a compilation cache even if the caller disabled it."""
  bindings = ('train.log_every=1', f'vocabulary.path={scratch / VOCABULARY}')
  command = (*MAIN, f'--gin_file={SMOKE}', f'--workdir={workdir}', *(f'--gin.{binding}' for binding in bindings))
  environment = {'XDG_CACHE_HOME': str(cache), 'JAX_ENABLE_COMPILATION_CACHE': 'true', 'JAX_PLATFORMS': 'cpu'}
  return RunningJob(command, workdir, environment)


SETTINGS = {
  'commands': Setting(
    'python -m rembert.main',
    {
      '--help': (prepare_command, (*MAIN, '--help')),
      '--dry_run (pretrain_large)': (prepare_command, (*MAIN, '--gin_file=gin/pretrain_large.gin', '--dry_run')),
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
  """The candidates, all of this project."""
  if setting.needs_vocabulary:
    make_vocabulary(VOCABULARY_SIZE, scratch / VOCABULARY)
  return [
    Candidate(name, prepare, (scratch, *arguments), {}) for name, (prepare, *arguments) in setting.candidates.items()
  ]


# One warm-up: only the system's cache persists between processes.
STARTING = Benchmark(SETTINGS, candidates, warm_up_runs=1)
