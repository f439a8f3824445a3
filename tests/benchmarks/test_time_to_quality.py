import sys
import types

import numpy as np
import pandas as pd
import pytest

from benchmarks import time_to_quality
from benchmarks.settings import SMALL
from benchmarks.time_to_quality import OURS, THEIRS, Candidate, Problem, our_command, summarize, train
from rembert import configuration
from rembert.jobs import pretrain
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console

BATCH = ('input_ids', 'attention_mask', 'labels')
# In the place of a trainer: writes two checkpoints, begins a third, and sleeps.
TRAINS = """
import pathlib, sys, time
for step in '100', '200', '300.tmp':
  folder = pathlib.Path(sys.argv[1], f'checkpoint-{step}')
  folder.mkdir()
  (folder / 'weights').write_text('')
time.sleep(60)
"""


@pytest.fixture
def problem(tmp_path):
  return Problem(tmp_path)


@pytest.fixture
def candidate(monkeypatch):
  """Function (program) → a candidate of that name; every checkpoint has the loss 2."""

  def add(program):
    command = lambda problem, folder, seed, save_every: [sys.executable, '-c', program, str(folder)]
    monkeypatch.setitem(time_to_quality.CANDIDATES, 'some', Candidate(command, 'checkpoint-*', 100))
    return 'some'

  monkeypatch.setattr(Problem, 'losses', lambda self, checkpoints: (2.0 for _ in checkpoints))
  return add


@pytest.mark.slow  # waits
def test_a_run_is_killed_after_its_time_and_its_whole_checkpoints_are_evaluated(candidate, problem):
  rows = train(candidate(TRAINS), problem, 7, 1.6, Console(is_quiet=True))
  assert [(row['step'], row['tokens'], row['seed'], row['loss']) for row in rows] == [
    (100, 100 * 32 * 128, 7, 2.0),
    (200, 200 * 32 * 128, 7, 2.0),
  ]
  assert all(0 <= row['seconds'] < 1.6 for row in rows)
  assert not (problem.folder / 'run').exists()


@pytest.mark.slow  # waits
@pytest.mark.parametrize(
  ('program', 'message'),
  [
    ('raise SystemExit(3)', 'by itself with exit code 3'),
    ('input()', 'exit code'),
    ('import time; time.sleep(60)', 'saved no checkpoint'),
  ],
)
def test_a_run_that_ends_or_saves_nothing_is_an_error(candidate, problem, program, message):
  with pytest.raises(RuntimeError, match=message):
    train(candidate(program), problem, 0, 0.5, Console(is_quiet=True))


def test_our_run_has_the_model_and_the_options_of_the_other(problem, tmp_path, root, monkeypatch):
  monkeypatch.chdir(root)
  *_, first, second, workdir = our_command(problem, tmp_path, 3, 50)
  assert workdir == f'--workdir={tmp_path}'
  configuration.load([each.partition('=')[2] for each in (first, second)], [])
  config = pretrain.configured()
  assert config.model == SMALL
  assert (config.train.seed, config.train.batch_size, config.train.checkpoint_every) == (3, 32, 50)
  assert config.optimizer.schedule == 'constant'


def test_masks_are_those_of_the_labels_and_the_loss_of_a_uniform_model_is_known(problem, monkeypatch):
  texts = ['word ' * count for count in range(1, 200)]
  corpus = types.SimpleNamespace(languages=['de'], texts=lambda language, split: iter(texts))
  pieces = types.SimpleNamespace(encode=lambda text: [1000] * len(text.split()))
  monkeypatch.setattr('tasks.corpus.format.open_corpus', lambda folder: corpus)
  monkeypatch.setattr('rembert.tokenizer.load_vocabulary', lambda file: pieces)
  batches = {name: np.stack([batch[name] for batch in problem.evaluation_batches()]) for name in BATCH}
  is_masked, is_text = batches['labels'] >= 0, batches['attention_mask'] > 0
  assert (batches['input_ids'][is_masked] == SpecialIds().mask).all()
  assert (batches['labels'][is_masked] == 1000).all()
  assert is_masked.sum() == pytest.approx(0.15 * is_text.sum(), rel=0.05)
  lengths = [min(2 + count, 128) for count in range(1, 200)]
  assert sorted(filter(None, is_text.sum(axis=-1).ravel())) == lengths
  uniform = lambda *_, **__: types.SimpleNamespace(logits=np.zeros((32, 128, 1500)))
  monkeypatch.setattr('rembert.inference.model.load', lambda path, head: uniform)
  assert list(problem.losses(['one', 'two'])) == pytest.approx([np.log(1500)] * 2)


ROWS = pd.DataFrame(
  [
    (OURS, 0, 100, 1e6, 60.0, 6.0),
    (OURS, 0, 200, 2e6, 120.0, 4.0),
    (OURS, 0, 300, 3e6, 180.0, 4.5),
    (THEIRS, 0, 100, 1e6, 180.0, 5.0),
  ],
  columns=time_to_quality.FIELDS,
)


def test_time_and_tokens_to_the_last_loss_of_the_other():
  lines, conclusion = summarize(ROWS)
  assert lines == [(OURS, '16,667', '3.00', '4.500'), (THEIRS, '5,556', '1.00', '5.000')]
  assert conclusion.endswith('takes 1/2.0 of the time and 1/0.67 of the tokens')  # 5.0 after 1.5 M, 90 s


def test_a_loss_that_is_never_reached_is_reported():
  assert 'does not reach' in summarize(ROWS.assign(loss=[6, 5.5, 5.4, 5.0]))[1]


def test_the_command_resumes_and_draws(problem, monkeypatch, capsys):
  done = []

  def train(name, problem, seed, seconds, console):
    done.append((name, seed, seconds))
    return ROWS[ROWS['candidate'] == name].assign(seed=seed).to_dict('records')

  monkeypatch.setenv('COLUMNS', '200')
  monkeypatch.setattr(Problem, 'prepare', lambda *_: None)
  monkeypatch.setattr(time_to_quality, 'train', train)
  command = ['--text=text', '--minutes=2', f'--output={problem.folder}']
  time_to_quality.main([*command, '--seeds=1'])
  time_to_quality.main([*command, '--seeds=2'])
  assert done == [(OURS, 0, 120), (THEIRS, 0, 120), (OURS, 1, 120), (THEIRS, 1, 120)]
  assert len(pd.read_csv(problem.folder / 'results.csv')) == 2 * len(ROWS)
  assert (problem.folder / 'time_to_quality.png').read_bytes().startswith(b'\x89PNG')
  assert '4.500 ± 0.000' in capsys.readouterr().out
