"""A workdir is read as far as it can be, and never stops the reading."""

import json

import gin
import made_up_sweep
import pytest

from rembert import configuration
from rembert.model.config import RemBertConfig
from rembert.report.runs import is_workdir, read_metrics, read_run, read_settings

GIN = """# Macros:
KEPT = %LAYERS
LAYERS = 4

# Parameters for data:
# ==============================================================================
data.alpha = 0.7
data.languages = \\
    ['de',
     'en']

# Parameters for RemBertConfig:
RemBertConfig.hidden_size = 192
train/optimizer.rate = 1e-3
paper.kept_layers = %KEPT
data.of = %UNKNOWN
"""


def test_a_broken_line_of_the_metrics_costs_that_line_alone(tmp_path):
  file = tmp_path / 'metrics.jsonl'
  lines = ['{"step": 20, "loss": 4.0}', '{"step": 1', '[1]', '{"loss": 3}', '', '{"step": 10, "loss": 5.0}']
  file.write_text('\n'.join(lines))
  rows, broken = read_metrics(file)
  assert rows == ({'step': 10, 'loss': 5.0}, {'step': 20, 'loss': 4.0})
  assert broken == 3


def test_what_is_no_finite_number_is_no_metric(tmp_path):
  file = tmp_path / 'metrics.jsonl'
  file.write_text('{"step": 1, "loss": NaN, "a": Infinity, "b": "<b>", "c": true, "d": null, "e": [1], "f": 2}\n')
  assert read_metrics(file) == (({'step': 1, 'f': 2},), 0)


def test_bytes_that_are_no_text_are_broken_lines(tmp_path):
  file = tmp_path / 'metrics.jsonl'
  file.write_bytes(b'\xff\xfe\x00\n{"step": 1}\n')
  assert read_metrics(file) == (({'step': 1},), 1)


def test_settings_over_several_lines_are_one_and_macros_are_their_values(tmp_path):
  (tmp_path / 'config.gin').write_text(GIN)
  assert read_settings(tmp_path / 'config.gin') == {
    'data.alpha': '0.7',
    'data.languages': "['de', 'en']",
    'RemBertConfig.hidden_size': '192',
    'train/optimizer.rate': '1e-3',
    'paper.kept_layers': '4',
    'data.of': '%UNKNOWN',
  }


def test_an_empty_folder_is_a_run_without_anything(tmp_path):
  run = read_run(tmp_path, 'x')
  assert not is_workdir(tmp_path)
  assert (run.metrics, run.results, run.model, run.sessions, run.last('loss')) == ((), None, None, (), None)


def test_a_run_of_pre_training_knows_its_model_curves_and_languages(tmp_path):
  run = read_run(made_up_sweep.write_pretraining(tmp_path / 'run', 'in128_out3072', seed=4), 'x')
  assert run.is_pre_training
  assert (run.model.output_embedding_size, run.model.hidden_size) == (384, 96)
  assert run.parts_of('eval/loss') == sorted(made_up_sweep.LANGUAGES)
  steps, losses = run.curve('eval/loss/en')
  assert steps == [50, 100, 150, 200]
  assert losses[-1] == run.last('eval/loss/en')
  assert run.sessions[0].last_step == 200
  assert run.kept_layers is None


def test_without_a_checkpoint_the_model_is_what_the_run_was_told(tmp_path):
  workdir = made_up_sweep.write_pretraining(tmp_path / 'run', 'layers23to12')
  said = read_run(workdir, 'x').model
  for file in sorted(workdir.glob('checkpoints/*/*/*')):
    file.unlink()
  told = read_run(workdir, 'x')
  assert told.model == said
  assert (told.kept_layers, told.row, told.scale) == (4, (5, 'layers23to12'), 'mini')


def test_a_broken_checkpoint_gives_way_to_the_one_before(tmp_path):
  workdir = made_up_sweep.write_pretraining(tmp_path / 'run', steps=200)
  newer = workdir / 'checkpoints' / '300' / 'meta'
  newer.mkdir(parents=True)
  (newer / 'metadata').write_text('{"RemBertConfig.hidden_size": ')
  assert read_run(workdir, 'x').meta['RemBertConfig.hidden_size'] == 96


@pytest.mark.parametrize('hidden', [-1, 'wide', 97, None])
def test_a_model_that_cannot_be_is_none(tmp_path, hidden):
  workdir = made_up_sweep.write_pretraining(tmp_path / 'run')
  file = workdir / 'checkpoints' / '200' / 'meta' / 'metadata'
  file.write_text(json.dumps(json.loads(file.read_text()) | {'RemBertConfig.hidden_size': hidden}))
  assert read_run(workdir, 'x').model is None


@pytest.mark.parametrize('content', ['', '[]', '{"tasks": ', '"text"', '[' * 100_000])
def test_results_that_are_none_are_none(tmp_path, content):
  (tmp_path / 'results.json').write_text(content)
  assert read_run(tmp_path, 'x').results is None


def test_a_row_of_the_paper_is_read_as_gin_writes_it(tmp_path):
  files = ['gin/experiments/table5/layers23to12.gin', 'gin/scales/mini.gin']
  try:
    configuration.load(files, ['train.seed=3'])
    configuration.save(tmp_path)
    model = configuration.build(RemBertConfig)
  finally:
    gin.clear_config()
  run = read_run(tmp_path, 'x')
  assert run.model == model
  assert (run.row, run.scale, run.kept_layers) == ((5, 'layers23to12'), 'mini', 4)
