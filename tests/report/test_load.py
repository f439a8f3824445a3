"""Folders of every kind become models with their runs; a broken workdir is read as far as it can be."""

import gin
import made_up_sweep
import pytest

from rembert import configuration
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from rembert.report import load
from rembert.report.load import read_metrics, read_run, read_settings

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


def test_a_sweep_that_is_described_otherwise_is_refused_with_its_file(tmp_path):
  models = ['{}', '"x"', '{"name": "x", "learned": [{}]}']
  for content in ('[1]', '{', '{"models": 3}', *(f'{{"models": [{model}]}}' for model in models)):
    (tmp_path / 'sweep.json').write_text(content)
    with pytest.raises(UsageError) as error:
      load.read([tmp_path])
    assert 'sweep.json' in str(error.value)


def test_a_folder_with_nothing_known_says_what_was_looked_for(tmp_path):
  with pytest.raises(UsageError) as error:
    load.read([tmp_path])
  for name in ('sweep.json', 'xtreme.json', 'metrics.jsonl', 'results.json', 'analysis.json'):
    assert name in str(error.value)
  with pytest.raises(UsageError, match='a directory is given twice'):
    load.read([tmp_path, f'{tmp_path}/../{tmp_path.name}'])
  with pytest.raises(UsageError, match='no such directory'):
    load.read([tmp_path / 'nowhere'])


def test_models_of_one_name_get_distinct_names(tmp_path):
  for path in ('a/run', 'b/run', 'c/other'):
    made_up_sweep.write_pretraining(tmp_path / path)
  sources = load.read([tmp_path / 'a/run', tmp_path / 'b/run', tmp_path / 'c/other'])
  assert [model.name for source in sources for model in source.models] == ['a/run', 'b/run', 'other']


# --- a workdir --------------------------------------------------------------------------------------------------------


def test_a_broken_line_of_the_metrics_costs_that_line_alone(tmp_path):
  file = tmp_path / 'metrics.jsonl'
  lines = ['{"step": 20, "loss": 4.0}', '{"step": 1', '[1]', '{"loss": 3}', '', '{"step": 10, "loss": 5.0}']
  lines += ['{"step": 30, "loss": NaN, "a": Infinity, "b": "<b>", "c": true, "d": null, "e": [1]}']
  file.write_bytes('\n'.join(lines).encode() + b'\n\xff\xfe\x00')
  rows = read_metrics(file)
  assert list(rows.index) == [10, 20, 30]
  assert list(rows.columns) == ['loss']
  assert rows['loss'].dropna().to_dict() == {10: 5.0, 20: 4.0}


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


def test_a_model_or_results_that_cannot_be_are_none(tmp_path):
  workdir = made_up_sweep.write_pretraining(tmp_path / 'run')
  settings = (workdir / 'config.gin').read_text()
  for hidden in (-1, "'wide'", 97, None, '%UNKNOWN'):
    (workdir / 'config.gin').write_text(settings.replace('hidden_size = 96', f'hidden_size = {hidden}'))
    assert read_run(workdir, 'x').model is None
  for content in ('', '[]', '{"tasks": ', '"text"', '[' * 100_000):
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
  assert (run.row, run.paper('scale'), run.paper('kept_layers')) == ((5, 'layers23to12'), 'mini', 4)
