"""The task of docs/guides/own_task.md, written as the page says, is trained and evaluated."""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from quick_compilation import QUICK_COMPILATION

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / 'docs' / 'guides' / 'own_task.md'

THINGS = ('book', 'phone', 'lamp', 'chair', 'film', 'coat', 'bread', 'watch')
LABELS = {'positive': ('good', 'great', 'fine'), 'negative': ('bad', 'ugly', 'broken')}
SMALL = {
  'RemBertConfig.vocab_size': 2000,
  'RemBertConfig.hidden_size': 32,
  'RemBertConfig.num_hidden_layers': 1,
  'RemBertConfig.num_attention_heads': 2,
  'RemBertConfig.intermediate_size': 64,
  'RemBertConfig.input_embedding_size': 32,
  'RemBertConfig.initializer_range': 0.1,
  'optimizer.learning_rate': 0.01,
  'optimizer.bias_correction': True,
  'train.sequence_length': 32,
  'finetune.epochs': 20,
  'finetune.evaluations_per_epoch': 1,
}


def blocks() -> list[str]:
  return re.findall(r'^```python\n(.*?)^```', PAGE.read_text(encoding='utf-8'), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
  """A folder outside the package with the page's module, its gin file, and made-up data."""
  module, configuration, _ = blocks()
  (tmp_path / 'my_tasks.py').write_text(module)
  (tmp_path / 'finetune_reviews.gin').write_text(configuration)
  data = tmp_path / 'data' / 'reviews'
  data.mkdir(parents=True)
  rows = [
    f'The {thing} was {word}.\t{label}\n'
    for thing, (label, words) in itertools.product(THINGS, LABELS.items())
    for word in words
  ]
  for split in ('train', 'dev', 'test'):
    (data / f'{split}-en.tsv').write_text(''.join(rows))
  (data / 'test-de.tsv').write_text('Der Mantel war gut.\tpositive\nDas Buch war schlecht.\tnegative\n')
  (data / 'test-sw.tsv').write_text('Kitabu kilikuwa kizuri.\tpositive\n')
  return tmp_path


def run(folder: pathlib.Path, vocabulary: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
  environment = os.environ | {'JAX_PLATFORMS': 'cpu', 'COLUMNS': '100', 'REMBERT_VOCABULARY': str(vocabulary)}
  environment |= QUICK_COMPILATION | {'PYTHONPATH': str(ROOT)}
  bindings = [f'--gin.{name}={value}' for name, value in SMALL.items()]
  program = [sys.executable, '-m', 'rembert.main', '--module=my_tasks', '--gin_file=finetune_reviews.gin']
  command = [*program, *bindings, *arguments]
  return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_the_task_of_the_page_is_trained_and_evaluated(folder, xtreme_vocabulary):
  done = run(folder, xtreme_vocabulary, '--workdir=run')
  assert done.returncode == 0, done.stderr
  found = json.loads((folder / 'run/results.json').read_text())['tasks']['reviews']
  assert {name: entry['examples'] for name, entry in found.items()} == {
    'reviews.en': 48,
    'reviews.de': 2,
    'reviews.sw': 1,
  }
  assert found['reviews.en']['scores']['accuracy'] > 90
  lines = (folder / 'run' / found['reviews.en']['predictions']).read_text().splitlines()
  predictions = [json.loads(line) for line in lines]
  assert [each['prediction'] in ('positive', 'negative') for each in predictions] == [True] * 48
  assert predictions[0]['first'] == 'The book was good.'


@pytest.mark.slow
def test_what_a_task_lacks_is_listed_before_anything_is_trained(folder, xtreme_vocabulary):
  module = folder / 'my_tasks.py'
  module.write_text(module.read_text().replace('    metric_fns=[metrics.accuracy],\n', ''))
  done = run(folder, xtreme_vocabulary, '--workdir=run')
  assert done.returncode == 2
  assert 'reviews.en has no metric_fns' in done.stderr
  assert 'reviews.sw has no metric_fns' in done.stderr
  assert 'own_task.md' in done.stderr


def test_the_page_shows_a_module_a_gin_file_and_a_model():
  module, configuration, use = blocks()
  assert 'seqio.TaskRegistry.add(' in module
  assert "include 'gin/finetuning/base.gin'" in configuration
  assert '--module=my_tasks' in configuration
  assert 'rembert.load(' in use
