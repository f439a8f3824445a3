"""Whole runs of `rembert.main`: in this process, or in processes of their own if that is what is tested."""

import contextlib
import functools
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest
from flax import nnx
from flax.traverse_util import flatten_dict
from jax.experimental.compilation_cache import compilation_cache
from quick_compilation import QUICK_COMPILATION

from launch.local_cluster import environments, free_port
from rembert import main
from rembert.aot import flops
from rembert.checkpoint.load import save_model
from rembert.jobs import evaluate, finetune, pretrain, training_run
from rembert.model.config import RemBertConfig
from rembert.model.heads import build_model
from rembert.tracking.metric_writers import JsonlTracker
from rembert.train import sharding, state

ROOT = pathlib.Path(__file__).parent.parent.parent

# Two languages and a model of two layers, for few steps, with several evaluations and checkpoints.
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
  'train.steps': 60,
  'train.batch_size': 8,
  'train.sequence_length': 64,
  'train.log_every': 7,
  'train.eval_every': 20,
  'train.eval_rows': 8,
  'train.checkpoint_every': 15,
  'optimizer.warmup_steps': 10,
}
_CLOCKED = ('step_seconds', 'tokens_per_second', 'data_wait_share', 'mfu')


_COMPILED = tempfile.TemporaryDirectory()


