"""Figures that the README quotes are those of their sources."""

import json
import pathlib

import pytest

from rembert import configuration, paper
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text(encoding='utf-8')
GUIDE = (ROOT / 'docs/guides/xtreme.md').read_text(encoding='utf-8')


@pytest.mark.parametrize('gin_file', ['gin/pretrain_large.gin', 'gin/pretrain_base.gin', 'gin/pretrain_smoke.gin'])
def test_models_have_the_parameters_that_the_first_table_says(gin_file):
  configuration.load([gin_file], [])
  config = configuration.build(RemBertConfig)
  counts = count_parameters(config)
  cells = [
    f'({gin_file})) | {config.input_embedding_size} | {config.output_embedding_size} ',
    f'{config.num_hidden_layers} × {config.hidden_size} | {counts.pre_training:,} | {counts.fine_tuning:,} |',
  ]
  assert ' | '.join(cells).replace('  |', ' |') in README


@pytest.mark.parametrize(('hardware', 'days'), [('v5e_64', '6.4'), ('v5p_64', '2.7')])
def test_bounds_of_training_follow_from_the_compiled_step(hardware, days):
  seconds = json.loads((ROOT / 'docs/hardware.json').read_text())[hardware]['roofline']['step_seconds']
  configuration.load(['gin/pretrain_large.gin'], [])
  steps = configuration.bound(configuration.TrainConfig)['steps']
  assert f'{steps * seconds / 86_400:.1f}' == days
  assert f'at least {days} days' in README
  assert f'{seconds:.3f} s' in README


def test_scores_of_the_paper_are_the_paper_s():
  [rembert] = [row for row in paper.TABLE_7 if row.name == 'rembert']
  [xlm_r] = [row for row in paper.TABLE_7 if row.name == 'xlm_r']
  assert f'({rembert.mean}, {xlm_r.mean}; paper, Table 7)' in README
  assert f'({rembert.fine_tuning_millions}M, {xlm_r.fine_tuning_millions}M)' in README


@pytest.mark.parametrize('task', ['xnli', 'pawsx', 'panx', 'udpos', 'xquad', 'mlqa', 'tydiqa'])
def test_the_guide_to_xtreme_quotes_the_scores_of_the_paper(task):
  [rembert] = [row for row in paper.TABLE_7 if row.name == 'rembert']
  score = '/'.join(f'{value:.1f}' for value in rembert.scores[task])
  rows = [line.replace('-', '').lower() for line in GUIDE.splitlines() if line.endswith(f'| {score} |')]
  assert any(f'| {task}' in row for row in rows)
