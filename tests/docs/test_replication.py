"""The script that makes the replication's runs: its commands are valid, and it evaluates the languages of training."""

import ast
import os
import pathlib
import shlex
import subprocess

import pytest

from docs.tools import replication
from launch import sweep
from tasks.token_store import __main__ as token_store
from tasks.xtreme import LANGUAGES

SCRIPT = 'docs/replication/run.sh'
# Notes what it is called with, and has one model without results, whose best learning rate is found at once.
PYTHON = """#!/bin/sh
printf '%s\\037' "$@" >> "$CALLS.$$" && echo >> "$CALLS.$$" && cat "$CALLS.$$" >> "$CALLS"
case "$*" in
  *--missing=learning_rates)
    [ -e "$CALLS.tuned" ] || echo gin/experiments/table6/layers23.gin 0.001,0.002,0.004
    touch "$CALLS.tuned" ;;
  *--missing=first) echo gin/experiments/table6/layers23.gin 0.002 3 ;;
esac
"""


@pytest.fixture
def calls(root, tmp_path, xtreme_samples):
  """The commands of the script, as lists of words."""
  python = tmp_path / 'bin' / 'python'
  python.parent.mkdir()
  python.write_text(PYTHON)
  python.chmod(0o755)
  environment = os.environ | {'PATH': f'{python.parent}:{os.environ["PATH"]}', 'CALLS': str(tmp_path / 'calls')}
  command = ['bash', str(root / SCRIPT), 'text', str(xtreme_samples.root), str(tmp_path / 'runs')]
  subprocess.run(command, check=True, env=environment, cwd=root, timeout=60)
  return [line.strip('\037').split('\037') for line in (tmp_path / 'calls').read_text().splitlines()]


def of(calls, module):
  return [words[2:] for words in calls if words[:2] == ['-m', module]]


def test_text_becomes_a_vocabulary_and_a_store_and_then_runs(calls):
  tool = 'docs.tools.replication'
  expected = ['tasks.vocabulary', 'tasks.token_store', tool, 'launch.sweep', tool]
  assert [words[1] for words in calls] == [*expected, tool, tool, *['launch.sweep'] * 4, tool, tool]
  [vocabulary], [store] = of(calls, 'tasks.vocabulary'), of(calls, 'tasks.token_store')
  assert token_store.parser().parse_known_args(store)[1] == []
  languages = [argument for argument in vocabulary if argument.startswith('--languages=')]
  assert languages == [argument for argument in store if argument.startswith('--languages=')]
  assert languages == [f'--languages={",".join(replication.LANGUAGES)}']
  assert f'--vocabulary={pathlib.Path(vocabulary[-1].partition("=")[2])}' in store


def test_each_sweep_is_planned(calls, capsys):
  planned = []
  for arguments in of(calls, 'launch.sweep'):
    assert sweep.main([*arguments, '--dry_run']) == 0
    printed = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if 'rembert.main' in line]
    assert all(
      {'--gin_file=gin/experiments/table6/layers23.gin', '--gin_file=gin/scales/micro.gin'} <= set(words)
      for words in printed
      if not any('train.init_from' in word or 'analyze.model' in word for word in words)
    )
    planned.append(len(printed))
  assert planned == [3, 1 + 3, 1 + 3, 1 + 1, 1 + 1]  # learning rates; then pre-training with three seeds or an analysis


def test_evaluated_languages_were_trained_on_and_belong_to_the_task(calls):
  tasks = {'layer_retrieval': 'tatoeba', 'edge_probing': 'udpos'}
  for arguments in of(calls, 'launch.sweep')[1:]:
    named = [word.partition('=')[2] for word in arguments if word.startswith(('--tasks=', '--analyses='))]
    [task] = [tasks.get(name, name) for name in named if name]
    [bound] = [word.partition('languages=')[2] for word in arguments if 'xtreme.languages=' in word]
    evaluated = set(ast.literal_eval(bound))
    assert evaluated <= set(replication.LANGUAGES)
    assert evaluated <= set(LANGUAGES[task])
    assert ('en' in evaluated) == (task != 'tatoeba')
