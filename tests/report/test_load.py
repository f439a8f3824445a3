"""Folders of every kind become models with their runs; what is unknown is said."""

import json

import made_up_sweep
import pytest

from rembert.errors import UsageError
from rembert.report import reading


def test_a_workdir_of_pre_training(tmp_path):
  made_up_sweep.write_pretraining(tmp_path / 'mine', seed=3)
  (source,) = reading.read([tmp_path / 'mine'])
  (model,) = source.models
  assert (source.kind, model.name) == ('pre-training', 'mine')
  assert [each.seed for each in model.pretrained] == [3]
  assert not model.learned


def test_a_workdir_of_fine_tuning(tmp_path):
  made_up_sweep.write_results(tmp_path / 'qa', 'squad', {'xquad': {'en': 70.0}, 'mlqa': {'en': 60.0}})
  (source,) = reading.read([tmp_path / 'qa'])
  (learned,) = source.models[0].learned
  assert (source.kind, learned.task, learned.judged, learned.is_judged) == ('XTREME', 'squad', ('xquad', 'mlqa'), True)


def test_a_workdir_of_an_analysis(tmp_path):
  made_up_sweep.write_analysis(tmp_path / 'a', 'spectra', {'rank': 3.0})
  (source,) = reading.read([tmp_path / 'a'])
  (analysis,) = source.models[0].analyses
  assert (source.kind, analysis.what, analysis.results) == ('analysis', 'spectra', {'rank': 3.0})
  assert [file.name for file in analysis.pictures] == ['spectra.png']


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
  (source,) = reading.read([folder])
  (model,) = source.models
  assert model.name == 'the model'
  assert {(each.task, each.seed, each.learning_rate) for each in model.learned} == {
    *(('panx', seed, rate) for seed in (0, 1) for rate in (1e-5, 2e-5)),
    ('xnli', 2, None),
    ('tatoeba', 0, None),
  }


def test_a_sweep_has_its_models_and_what_is_still_missing(tmp_path):
  folder = made_up_sweep.write_sweep(
    tmp_path / 'sweep', ['in128_out128', 'in128_out768'], is_there=lambda workdir: 'in128_out768' in workdir
  )
  (source,) = reading.read([folder])
  missing, there = source.models
  assert (source.kind, source.scale) == ('sweep', 'mini')
  assert source.facts == {'name': 'a made-up sweep', 'asked for': '--models=all --seeds=3', 'code': '0.1 abc123'}
  assert missing.runs == missing.judged == []
  assert len(missing.learned) == len(there.learned) == len(there.judged) == 21
  assert there.stands_for(4) == ['in128_out768']
  assert there.stands_for(2) == []
  assert [analysis.results is None for analysis in (*missing.analyses, *there.analyses)] == [True, True, False, False]


@pytest.mark.parametrize(
  'content',
  [
    '[1]',
    '{',
    '{"models": [{}]}',
    '{"models": [{"name": "x", "learned": [{}]}]}',
    '{"models": 3}',
    '{"models": ["x"]}',
  ],
)
def test_a_sweep_that_is_described_otherwise_is_refused_with_its_file(tmp_path, content):
  (tmp_path / 'sweep.json').write_text(content)
  with pytest.raises(UsageError) as error:
    reading.read([tmp_path])
  assert 'sweep.json' in str(error.value)


def test_a_folder_with_nothing_known_says_what_was_looked_for(tmp_path):
  with pytest.raises(UsageError) as error:
    reading.read([tmp_path])
  for name in ('sweep.json', 'xtreme.json', 'metrics.jsonl', 'results.json', 'analysis.json'):
    assert name in str(error.value)
  with pytest.raises(UsageError, match='no such folder'):
    reading.read([tmp_path / 'nowhere'])


def test_models_of_one_name_are_told_apart(tmp_path):
  for path in ('a/run', 'b/run', 'c/other'):
    made_up_sweep.write_pretraining(tmp_path / path)
  sources = reading.read([tmp_path / 'a/run', tmp_path / 'b/run', tmp_path / 'c/other', tmp_path / 'a/run'])
  assert [model.name for source in sources for model in source.models] == ['a/run', 'b/run', 'other', 'a/run (2)']
