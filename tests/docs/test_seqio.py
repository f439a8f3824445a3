"""docs/guides/seqio.md: its ten lines run, from another directory, on the sample corpus."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

from own_tasks import python_of_the_page
from small_corpora import sample_corpus

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_the_ten_lines_of_the_page_run(tmp_path, xtreme_vocabulary):
  lines = python_of_the_page('tasks.add_wikipedia')
  assert len([line for line in lines.splitlines() if line]) <= 11
  run = tmp_path / 'runs' / 'pretrain_smoke'
  shutil.copytree(sample_corpus().folder, run / 'corpus')
  (run / 'vocabulary').mkdir()
  shutil.copy(xtreme_vocabulary, run / 'vocabulary' / 'sentencepiece.model')
  result = subprocess.run(
    [sys.executable, '-c', lines],
    cwd=tmp_path,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    timeout=240,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert "{'targets': array([" in result.stdout
  rates = ast.literal_eval(re.search(r"\{'wikipedia\.ar'.*\}", result.stdout)[0])
  assert len(rates) == 12
  assert abs(sum(rates.values()) - 1) < 0.01
  assert "'masked_positions': array([[" in result.stdout
  assert re.search(r"'input_ids': array\(\[\[ *312", result.stdout)
