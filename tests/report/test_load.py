"""Folders of every kind become models with their runs; a broken workdir is read as far as it can be."""

import json

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


def test_a_single_workdir_is_what_its_files_say(tmp_path):
  folders = [
    made_up_sweep.write_pretraining(tmp_path / 'mine', seed=3),
    made_up_sweep.write_results(tmp_path / 'qa', 'squad', {'xquad': {'en': 70.0}, 'mlqa': {'en': 60.0}}),
    made_up_sweep.write_analysis(tmp_path / 'a', 'something_new', {'rank': 3.0}),
  ]
  sources = load.read(folders)
  pretraining, finetuning, analysis = (run for source in sources for model in source.models for run in model.plan)
  assert [source.kind for source in sources] == ['pre-training', 'XTREME', 'analysis']
  assert sources[0].models[0].name == 'mine'
  assert (pretraining.kind, pretraining.pretrain_seed) == ('pre-training', 3)
  assert (finetuning.kind, finetuning.task, finetuning.evaluated) == ('fine-tuning', 'squad', ('xquad', 'mlqa'))
  assert (analysis.kind, analysis.task, analysis.results) == ('analysis', 'something_new', {'rank': 3.0})


def test_the_folder_of_a_benchmark(tmp_path):
  folder = tmp_path / 'seed_9' / 'bench'  # nothing above it counts
  for rate in ('1e-05', '2e-05'):
    for seed in (0, 1):
      made_up_sweep.write_results(folder / 'panx' / f'rate_{rate}' / f'seed_{seed}', 'panx', {'panx': {'en': 50.0}})
  made_up_sweep.write_results(folder / 'xnli' / 'as_in_table_15' / 'seed_2', 'xnli', {'xnli': {'en': 50.0}})
  retrieval = {'task': 'tatoeba', 'languages': {'de': {'accuracy': 40.0, 'chance': 0.1}}, 'mean_over': ['de']}
  (folder / 'tatoeba').mkdir()
  (folder / 'tatoeba' / 'results.json').write_text(json.dumps(retrieval))
  (folder / 'xtreme.json').write_text('{"name": "the model"}')
  (source,) = load.read([folder])
  (model,) = source.models
  assert model.name == 'the model'
  assert {(run.task, run.seed, run.learning_rate) for run in model.runs('fine-tuning')} == {
    *(('panx', seed, rate) for seed in (0, 1) for rate in (1e-5, 2e-5)),
    ('xnli', 2, None),
    ('tatoeba', 0, None),
  }


def test_a_sweep_has_its_models_and_what_is_still_missing(tmp_path):
  folder = made_up_sweep.write_sweep(
    tmp_path / 'sweep', ['in128_out128', 'in128_out768'], is_there=lambda workdir: 'in128_out768' in workdir
  )
  (source,) = load.read([folder])
  missing, there = source.models
  assert (source.kind, source.scale) == ('sweep', 'mini')
  assert source.facts == {'name': 'a made-up sweep', 'asked for': '--models=all --seeds=3', 'code': '0.1 abc123'}
  assert missing.trained == []
  assert [len(model.runs('fine-tuning')) for model in source.models] == [21, 21]
  assert [sum(run.kind == 'fine-tuning' for run in model.trained) for model in source.models] == [0, 21]
  assert all(run.results for run in there.runs('fine-tuning'))
  assert there.rows == ((3, 'in128_out768'), (4, 'in128_out768'), (5, 'in128_out768'), (6, 'in128_out768'))
  analyses = [*missing.runs('analysis'), *there.runs('analysis')]
  assert [run.results is None for run in analyses] == [True, True, False, False]


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
