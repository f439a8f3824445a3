"""The runs of a sweep, and the file that tells them apart."""

import json

import pytest
from etils import epath

from launch.runs import in_order
from launch.sweep.model import Model
from launch.sweep.plan import Asked, planned, write
from launch.xtreme_runs import Benchmark
from rembert.errors import UsageError


@pytest.fixture
def benchmark_of(xtreme_samples):
  def make(*tasks, seeds=(0,)):
    return Benchmark(str(xtreme_samples.root), None, tasks, seeds, None, ('small.gin',), ('--gin.train.batch_size=4',))

  return make


def model(name, kept_layers=None, settings=None):
  return Model(name, ((4, name),), (f'{name}.gin', 'mini.gin'), ('train.steps=9',), settings or {}, kept_layers)


def test_a_model_is_pre_trained_once_and_all_else_needs_it(benchmark_of, tmp_path):
  workdir = epath.Path(tmp_path)
  asked = Asked(
    benchmark_of('panx', 'tatoeba', seeds=(0, 1)),
    pretrain_seeds=(0, 7),
    variants=({}, {'optimizer.freeze_embeddings': 'True'}),
    analyses=('spectra',),
    analysis_bindings=('--gin.analyze.seed=3',),
  )
  plan = planned([model('wide')], asked, workdir)
  stages = in_order(plan.runs)
  assert [run.name for run in stages[0]] == ['pretrain wide · seed 0', 'pretrain wide · seed 7']
  # Two seeds of fine-tuning in two variants, retrieval once, one analysis: for each pre-training.
  assert len(stages[1]) == 2 * (2 * 2 + 1 + 1)
  assert len({str(run.workdir) for run in plan.runs}) == len(plan.runs) == len({run.name for run in plan.runs})

  pretraining = stages[0][1]
  assert pretraining.arguments == (
    '--gin_file=wide.gin',
    '--gin_file=mini.gin',
    '--gin.train.steps=9',
    '--gin.train.seed=7',
    f'--workdir={tmp_path}/pretrained/wide/seed_7',
  )
  frozen = next(run for run in plan.runs if 'freeze' in run.name and 'training 7' in run.name)
  assert frozen.needs == (pretraining.name,)
  assert f'--gin.train.init_from={tmp_path}/pretrained/wide/seed_7' in frozen.arguments
  assert frozen.arguments[-2:] == ('--gin.train.batch_size=4', '--gin.optimizer.freeze_embeddings=True')
  analysis = next(run for run in plan.runs if run.name.startswith('analyze'))
  assert '--gin.analyze.seed=3' in analysis.arguments
  assert '--gin_file=gin/analyze_spectra.gin' in analysis.arguments


def test_modules_are_imported_by_what_reads_text(benchmark_of, tmp_path):
  asked = Asked(benchmark_of('panx'), (0,), analyses=('masked_accuracy',), modules=('my_tasks', 'more'))
  runs = planned([model('wide')], asked, epath.Path(tmp_path)).runs
  modules = {run.name.split()[0]: [each for each in run.arguments if each.startswith('--module')] for run in runs}
  assert modules['pretrain'] == modules['analyze'] == ['--module=my_tasks', '--module=more']
  assert modules['panx'] == []


def test_layers_that_fine_tuning_drops_are_dropped_in_every_run_unless_a_variant_says_otherwise(benchmark_of, tmp_path):
  asked = Asked(benchmark_of('panx'), (0,), ({}, {'RemBertConfig.num_hidden_layers': '3'}))
  plan = planned([model('deep', kept_layers=2)], asked, epath.Path(tmp_path))
  layers = lambda run: [argument for argument in run.arguments if argument.startswith('--gin.RemBert')]
  assert [layers(run) for run in plan.runs] == [
    [],
    ['--gin.RemBertConfig.num_hidden_layers=2'],
    ['--gin.RemBertConfig.num_hidden_layers=3'],
  ]


def test_the_file_says_which_run_is_what_and_keeps_what_was_asked_before(benchmark_of, tmp_path):
  workdir = epath.Path(tmp_path)
  first = Asked(benchmark_of('squad'), (0,))
  write(planned([model('wide')], first, workdir), ['wide', '--tasks=squad'], 'mini', workdir)
  second = Asked(benchmark_of('panx'), (1,), analyses=('spectra',))
  write(planned([model('wide'), model('narrow')], second, workdir), ['both', '--tasks=panx'], 'mini', workdir)
  content = json.loads((tmp_path / 'sweep.json').read_text())
  assert content['asked'] == [['wide', '--tasks=squad'], ['both', '--tasks=panx']]
  assert content['scale'] == 'mini'
  assert content['code']['version']
  wide, narrow = content['models']
  assert wide['rows'] == [[4, 'wide']]
  assert [each['seed'] for each in wide['pretrained']] == [0, 1]
  assert wide['learned'] == [
    {
      'pretrain_seed': pretrain_seed,
      'seed': 0,
      'task': task,
      'judged': judged,
      'variant': '',
      'learning_rate': None,
      'workdir': f'learned/wide/pretrain_seed_{pretrain_seed}/as_it_is/{task}/rate_of_file/seed_0',
    }
    for pretrain_seed, task, judged in ((0, 'squad', ['xquad', 'mlqa']), (1, 'panx', ['panx']))
  ]
  assert narrow['analyses'] == [
    {'pretrain_seed': 1, 'what': 'spectra', 'workdir': 'analyses/narrow/pretrain_seed_1/spectra'}
  ]


def test_another_model_of_the_same_name_is_refused(tmp_path):
  workdir, asked = epath.Path(tmp_path), Asked(None, (0,))
  write(planned([model('wide')], asked, workdir), [], 'mini', workdir)
  before = (tmp_path / 'sweep.json').read_text()
  with pytest.raises(UsageError, match='was made of other files or settings'):
    write(planned([model('wide', settings={'a': '1'})], asked, workdir), [], 'mini', workdir)
  assert (tmp_path / 'sweep.json').read_text() == before
