"""Figures that the README quotes are those of their sources."""

import json
import pathlib
import statistics

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


def _seconds(setting, machine, *names):
  """The shortest median of the named candidates of docs/performance.json, in seconds with two digits."""
  record = json.loads((ROOT / 'docs/performance.json').read_text())[f'train_step-{setting}, {machine}']
  measured = [row['seconds'] for row in record['contestants'] if row['name'] in names]
  return f'{min(statistics.median(seconds) for seconds in measured):#.2g}'


@pytest.mark.parametrize(
  ('row', 'setting', 'torch'),
  [
    ('batch 16 × 128), float32', 'small', ('torch, float32', 'torch, float32, compiled')),
    ('torch under autocast', 'small_bfloat16', ('torch, bfloat16 autocast', 'torch, bfloat16, compiled')),
    ('batch 2 × 512), float32', 'base', ('torch, float32', 'torch, float32, compiled')),
    ('the same in bfloat16', 'base_bfloat16', ('torch, bfloat16 autocast', 'torch, bfloat16, compiled')),
  ],
)
def test_seconds_per_step_are_the_measured_medians(row, setting, torch):
  machines = 'AMD EPYC (Zen 5)', 'Intel Xeon'
  cells = [_seconds(setting, machine, *names) for machine in machines for names in (('this project',), torch)]
  assert f'{row} | {" | ".join(cells)} |' in README


def test_seconds_on_a_gpu_are_the_measured_medians():
  ours, theirs = (_seconds('large', 'NVIDIA H200', name) for name in ('this project', 'torch, bfloat16 autocast'))
  assert f'takes {ours} s on an NVIDIA H200, eager torch {theirs} s' in README


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