@contextlib.contextmanager
def _compile_once() -> Iterator[None]:
  """Keeps compiled programs: most runs are of the same few."""
  settings = {
    'jax_enable_compilation_cache': True,
    'jax_compilation_cache_dir': _COMPILED.name,
    'jax_persistent_cache_min_compile_time_secs': 0.0,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  try:
    for name, value in settings.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
  finally:
    for name, value in before.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()


def _once(function: Callable, key: Callable = lambda *args, **options: (args, tuple(options.items()))) -> Callable:
  """`function`, called once for each `key` of its arguments."""
  kept: dict = {}

  def call(*args, **options):
    found = key(*args, **options)
    if found not in kept:
      kept[found] = function(*args, **options), args  # whose ids stay taken
    return kept[found][0]

  return call


_of_head = lambda config, head, labels, *rest: (config.model, config.execution, head, len(labels), *rest)
_of_trainable = lambda trainable, *args, **options: (id(trainable), args, tuple(options.items()))
_make_optimizer = _once(pretrain.make_optimizer)
_make_trainable = _once(evaluate.make_trainable, _of_head)
_make_train_step = _once(pretrain.make_train_step, _of_trainable)
# What runs of the same settings would trace and compile again, each to the same program.
_TRACED_ONCE = (
  (state, 'masked_lm', _once(state.masked_lm)),
  (pretrain, 'make_optimizer', _make_optimizer),
  (pretrain, 'make_train_step', _make_train_step),
  (pretrain, 'make_eval_step', _once(pretrain.make_eval_step, _of_trainable)),
  (finetune, 'make_optimizer', _make_optimizer),
  (finetune, 'make_trainable', _make_trainable),
  (finetune, 'make_train_step', _make_train_step),
  (finetune, 'head_sums', _once(finetune.head_sums)),
  (evaluate, 'make_trainable', _make_trainable),
  (evaluate, 'make_logits_step', _once(evaluate.make_logits_step, _of_trainable)),
)


class Program:
  """`python -m rembert.main` on the smoke configuration, made smaller, or on another gin file."""

  directory = ROOT  # where it is started
  draws = False  # loss.png in a run in this process; it takes as long as ten steps

  def __init__(self, workdir: pathlib.Path, gin_file: str | None = None, values: dict | None = None, **bindings):
    self.workdir = workdir
    if gin_file is None:
      values = SMALL | {name.replace('__', '.'): value for name, value in bindings.items()}
    self.arguments = [f'--gin_file={gin_file or "gin/pretrain_smoke.gin"}', f'--workdir={workdir}']
    self.arguments += [f'--gin.{name}={value}' for name, value in (values or {}).items()]
    self.environment = os.environ | QUICK_COMPILATION | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)}
    self.environment |= {'JAX_NUM_CPU_DEVICES': '1'}

  # --- in this process -----------------------------------------------------------

  def run(self, on_log: Callable[[int, dict], None] = lambda step, metrics: None) -> subprocess.CompletedProcess:
    """The program to its end, on one device of this process; `on_log` is called after each row of metrics.jsonl."""
    log, output, errors = JsonlTracker.log, io.StringIO(), io.StringIO()

    def log_and_call(tracker, metrics, *, step):
      log(tracker, metrics, step=step)
      on_log(step, metrics)

    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(self.directory), _compile_once():
      for traced in _TRACED_ONCE:
        patch.setattr(*traced)
      patch.setattr(sharding, 'make_mesh', functools.partial(sharding.make_mesh, devices=jax.devices()[:1]))
      patch.setattr(training_run.xla, 'keep_freed_memory_if_it_fits', lambda needed: False)
      patch.setattr(JsonlTracker, 'log', log_and_call)
      patch.setattr(flops, '_measured_matmul_flops', functools.partial(flops._measured_matmul_flops, size=64))
      if not self.draws:
        patch.setattr(training_run, 'plot_loss', lambda rows: b'')
      with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main.main(self.arguments)
    return subprocess.CompletedProcess(self.arguments, code, output.getvalue(), errors.getvalue())

  # --- in processes of their own -------------------------------------------------

  @property
  def command(self) -> list[str]:
    """The command line."""
    return [sys.executable, '-m', 'rembert.main', *self.arguments]

  def run_process(self) -> subprocess.CompletedProcess:
    """The program to its end, in a process of its own."""
    return subprocess.run(
      self.command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=300, check=False
    )

  def start(self) -> subprocess.Popen:
    """The program in the background; its output goes to a file next to the workdir."""
    with open(self._log_file(), 'ab') as log:
      return subprocess.Popen(self.command, cwd=self.directory, env=self.environment, stdout=log, stderr=log)

  def stop_when(self, is_time: Callable[[], bool], number: signal.Signals) -> int:
    """Starts the program, sends the signal as soon as `is_time()`, and returns the exit code."""
    process = self.start()
    while not is_time():
      assert process.poll() is None, f'ended early: {self.log()}'
      time.sleep(0.002)
    process.send_signal(number)
    return process.wait(timeout=120)

  def log(self) -> str:
    """The output of the program in the background."""
    return self._log_file().read_text()

  def _log_file(self) -> pathlib.Path:
    return self.workdir.parent / f'{self.workdir.name}.log'

  def start_hosts(self, hosts: int, devices: int = 1) -> list[subprocess.Popen]:
    """The program on several hosts; the output of each goes to a file of its own."""
    processes = []
    for index, environment in enumerate(environments(hosts, devices, free_port())):
      with open(self.host_log(index), 'ab') as log:
        environment |= QUICK_COMPILATION | {'PYTHONPATH': str(ROOT)}
        processes.append(subprocess.Popen(self.command, cwd=self.directory, env=environment, stdout=log, stderr=log))
    return processes

  def host_log(self, index: int) -> pathlib.Path:
    """The file with the output of host `index`."""
    return self.workdir.parent / f'{self.workdir.name}.host-{index}.log'

  def run_hosts(self, hosts: int, devices: int = 1) -> None:
    """The program on several hosts, to its end."""
    codes = [process.wait(timeout=300) for process in self.start_hosts(hosts, devices)]
    assert codes == [0] * hosts, [self.host_log(index).read_text()[-2000:] for index in range(hosts)]

  # --- what it leaves ------------------------------------------------------------

  def metrics(self) -> list[dict]:
    """All rows of metrics.jsonl, without the metrics that depend on the clock."""
    rows = [json.loads(line) for line in (self.workdir / 'metrics.jsonl').read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in _CLOCKED} for row in rows]

  def steps_logged(self) -> int:
    """The last step in metrics.jsonl, while the program may be writing to it."""
    file = self.workdir / 'metrics.jsonl'
    rows = [json.loads(line) for line in file.read_text().splitlines()[:-1]] if file.exists() else []
    return max((row['step'] for row in rows), default=-1)

  def results(self) -> dict:
    """The content of results.json."""
    return json.loads((self.workdir / 'results.json').read_text())

  def copy_workdir(self, folder: pathlib.Path, checkpoint: int | None = None) -> None:
    """Copies the workdir as SIGKILL would leave it at this moment, or as soon as a checkpoint is saved."""
    while checkpoint is not None and not (self.workdir / 'checkpoints' / str(checkpoint)).exists():
      time.sleep(0.01)

    def copy(source: str, target: str) -> None:
      with contextlib.suppress(FileNotFoundError):  # a temporary file was renamed meanwhile
        shutil.copyfile(source, target)

    with contextlib.suppress(shutil.Error, FileNotFoundError):
      shutil.copytree(self.workdir, folder, copy_function=copy)


