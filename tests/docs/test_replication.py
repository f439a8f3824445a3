"""The script that makes the replication's runs: its commands are valid, and it evaluates the languages of training."""

import ast
import os
import pathlib
import shlex
import subprocess

import pytest

from launch import sweep
from launch.experiment import FINE_TUNED
from tasks.token_store import __main__ as token_store
from tasks.xtreme.benchmark import get_task

SCRIPT = 'docs/replication/run.sh'
# Notes what it is called with; the next command finds the vocabulary that an earlier one was to make.
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
"""


@pytest.fixture
def calls(root, tmp_path, xtreme_samples):
  """The commands of the script, as lists of words."""
  python = tmp_path / 'bin' / 'python'
  python.parent.mkdir()
  python.write_text(PYTHON.replace('"$*"', '"$(printf \'%s\\037\' "$@")"'))
  python.chmod(0o755)
  environment = os.environ | {'PATH': f'{python.parent}:{os.environ["PATH"]}', 'CALLS': str(tmp_path / 'calls')}
  command = ['bash', str(root / SCRIPT), 'text', str(xtreme_samples.root), str(tmp_path / 'runs')]
  subprocess.run(command, check=True, env=environment, cwd=root, timeout=60)
  return [line.strip('\037').split('\037') for line in (tmp_path / 'calls').read_text().splitlines()]


def of(calls, module):
  return [words[2:] for words in calls if words[:2] == ['-m', module]]


def test_text_becomes_a_vocabulary_and_a_store_and_then_runs(calls):
  assert [words[1] for words in calls] == ['tasks.vocabulary', 'tasks.token_store', *['launch.sweep'] * 4]
  [vocabulary], [store] = of(calls, 'tasks.vocabulary'), of(calls, 'tasks.token_store')
  assert token_store.parser().parse_known_args(store)[1] == []
  languages = [argument for argument in vocabulary if argument.startswith('--languages=')]
  assert languages == [argument for argument in store if argument.startswith('--languages=')]
  assert f'--vocabulary={pathlib.Path(vocabulary[-1].partition("=")[2])}' in store


@pytest.mark.parametrize('number', range(4))
def test_each_sweep_is_planned_with_all_rows_of_the_tables(calls, number, capsys):
  arguments = of(calls, 'launch.sweep')[number]
  assert sweep.main([*arguments, '--dry_run']) == 0
  printed = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if 'rembert.main' in line]
  models = {word for words in printed for word in words if word.startswith('--gin_file=gin/experiments/')}
  assert len(models) == 8  # 11 rows, of which three stand in two tables or more
  assert all('--gin_file=gin/scales/micro.gin' in words for words in printed if models & set(words))


def test_evaluated_languages_were_trained_on_and_belong_to_the_task(calls):
  [store] = of(calls, 'tasks.token_store')
  trained = next(word for word in store if word.startswith('--languages=')).partition('=')[2].split(',')
  assert len(trained) == 20
  for arguments in of(calls, 'launch.sweep'):
    [task] = [word.partition('=')[2] for word in arguments if word.startswith('--tasks=')]
    [bound] = [word.partition('languages=')[2] for word in arguments if 'xtreme.languages=' in word]
    evaluated = set(ast.literal_eval(bound))
    assert evaluated <= set(trained)
    bound = [word.partition('=')[2] for word in arguments if '.evaluate_on=' in word]
    for name in ast.literal_eval(bound[0]) if bound else FINE_TUNED[task]:
      assert evaluated <= set(get_task(name).languages), name
    assert 'en' in evaluated
