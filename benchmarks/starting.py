"""Starts of whole processes: an import, a command that prints, and a run up to its first update.

Unlike elsewhere a turn begins with nothing: it starts a process, and ends with it, or with what it waits for. The files
are in the system's cache, as on a machine that has started it before; CPU seconds and memory are those of the process.

- `package` and `model`: `import rembert` beside `import transformers`, and the class of the masked language model, with
  the libraries that it computes with.
- `commands`: what is typed before a run. Nobody has the like, so nothing is compared.
- `first_step`: the smoke run from the command to its first row of metrics, in a new folder, its vocabulary given. With
  nothing kept of what was compiled before, and with all of it (`hardware.compile_cache`, a folder of its own).
- `resumed`: the same run, once stopped and saved, from the command to the first update that is new.

A process that has got as far as it shall is killed: a checkpoint that it would make at the end is no part of a start.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from benchmarks import sample_corpus
from benchmarks.settings import SMOKE
from benchmarks.turns import Contestant, Run
from rembert.training.tracking import read_jsonl

VOCABULARY = 'sentencepiece.model'
WARM_UP_RUNS = 1  # a process that has just begun has nothing of the last one but what lies in the system's cache
_PIECES = 5000  # of the smoke run's vocabulary
_LOOK_EVERY_SECONDS = 0.01

PYTHON = (sys.executable, '-c')
MAIN = (sys.executable, '-m', 'rembert.main')


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is started: names of contestants and their commands, if they run to their end."""

  description: str
  commands: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  unit: str = ''


SETTINGS = {
  'package': Setting(
    'a package imported',
    {'import rembert': (*PYTHON, 'import rembert'), 'import transformers': (*PYTHON, 'import transformers')},
    unit='imports',
  ),
  'model': Setting(
    'RemBertForMaskedLM imported',
    {
      'this project, with JAX': (*PYTHON, 'from rembert.model.heads import RemBertForMaskedLM'),
      'transformers, with torch': (*PYTHON, 'import torch; from transformers import RemBertForMaskedLM'),
    },
    unit='imports',
  ),
  'commands': Setting(
    'python -m rembert.main',
    {
      '--help': (*MAIN, '--help'),
      '--dry_run (pretrain_large)': (*MAIN, '--gin_file=gin/pretrain_large.gin', '--dry_run'),
    },
  ),
  'first_step': Setting('pretrain_smoke to its first step, a vocabulary given'),
  'resumed': Setting('pretrain_smoke from a checkpoint to the step after it'),
}


# --- contestants: each returns a function that starts a process and waits for it --------------------------------------


def prepare_command(command: tuple[str, ...]) -> Run:
  """Until it ends; ImportError where a library is missing."""

  def run() -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if missing := re.search(r"No module named '(.+)'", done.stderr):
      raise ImportError(name=missing[1])
    if done.returncode:
      raise RuntimeError(f'{" ".join(command)}: {done.stderr.strip()}')

  return run


def prepare_first_step(scratch: pathlib.Path, is_cache_empty: bool) -> Run:
  """A new run, in a folder of its own."""

  def run() -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
      cache = pathlib.Path(folder, 'cache') if is_cache_empty else scratch / 'cache'
      with _smoke_run(pathlib.Path(folder, 'run'), scratch, cache) as running:
        running.wait_for_step(1)

  if not is_cache_empty:
    run()
  return run


def prepare_resumed(scratch: pathlib.Path) -> Run:
  """A run that was asked to stop, gone on with, and cut off, again and again at the same place."""
  workdir, cache = scratch / 'resumed', scratch / 'cache'
  with _smoke_run(workdir, scratch, cache) as running:
    running.wait_for_step(1)
    running.stop()
    saved = running.last_step()

  def run() -> dict[str, float]:
    with _smoke_run(workdir, scratch, cache) as running:
      return {'new step': running.wait_for_step(saved + 1)}

  return run


class RunningJob:
  """A process that trains, watched by what it writes into `metrics.jsonl`; killed at the end of the context.

  Rows of metrics that an earlier process wrote are deleted.
  """

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
    self._process.wait()  # its CPU seconds are counted only then
    self._log.close()

  def last_step(self) -> int:
    """Of the newest row of metrics; 0 before there is one."""
    return max((row['step'] for row in read_jsonl(self._metrics)), default=0)

  def wait_for_step(self, step: int) -> int:
    """Returns once its row is there, with the step that had been reached; RuntimeError where the process ends first."""
    while True:
      has_ended = self._process.poll() is not None
      if (reached := self.last_step()) >= step:
        return reached
      if has_ended:
        self._log.seek(0)
        raise RuntimeError(f'ended before step {step}, with exit code {self._process.returncode}: {self._log.read()}')
      time.sleep(_LOOK_EVERY_SECONDS)

  def stop(self) -> None:
    """Asks it to save and end, and waits until it has."""
    self._process.terminate()
    self._process.wait()


def _smoke_run(workdir: pathlib.Path, scratch: pathlib.Path, cache: pathlib.Path) -> RunningJob:
  """The smoke run, with a row of metrics after every step."""
  command = (
    *(*MAIN, f'--gin_file={SMOKE}', f'--workdir={workdir}', '--gin.train.log_every=1'),
    f'--gin.vocabulary.path={scratch / VOCABULARY}',
  )
  # What is compiled is kept, in this folder, also where the caller has turned that off.
  return RunningJob(
    command, workdir, {'XDG_CACHE_HOME': str(cache), 'JAX_ENABLE_COMPILATION_CACHE': 'true', 'JAX_PLATFORMS': 'cpu'}
  )


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and where others do the same, ratios are taken to it."""
  setting = SETTINGS[setting_name]
  if setting.commands:
    work = {setting.unit: 1} if setting.unit else {}
    return [Contestant(name, prepare_command, (command,), work) for name, command in setting.commands.items()]
  sample_corpus.make_vocabulary(_PIECES, scratch / VOCABULARY)
  if setting_name == 'resumed':
    return [Contestant('resumed', prepare_resumed, (scratch,), {})]
  return [
    Contestant('compiled before', prepare_first_step, (scratch, False), {}),
    Contestant('nothing compiled before', prepare_first_step, (scratch, True), {}),
  ]