def succeed(run: Program, **options) -> subprocess.CompletedProcess:
  """The result of a run that must end with 0."""
  result = run.run(**options)
  assert result.returncode == 0, result.stdout + result.stderr
  return result


@pytest.fixture
def traced_once(monkeypatch):
  """Jobs trace the same step once, as in `Program.run`."""
  for traced in _TRACED_ONCE:
    monkeypatch.setattr(*traced)


@pytest.fixture(scope='module')
def rows_once():
  """TensorFlow's graph of a fine-tuning task is built once for the same files; those of XTREME are not changed here."""
  from tasks import rows

  def key(task, split, head, **options):
    tables, source = getattr(task.source, 'tables', None), repr(vars(task.source))
    if tables is not None:
      contents = [pathlib.Path(file).read_bytes() for file in task.source.list_shards(split)]
      source = repr((tables.config, tables.kind.labels, contents))
    vocabulary = task.output_features['input_ids'].vocabulary.sentencepiece_model_file
    return task.name, split, head, source, pathlib.Path(vocabulary).read_bytes(), repr(options)

  stream_rows = rows.stream_rows
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(rows, 'stream_rows', _once(lambda *args, **options: list(stream_rows(*args, **options)), key))
    yield


@pytest.fixture(scope='session')
def program():
  """The class `Program`."""
  return Program


@pytest.fixture(scope='session', name='succeed')
def succeed_fixture():
  """See `succeed`."""
  return succeed


@pytest.fixture(scope='session')
def untrained(tmp_path_factory, xtreme_vocabulary) -> Callable[[RemBertConfig], pathlib.Path]:
  """Function (configuration) → a workdir as pre-training leaves it, of a model with random parameters."""

  def write(config: RemBertConfig) -> pathlib.Path:
    workdir = tmp_path_factory.mktemp('untrained') / 'run'
    build = lambda: build_model('mlm', config, add_pooler=False, rngs=nnx.Rngs(0))
    leaves = flatten_dict(jax.jit(lambda: nnx.to_pure_dict(nnx.state(build(), nnx.Param)))(), sep='/')
    save_model(workdir, jax.tree.map(np.asarray, leaves), config, 'mlm', ())
    (workdir / 'vocabulary').mkdir()
    shutil.copy(xtreme_vocabulary, workdir / 'vocabulary' / 'sentencepiece.model')
    return workdir

  return write


@pytest.fixture(scope='session')
def from_store(small_store) -> Callable[..., Program]:
  """`Program` on a token store, which needs neither TensorFlow nor a corpus."""
  store = {'data__source': 'store', 'data__store': small_store.folder, 'data__languages': "('el', 'sw', 'th')"}
  return functools.partial(Program, **store)


@pytest.fixture(scope='session')
def stored(from_store, tmp_path_factory) -> Program:
  """A run on a token store, complete. `copies` has the workdir as SIGKILL would have left it at several moments."""
  folder = tmp_path_factory.mktemp('stored')
  run, copies = from_store(folder / 'run'), {}
  save = training_run.Checkpoints.save

  def copy(moment: str) -> None:
    copies[moment] = folder / moment
    run.copy_workdir(copies[moment])

  def save_and_copy(checkpoints, step, *args, **options):
    if step == 60:
      copy('before the last save')
    save(checkpoints, step, *args, **options)
    if step == 30:
      copy('in a save')

  def on_log(step, metrics):
    if step == 7:
      copy(f'at step {step}')
    if step == 40 and 'eval/loss' in metrics:
      copy('after an evaluation')

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training_run.Checkpoints, 'save', save_and_copy)
    run.output = succeed(run, on_log=on_log).stdout
  run.copies = copies
  return run


@pytest.fixture(scope='session')
def streamed(tmp_path_factory) -> Program:
  """A run on the sample dumps, complete; `copy` is its workdir as SIGKILL would have left it at step 35."""
  folder = tmp_path_factory.mktemp('streamed')
  run = Program(folder / 'run')
  run.draws = True
  run.copy = copy = folder / 'copy'
  run.output = succeed(run, on_log=lambda step, _: step == 35 and run.copy_workdir(copy, 30)).stdout
  return run
