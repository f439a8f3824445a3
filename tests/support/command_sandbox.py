"""A folder like a clone of the project, with the files that the pages take for granted, to run commands in."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from made_up_sweep import write_sweep
from own_tasks import write_own_tasks
from quick_compilation import QUICK_COMPILATION
from random_checkpoints import TINY, random_leaves
from small_scale import Planned

from rembert.checkpoint.load import open_source, save_model
from rembert.convert.huggingface import export
from rembert.convert.tensor_names import slots
from rembert.data.config import DataConfig
from tasks.corpus.build import CorpusConfig, clean
from tasks.corpus.format import Document
from tasks.corpus.sources import find_parts, read_together

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 600.0  # of a command; minutes where the machine has other work to do as well
# Of a clone: read by commands, written by none.
CLONE = (
  *('rembert', 'tasks', 'gin', 'launch', 'tests', 'benchmarks', 'examples', 'docs', 'notebooks'),
  *('Makefile', 'requirements.txt', 'setup.py', 'pyproject.toml', 'README.md', 'CONTRIBUTING.md', 'lock.sh'),
)
_SENTENCES = ('The river is long.', 'A city is by the sea.', 'The old bridge is closed.', 'We read many books.')
_TRANSLATIONS = (
  'Der Fluss ist lang.',
  'Eine Stadt liegt am Meer.',
  'Die alte Brücke ist zu.',
  'Wir lesen viele Bücher.',
)


def environment(folder: pathlib.Path) -> dict[str, str]:
  """One CPU device, little optimisation, and what has been compiled once is kept."""
  kept = {name: value for name, value in os.environ.items() if name not in ('PYTHONPATH', 'XLA_FLAGS')}
  return (
    kept
    | QUICK_COMPILATION
    | {
      'JAX_PLATFORMS': 'cpu',
      'JAX_ENABLE_COMPILATION_CACHE': 'true',
      'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
      'WANDB_MODE': 'offline',
      'COLUMNS': '120',
    }
  )


class CommandServer:
  """tests/support/command_server.py, and other programs."""

  def __init__(self, folder: pathlib.Path):
    self._environment = environment(folder)
    self._process = subprocess.Popen(
      [sys.executable, str(pathlib.Path(__file__).with_name('command_server.py'))],
      cwd=ROOT,
      env=self._environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=open(folder / 'server.log', 'wb'),  # noqa: SIM115  closed with the process
      text=True,
    )

  def run(self, planned: Planned, folder: pathlib.Path) -> subprocess.CompletedProcess:
    """Runs a command in a folder; what it prints is in `stdout`."""
    words = list(planned.arguments)
    variables = dict(words.pop(0).split('=', 1) for _ in range(len(words)) if _is_variable(words[0]))
    program = os.path.basename(words[0])
    if program.startswith('python') and words[1] == '-m' and words[2] != 'venv' and not variables:
      return self._run_module(words[2:], folder)
    if program.startswith('python'):
      words[0] = sys.executable
    if program == 'make':
      # Its environment is the one of the tests: nothing is made.
      (folder / 'made').touch()
      words += [f'BIN={pathlib.Path(sys.executable).parent}', 'STAMP=made']
    if program == 'make' and planned.rule.way.name == 'PRINTED':
      words.append('--dry-run')
    return subprocess.run(
      words,
      cwd=folder,
      env=self._environment | variables,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      text=True,
      timeout=TIMEOUT,
      check=False,
    )

  def _run_module(self, words: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess:
    log = folder / 'printed.log'
    log.unlink(missing_ok=True)
    request = {'arguments': words, 'folder': str(folder), 'log': str(log), 'timeout': TIMEOUT}
    self._process.stdin.write(json.dumps(request) + '\n')
    self._process.stdin.flush()
    answer = json.loads(self._process.stdout.readline())
    return subprocess.CompletedProcess(words, answer['exit_code'], log.read_text(errors='replace'))

  def close(self) -> None:
    """Ends it."""
    self._process.stdin.close()
    self._process.wait(timeout=30)
    self._process.stdout.close()


def _is_variable(word: str) -> bool:
  name, equals, _ = word.partition('=')
  return bool(equals) and name.isidentifier() and name.isupper()


def make_sandbox(folder: pathlib.Path) -> pathlib.Path:
  """A clone, with what pages speak of and do not make."""
  folder.mkdir(parents=True)
  for name in CLONE:
    if (ROOT / name).exists():
      (folder / name).symlink_to(ROOT / name)
  shutil.copytree(ROOT / 'tasks/wikipedia/sample', folder / 'dumps')
  shutil.copytree(ROOT / 'tests/data/xtreme', folder / 'download')
  _write_models(folder)
  write_sweep(folder / 'runs/sweep', ('in128_out128', 'in128_out768'), seeds=2)
  _write_texts(folder)
  write_own_tasks(folder)
  return folder


def copy_sandbox(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Another one that begins where the first has come to."""
  return pathlib.Path(shutil.copytree(source, target, symlinks=True))


def _write_models(folder: pathlib.Path) -> None:
  """What pages take from elsewhere: the released model, in both forms, small and random; a large run, untrained."""
  import tensorflow

  config = dataclasses.replace(TINY, hidden_size=64, num_attention_heads=1, vocab_size=700)
  save_model(folder / 'released', random_leaves(config, None, has_pooler=True), config, None, ())
  export(open_source(folder / 'released'), folder / 'google-rembert')
  leaves = random_leaves(config, 'mlm', has_pooler=True)
  table = slots(config, 'mlm', num_labels=0, has_pooler=True)
  variables = {slot.tensorflow: slot.take(leaves[slot.leaf], 'tensorflow') for slot in table}
  variables |= {f'{name}/adam_m': np.zeros_like(value) for name, value in variables.items()}
  variables['global_step'] = np.int64(1_780_000)
  (folder / 'original').mkdir()
  tensorflow.raw_ops.SaveV2(
    prefix=str(folder / 'original/rembert.ckpt-1780000'),
    tensor_names=list(variables),
    shape_and_slices=[''] * len(variables),
    tensors=[tensorflow.constant(value) for value in variables.values()],
  )


def _write_texts(folder: pathlib.Path) -> None:
  """Files of lines, of the readers' own."""
  write = lambda name, lines: _write(folder / name, lines)
  write('sentences.txt', _SENTENCES)
  write('newstest2016.en', _SENTENCES)
  write('newstest2016.de', _TRANSLATIONS)
  write('text/en.txt', _SENTENCES * 5)
  write('text/de.txt', _TRANSLATIONS * 5)
  rows = [
    json.dumps({'text': found.text, 'lang': found.language}, ensure_ascii=False)
    for part in find_parts(DataConfig())
    for each in read_together([part])
    if isinstance(found := clean(each, CorpusConfig()), Document)
  ]
  for number in range(2):
    write(f'my_text/part-{number}.jsonl', rows[number::2])
  pairs = (ROOT / 'tests/data/analysis/word_pairs.txt').read_text(encoding='utf-8').splitlines()
  for name in ('EN-MEN-TR-3k.txt', 'EN-MTurk-771.txt'):
    write(name, pairs)
  for split in ('train', 'dev', 'test'):
    example = lambda sentence, label: {
      'text': sentence,
      'targets': [{'span1': [0, 2], 'span2': [2, 3], 'label': label}],
    }
    write(f'srl/{split}.json', [json.dumps(example(text, f'A{n % 2}')) for n, text in enumerate(_SENTENCES)])


def _write(file: pathlib.Path, lines) -> None:
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(''.join(f'{line}\n' for line in lines), encoding='utf-8')
