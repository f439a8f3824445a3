"""Every command: help with examples, and an unknown flag refused, before anything heavy is imported."""

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
  *('tasks.corpus', 'tasks.vocabulary', 'tasks.token_store', 'tasks.xtreme.download', 'tasks.metrics'),
  *('launch.supervise', 'launch.local_cluster', 'launch.xtreme', 'launch.sweep'),
  *('launch.tpu_vm', 'launch.queued_resource', 'launch.slurm'),
)
HEAVY = ('jax', 'jaxlib', 'flax', 'orbax', 'tensorflow', 'seqio', 't5', 'apache_beam', 'torch', 'matplotlib')


@pytest.mark.parametrize('module', COMMANDS)
def test_help_has_examples_and_an_unknown_flag_is_named_and_nothing_heavy_is_imported(module):
  """`python -m MODULE --help`, and then with an unknown flag, in one process."""
  heavy = {*HEAVY, 'numpy'} if module == 'rembert.main' else set(HEAVY)
  code = (
    'import runpy, sys\n'
    'for argument in ("--help", "--no_such_flag=3"):\n'
    f'  sys.argv = [{module!r}, argument]\n'
    '  try:\n'
    f'    runpy.run_module({module!r}, run_name="__main__", alter_sys=True)\n'
    '  except SystemExit as end:\n'
    '    print(f"exit code {end.code}", file=sys.stderr)\n'
    f'print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)'
  )
  done = subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'COLUMNS': '120'},
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.stdout.startswith(f'usage: python -m {module}')
  assert '\nexamples\n' in done.stdout
  assert f'python -m {module} ' in done.stdout.split('\nexamples\n')[1]
  help_errors, errors = done.stderr.split('exit code 0\n')
  assert not help_errors
  assert f'python -m {module}' in errors
  assert ': error: ' in errors
  assert 'Traceback' not in errors
  assert errors.splitlines()[-2:] == ['exit code 2', '[]']


def test_heads_of_the_command_line_are_those_of_the_model():
  assert tuple(HEADS) == HEAD_NAMES
