"""Real runs of the program, as a user starts them."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from launch.local_cluster import environments, free_port

ROOT = pathlib.Path(__file__).parent.parent.parent

# Two languages and a model of two layers: seconds to train, and yet the whole way of a real run.
SMALL = {
  'data.languages': "('en', 'sw')",
  'RemBertConfig.vocab_size': 1500,
  'RemBertConfig.num_hidden_layers': 2,
  'RemBertConfig.hidden_size': 32,
  'RemBertConfig.input_embedding_size': 16,
  'RemBertConfig.output_embedding_size': 48,
  'RemBertConfig.intermediate_size': 64,
  'execution.unroll': 1,
  'data.shuffle_rows': 16,
  'train.steps': 240,
  'train.batch_size': 8,
  'train.sequence_length': 64,
  'train.log_every': 7,
  'train.eval_every': 80,
  'train.eval_rows': 8,
  'train.checkpoint_every': 60,
  'optimizer.warmup_steps': 20,
}


class Program:
  """`python -m rembert.main`, on the smoke configuration shrunken or on another."""

  directory = ROOT  # where it is started

  def __init__(self, workdir: pathlib.Path, devices: int = 1, **bindings):
    values = SMALL | {name.replace('__', '.'): value for name, value in bindings.items()}
    self._command('gin/pretrain_smoke.gin', workdir, devices, values)

  def _command(self, gin_file: str, workdir: pathlib.Path, devices: int, values: dict) -> None:
    self.workdir = workdir
    bindings = (f'--gin.{name}={value}' for name, value in values.items())
    self.command = [sys.executable, '-m', 'rembert.main', f'--gin_file={gin_file}', f'--workdir={workdir}', *bindings]
    self.environment = os.environ | {
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(devices),
      'PYTHONPATH': str(ROOT),
    }

  @classmethod
  def of_files(cls, workdir: pathlib.Path, gin_file: str, values: dict, devices: int = 1) -> 'Program':
    """The program on another gin file, with bindings by name."""
    program = cls.__new__(cls)
    program._command(gin_file, workdir, devices, values)
    return program

  def start_hosts(self, hosts: int, devices: int = 1) -> list[subprocess.Popen]:
    """The program on several hosts; the output of each goes to a file of its own."""
    processes = []
    for index, environment in enumerate(environments(hosts, devices, free_port())):
      with open(self.host_log(index), 'ab') as log:
        environment |= {'PYTHONPATH': str(ROOT)}
        processes.append(subprocess.Popen(self.command, cwd=self.directory, env=environment, stdout=log, stderr=log))
    return processes

  def host_log(self, index: int) -> pathlib.Path:
    """Where host `index` prints."""
    return self.workdir.parent / f'{self.workdir.name}.host-{index}.log'

  def run_hosts(self, hosts: int, devices: int = 1) -> None:
    """The program on several hosts, to its end."""
    codes = [process.wait(timeout=300) for process in self.start_hosts(hosts, devices)]
    assert codes == [0] * hosts, [self.host_log(index).read_text()[-2000:] for index in range(hosts)]

  def start(self) -> subprocess.Popen:
    """The program in the background; its output goes to a file beside the workdir."""
    with open(self.workdir.parent / f'{self.workdir.name}.log', 'ab') as log:
      return subprocess.Popen(self.command, cwd=self.directory, env=self.environment, stdout=log, stderr=log)

  def run(self) -> subprocess.CompletedProcess:
    """The program to its end."""
    return subprocess.run(
      self.command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=300, check=False
    )

  def stop_when(self, is_time, number: signal.Signals) -> int:
    """Starts the program, sends the signal as soon as `is_time()`, and returns the exit code."""
    process = self.start()
    while not is_time():
      assert process.poll() is None, f'ended early: {self.log()}'
      time.sleep(0.002)
    process.send_signal(number)
    return process.wait(timeout=120)

  def steps_logged(self) -> int:
    """The last training step in metrics.jsonl."""
    file = self.workdir / 'metrics.jsonl'
    rows = [json.loads(line) for line in file.read_text().splitlines()[:-1]] if file.exists() else []
    return max((row['step'] for row in rows), default=-1)

  def log(self) -> str:
    """What background runs have printed."""
    return (self.workdir.parent / f'{self.workdir.name}.log').read_text()

  def metrics(self) -> list[dict]:
    """All rows of metrics.jsonl, without what depends on the clock."""
    clocked = ('step_seconds', 'tokens_per_second', 'data_wait_share', 'mfu')
    rows = [json.loads(line) for line in (self.workdir / 'metrics.jsonl').read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in clocked} for row in rows]


@pytest.fixture(scope='session')
def program():
  """The class `Program`."""
  return Program


@pytest.fixture(scope='session')
def from_store(small_store) -> Callable[..., Program]:
  """`Program` on a token store: it starts in seconds, having neither TensorFlow to import nor text to look through."""
  store = {'data__source': 'store', 'data__store': small_store.folder, 'data__languages': "('el', 'sw', 'th')"}
  return functools.partial(Program, **store)


@pytest.fixture(scope='session')
def uninterrupted(tmp_path_factory) -> Program:
  """A small run from beginning to end."""
  program = Program(tmp_path_factory.mktemp('uninterrupted') / 'run')
  start = time.monotonic()
  result = program.run()
  assert result.returncode == 0, result.stderr
  program.output, program.seconds = result.stdout, time.monotonic() - start
  return program
