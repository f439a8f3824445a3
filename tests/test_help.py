"""Every command: help with examples, at once, and an unknown flag refused before anything heavy is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

from rembert.model.config import HEAD_NAMES
from rembert.model.heads import HEADS

ROOT = pathlib.Path(__file__).parent.parent
COMMANDS = (
  *('rembert.main', 'rembert.convert', 'rembert.doctor', 'rembert.report', 'rembert.jobs.predict'),
  *('tasks.vocabulary', 'tasks.token_store', 'tasks.metrics', 'tasks.xtreme.download'),
  *('launch.supervise', 'launch.local_cluster', 'launch.xtreme', 'launch.sweep'),
  *('launch.tpu_vm', 'launch.queued_resource', 'launch.gke', 'launch.xpk', 'launch.slurm'),
)
HEAVY = ('jax', 'jaxlib', 'flax', 'orbax', 'tensorflow', 'seqio', 't5', 'apache_beam', 'torch', 'matplotlib')


def run(module: str, *arguments: str) -> subprocess.CompletedProcess:
  """`python -m MODULE`, and after it the heavy modules that were imported, on the last line of standard error."""
  code = (
    'import atexit, runpy, sys\n'
    f'atexit.register(lambda: print(sorted({set(HEAVY)!r} & set(sys.modules)), file=sys.stderr))\n'
    f'sys.argv = [{module!r}, *{list(arguments)!r}]\n'
    f'runpy.run_module({module!r}, run_name="__main__", alter_sys=True)'
  )
  return subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'COLUMNS': '120'},
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )


@pytest.mark.parametrize('module', COMMANDS)
def test_help_has_examples_and_imports_nothing_heavy(module):
  done = run(module, '--help')
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(f'usage: python -m {module}')
  assert '\nexamples\n' in done.stdout
  assert f'python -m {module} ' in done.stdout.split('\nexamples\n')[1]
  assert done.stderr.splitlines()[-1] == '[]'


@pytest.mark.parametrize('module', COMMANDS)
def test_an_unknown_flag_is_named_and_ends_with_2(module):
  done = run(module, '--no_such_flag=3')
  assert done.returncode == 2, done.stderr
  assert f'python -m {module}' in done.stderr
  assert ': error: ' in done.stderr
  assert 'Traceback' not in done.stderr
  assert done.stderr.splitlines()[-1] == '[]'


def test_heads_of_the_command_line_are_those_of_the_model():
  assert tuple(HEADS) == HEAD_NAMES
