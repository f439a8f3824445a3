"""The task of docs/guides/own_task.md, written as the page says, learns and is judged."""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / 'docs' / 'guides' / 'own_task.md'

THINGS = ('book', 'phone', 'lamp', 'chair', 'film', 'coat', 'bread', 'watch')
LABELS = {'positive': ('good', 'great', 'fine'), 'negative': ('bad', 'ugly', 'broken')}


def blocks() -> list[str]:
  return re.findall(r'^```python\n(.*?)^```', PAGE.read_text(encoding='utf-8'), re.MULTILINE | re.DOTALL)


def line_before(line: str) -> str:
  """The line of the page without the name that it adds."""
  return line.replace(", 'reviews'", '')


@pytest.fixture
def project(tmp_path) -> pathlib.Path:
  """A copy of the project with the page's changes and nothing else."""
  for folder in ('rembert', 'tasks', 'gin'):
    shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns('__pycache__', '*.bz2'))
  module, name, configuration, *_ = blocks()
  (tmp_path / 'tasks/xtreme/reviews.py').write_text(module)
  (tmp_path / 'gin/finetune_reviews.gin').write_text(configuration)
  path = tmp_path / 'tasks/xtreme/config.py'
  path.write_text(path.read_text().replace(line_before(name), name))
  return tmp_path


def write_data(folder: pathlib.Path) -> None:
  rows = [
    (f'The {thing} was {word}.', label)
    for thing, (label, words) in itertools.product(THINGS, LABELS.items())
    for word in words
  ]
  (folder / 'reviews').mkdir(parents=True)
  (folder / 'labels/reviews').mkdir(parents=True)
  for split in ('train', 'dev'):
    text = ''.join(f'{text}\t\t{label}\n' for text, label in rows)
    (folder / f'reviews/{split}-en.tsv').write_text(text)
  (folder / 'reviews/test-de.tsv').write_text('Der Mantel war gut.\t\nDas Buch war schlecht.\t\n')
  (folder / 'labels/reviews/test-de.tsv').write_text('positive\nnegative\n')
  (folder / 'reviews/test-en.tsv').write_text(''.join(f'{text}\t\n' for text, _ in rows))
  (folder / 'labels/reviews/test-en.tsv').write_text(''.join(f'{label}\n' for _, label in rows))


def run(project: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
  environment = os.environ | {'PYTHONPATH': str(project), 'JAX_PLATFORMS': 'cpu', 'COLUMNS': '100'}
  command = [sys.executable, '-m', *arguments]
  return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_the_task_of_the_page_learns_and_is_judged(project, xtreme_vocabulary):
  write_data(project / 'data')
  checked = run(project, *('tasks.xtreme.download', '--data_dir=data', '--check', '--tasks=reviews'))
  assert re.search(r'reviews +1 of 3: 48 +1 of 3: 48 +2 of 3: 2–48 \(2\) +incomplete', checked.stdout), checked.stdout
  small = {
    'RemBertConfig.vocab_size': 2000,
    'RemBertConfig.hidden_size': 32,
    'RemBertConfig.num_hidden_layers': 1,
    'RemBertConfig.num_attention_heads': 2,
    'RemBertConfig.intermediate_size': 64,
    'RemBertConfig.input_embedding_size': 32,
    'RemBertConfig.initializer_range': 0.1,
    'vocabulary.path': str(xtreme_vocabulary),
    'optimizer.learning_rate': 0.01,
    'optimizer.bias_correction': True,
    'train.sequence_length': 32,
    'finetune.epochs': 20,
    'finetune.evaluations_per_epoch': 1,
  }
  done = run(
    project,
    *('rembert.main', '--gin_file=gin/finetune_reviews.gin', '--workdir=reviews', '--gin.xtreme.data_dir=data'),
    *(f'--gin.{name}={value}' for name, value in small.items()),
  )
  assert done.returncode == 0, done.stderr
  results = json.loads((project / 'reviews/results.json').read_text())
  judged = results['tasks']['reviews']
  assert set(judged) == {'de', 'en'}
  assert set(results['skipped']['reviews']) == {'sw'}
  # The words are those of training: what is read is learned, and frequencies alone give half.
  assert judged['en']['baseline'] == {'accuracy': 50}
  assert judged['en']['scores']['accuracy'] > 90
  assert (project / 'reviews/predictions/reviews/test-en.tsv').read_text().split().count('positive') > 0


def test_the_page_shows_a_module_a_line_and_a_gin_file():
  module, name, configuration, use = blocks()
  assert 'PairTask(' in module
  assert "'reviews'" in name
  assert (ROOT / 'tasks/xtreme/config.py').read_text().count(line_before(name)) == 1, 'the page changes another line'
  assert "include 'gin/finetuning/base.gin'" in configuration
  assert 'rembert.load(' in use
