"""The ten lines of docs/guides/seqio.md and those of the README run, from another directory, on sample data."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from own_tasks import python_of_the_page
from small_corpora import sample_corpus

ROOT = pathlib.Path(__file__).parent.parent.parent


PAGES = {
  'docs/guides/seqio.md': python_of_the_page('tasks.add_wikipedia'),
  'README.md': python_of_the_page('tasks.add_xtreme', ROOT / 'README.md'),
}
# Runs each file in a process of its own that has imported TensorFlow and SeqIO already; output goes to FILE.log.
RUNNER = """
import os, sys
from tasks.tensorflow_import import tensorflow
import seqio, t5.data.preprocessors
for file in sys.argv[1:]:
  child = os.fork()
  if not child:
    log = os.open(file + '.log', os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    exec(compile(open(file).read(), file, 'exec'), {'__name__': '__main__'})
    sys.stdout.flush()
    os._exit(0)
  if os.waitpid(child, 0)[1]:
    sys.exit(f'{file} failed')
"""


@pytest.fixture(scope='module')
def printed(tmp_path_factory, xtreme_vocabulary) -> dict[str, str]:
  """What the lines of each page print in a directory that holds what they read, without any variable of theirs."""
  folder = tmp_path_factory.mktemp('lines')
  run = folder / 'runs' / 'pretrain_smoke'
  shutil.copytree(sample_corpus().folder, run / 'corpus')
  (run / 'vocabulary').mkdir()
  shutil.copy(xtreme_vocabulary, run / 'vocabulary' / 'sentencepiece.model')
  shutil.copytree(ROOT / 'tests/data/xtreme', folder / 'tests/data/xtreme')
  files = [folder / f'{number}.py' for number in range(len(PAGES))]
  for file, lines in zip(files, PAGES.values(), strict=True):
    file.write_text(lines)
  result = subprocess.run(
    [sys.executable, '-c', RUNNER, *map(str, files)],
    cwd=folder,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    timeout=240,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return dict(zip(PAGES, (pathlib.Path(f'{file}.log').read_text() for file in files), strict=True))


@pytest.mark.parametrize('page', PAGES)
def test_the_lines_are_ten(page):
  assert len([line for line in PAGES[page].splitlines() if line]) <= 11


@pytest.mark.slow
def test_the_ten_lines_of_the_page_run(printed):
  found = printed['docs/guides/seqio.md']
  assert "{'targets': array([" in found
  rates = ast.literal_eval(re.search(r"\{'wikipedia\.ar'.*\}", found)[0])
  assert len(rates) == 12
  assert abs(sum(rates.values()) - 1) < 0.01
  assert "'masked_positions': array([[" in found
  assert re.search(r"'input_ids': array\(\[\[ *312", found)


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run(printed):
  found = printed['README.md']
  assert re.search(r"^wikipedia\.sw \{'targets': array\(\[", found, re.MULTILINE)
  rows = dict(re.findall(r'^(xtreme\.\S+) (.*?)(?=^xtreme|\Z)', found, re.MULTILINE | re.DOTALL))
  assert set(rows) == {'xtreme.xnli.de', 'xtreme.udpos.en', 'xtreme.xquad.zh'}
  assert all(re.search(r"'input_ids': array\(\[ *312,", row) for row in rows.values())
  assert "'first_tokens'" in rows['xtreme.udpos.en']
  assert "'answers'" in rows['xtreme.xquad.zh']
