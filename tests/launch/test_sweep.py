"""A sweep: its models, the plan of its runs, what the command refuses; one that is killed, repeated and reported."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import gin
import pytest
from etils import epath
from waiting import wait_for

from launch import sweep
from launch.experiment import Benchmark
from launch.sweep import Model, build_models, find_gin_files, grid_points, main, plan_sweep, write_plan
from rembert.errors import UsageError

ROOT = pathlib.Path(__file__).parents[2]
MODEL = """
include 'gin/pretrain_smoke.gin'
RemBertConfig.vocab_size = 1500
RemBertConfig.num_hidden_layers = 2
RemBertConfig.hidden_size = 32
RemBertConfig.num_attention_heads = 4
RemBertConfig.intermediate_size = 64
RemBertConfig.input_embedding_size = 16
RemBertConfig.output_embedding_size = 48
RemBertConfig.max_position_embeddings = 64
data.source = 'store'
data.languages = None
train.steps = 300
train.batch_size = 4
train.sequence_length = 64
train.eval_every = 150
train.eval_rows = 4
train.checkpoint_every = 50
train.log_every = 50
optimizer.warmup_steps = 4
"""
LEARNING = """
train.batch_size = 4
train.sequence_length = 64
finetune.epochs = 1
finetune.eval_batch_size = 4
"""


# --- models -----------------------------------------------------------------------------------------------------------

TINY = ['RemBertConfig.hidden_size=32', 'RemBertConfig.num_attention_heads=4', 'RemBertConfig.num_hidden_layers=4']


@pytest.fixture(autouse=True)
def clean_gin():
  yield
  gin.clear_config()


@pytest.fixture
def gin_file(tmp_path):
  """Writes a file that includes the smoke run; its path."""

  def write(name, *lines):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("include 'gin/pretrain_smoke.gin'\n" + '\n'.join(lines) + '\n')
    return str(path)

  return write


def test_a_grid_is_all_combinations():
  assert grid_points([], '--grid') == [{}]
  assert grid_points(['a.b=1,2', 'c.d=x'], '--grid') == [{'a.b': '1', 'c.d': 'x'}, {'a.b': '2', 'c.d': 'x'}]
  for broken in ('a.b', '=1', 'a b=1', 'a.b='):
    with pytest.raises(UsageError, match='invalid grid axis') as error:
      grid_points([broken], '--finetune_grid')
    assert '--finetune_grid' in str(error.value)


def test_the_same_configuration_is_one_model_of_several_rows(gin_file):
  row = lambda table, name: (f'paper.table = {table}', f"paper.row = '{name}'")
  wide = 'RemBertConfig.output_embedding_size = 96'
  files = [
    gin_file('table4/wide.gin', wide, *row(4, 'in128_out768')),
    gin_file('table6/also_wide.gin', wide, *row(6, 'in128_out768')),
    gin_file('table6/other.gin'),
    gin_file('table5/shallow.gin', 'paper.kept_layers = 2'),
  ]
  first, second, third = build_models(files, [{}], [], TINY)
  assert (first.name, first.rows) == ('wide', ((4, 'in128_out768'), (6, 'in128_out768')))
  assert (second.name, second.rows, second.kept_layers) == ('other', (), None)
  assert (third.name, third.kept_layers) == ('shallow', 2)
  assert first.gin_files == (files[0],)
  assert first.bindings == tuple(TINY)
  [at_a_point] = build_models(files[:1], [{'train.steps': '7'}], [], TINY)
  assert at_a_point.rows == ()


def test_the_rows_of_the_paper_are_ten_models(root):
  files = find_gin_files([f'gin/experiments/table{number}' for number in (2, 3, 4, 5, 6, 12)])
  models = {model.name: model for model in build_models(files, [{}], ['gin/scales/mini.gin'], [])}
  assert len(models) == 10
  assert [table for table, _ in models['in128_out768'].rows] == [3, 4, 5, 6]
  assert models['layers23to12'].kept_layers == 4
  assert models['layers23'].kept_layers is None


def test_files_of_one_name_have_their_folder_in_theirs(gin_file):
  files = [gin_file('one/a.gin'), gin_file('two/a.gin', 'train.steps = 7')]
  assert [model.name for model in build_models(files, [{}], [], TINY)] == ['a', 'two-a']


def test_a_grid_names_its_models_and_wins_over_all_other_bindings(gin_file):
  grid = grid_points(['RemBertConfig.output_embedding_size=48,96'], '--grid')
  models = build_models([gin_file('a.gin')], grid, [], [*TINY, 'RemBertConfig.output_embedding_size=64'])
  assert [model.name for model in models] == ['a-output_embedding_size=48', 'a-output_embedding_size=96']
  assert models[1].settings == {'RemBertConfig.output_embedding_size': '96'}
  assert models[1].bindings[-1] == 'RemBertConfig.output_embedding_size=96'
  assert models[1].rows == ()


def test_an_invalid_model_is_an_error_with_its_file_and_point_of_the_grid(gin_file):
  grid = grid_points(['RemBertConfig.num_attention_heads=4,5'], '--grid')
  file = gin_file('a.gin')
  with pytest.raises(UsageError) as error:
    build_models([file], grid, [], TINY[:1])
  assert f'{file} RemBertConfig.num_attention_heads=5' in str(error.value)


def test_folders_stand_for_their_files(gin_file, tmp_path):
  files = [gin_file('rows/b.gin'), gin_file('rows/deep/a.gin')]
  assert find_gin_files([str(tmp_path / 'rows'), files[0]]) == files
  (tmp_path / 'empty').mkdir()
  with pytest.raises(UsageError, match='no gin file in this directory'):
    find_gin_files([str(tmp_path / 'empty')])
  with pytest.raises(UsageError, match='no gin file'):
    find_gin_files(['gin/pretrain_smokes.gin'])


# --- the plan ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark_of(xtreme_samples):
  def make(*tasks, seeds=(0,)):
    return Benchmark(str(xtreme_samples.root), None, tasks, seeds, None, ('small.gin',), ('train.batch_size=4',))

  return make


def model(name, kept_layers=None, settings=None):
  return Model(name, ((4, name),), (f'{name}.gin', 'mini.gin'), ('train.steps=9',), settings or {}, kept_layers)


def test_a_model_is_pre_trained_once_and_all_else_needs_it(benchmark_of, tmp_path):
  workdir = epath.Path(tmp_path)
  runs, _ = plan_sweep(
    [model('wide')],
    benchmark_of('panx', 'tatoeba', seeds=(0, 1)),
    workdir,
    pretrain_seeds=(0, 7),
    variants=({}, {'optimizer.freeze_embeddings': 'True'}),
    analyses=('edge_probing',),
    analysis_bindings=('analyze.seed=3',),
  )
  first, second = ([run for run in runs if bool(run.needs) == is_second] for is_second in (False, True))
  assert [run.name for run in first] == ['pretrain wide · seed 0', 'pretrain wide · seed 7']
  # Two seeds of fine-tuning in two variants, retrieval once, one analysis: for each pre-training.
  assert len(second) == 2 * (2 * 2 + 1 + 1)
  assert len({str(run.workdir) for run in runs}) == len(runs) == len({run.name for run in runs})

  pretraining = first[1]
  assert pretraining.arguments == (
    '--gin_file=wide.gin',
    '--gin_file=mini.gin',
    '--gin.train.steps=9',
    '--gin.train.seed=7',
    f'--workdir={tmp_path}/pretrained/wide/seed_7',
  )
  frozen = next(run for run in runs if 'freeze' in run.name and 'training 7' in run.name)
  assert frozen.needs == (pretraining.name,)
  assert f'--gin.train.init_from={tmp_path}/pretrained/wide/seed_7' in frozen.arguments
  assert frozen.arguments[-2:] == ('--gin.train.batch_size=4', '--gin.optimizer.freeze_embeddings=True')
  analysis = next(run for run in runs if run.name.startswith('analyze'))
  assert '--gin.analyze.seed=3' in analysis.arguments
  assert '--gin_file=gin/analyze_edge_probing.gin' in analysis.arguments


def test_layers_that_fine_tuning_drops_are_dropped_in_every_run_unless_a_variant_says_otherwise(benchmark_of, tmp_path):
  variants = ({}, {'RemBertConfig.num_hidden_layers': '3'})
  runs, _ = plan_sweep([model('deep', kept_layers=2)], benchmark_of('panx'), epath.Path(tmp_path), variants=variants)
  layers = lambda run: [argument for argument in run.arguments if argument.startswith('--gin.RemBert')]
  assert [layers(run) for run in runs] == [
    [],
    ['--gin.RemBertConfig.num_hidden_layers=2'],
    ['--gin.RemBertConfig.num_hidden_layers=3'],
  ]


def test_the_file_says_which_run_is_what_and_keeps_what_was_asked_before(benchmark_of, tmp_path):
  workdir = epath.Path(tmp_path)
  _, first = plan_sweep([model('wide')], benchmark_of('squad'), workdir)
  write_plan(first, ['wide', '--tasks=squad'], 'mini', workdir)
  more = {'pretrain_seeds': (1,), 'analyses': ('edge_probing',)}
  _, second = plan_sweep([model('wide'), model('narrow')], benchmark_of('panx'), workdir, **more)
  write_plan(second, ['both', '--tasks=panx'], 'mini', workdir)
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
      'evaluated': evaluated,
      'variant': '',
      'learning_rate': None,
      'workdir': f'learned/wide/pretrain_seed_{pretrain_seed}/as_it_is/{task}/rate_of_file/seed_0',
    }
    for pretrain_seed, task, evaluated in ((0, 'squad', ['xquad', 'mlqa']), (1, 'panx', ['panx']))
  ]
  assert narrow['analyses'] == [
    {'pretrain_seed': 1, 'what': 'edge_probing', 'workdir': 'analyses/narrow/pretrain_seed_1/edge_probing'}
  ]


def test_another_model_of_the_same_name_is_refused(benchmark_of, tmp_path):
  workdir = epath.Path(tmp_path)
  write_plan(plan_sweep([model('wide')], benchmark_of(), workdir)[1], [], 'mini', workdir)
  before = (tmp_path / 'sweep.json').read_text()
  _, other = plan_sweep([model('wide', settings={'a': '1'})], benchmark_of(), workdir)
  with pytest.raises(UsageError, match='has other files or settings'):
    write_plan(other, [], 'mini', workdir)
  assert (tmp_path / 'sweep.json').read_text() == before


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def arguments(tmp_path, xtreme_samples):
  """A sweep of two models, one task, one seed."""
  (tmp_path / 'model.gin').write_text(MODEL)
  (tmp_path / 'learning.gin').write_text(LEARNING)
  return [
    str(tmp_path / 'model.gin'),
    '--grid=RemBertConfig.output_embedding_size=48,96',
    f'--gin.data.store={tmp_path / "store"}',
    f'--data_dir={xtreme_samples.root}',
    '--tasks=panx',
    '--seeds=0',
    f'--finetune_gin_file={tmp_path / "learning.gin"}',
    f'--workdir={tmp_path / "sweep"}',
  ]


def test_a_dry_run_prints_the_commands_in_stages_and_writes_nothing(arguments, tmp_path, capsys):
  assert main([*arguments, '--dry_run', '--finetune_gin.train.log_every=5', '--gin.train.log_every=7']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line for line in lines if line.startswith('#')] == [
    '# 4 run(s), 0 already done',
    '# stage 1 of 2',
    '# stage 2 of 2',
  ]
  commands = [line for line in lines if line.startswith('python -m rembert.main ')]
  assert [command.count('train.log_every=7') for command in commands] == [1, 1, 0, 0]
  assert [command.count('train.log_every=5') for command in commands] == [0, 0, 1, 1]
  assert all('--gin.guards.diverged_nats=1.0' in command for command in commands[:2])
  assert not (tmp_path / 'sweep').exists()


def test_modules_are_imported_at_once_and_passed_on_to_every_run(arguments, capsys, monkeypatch):
  imported = []
  monkeypatch.setattr(sweep, 'import_modules', imported.extend)
  assert main([*arguments, '--analyses=edge_probing', '--module=calendar', '--module=string', '--dry_run']) == 0
  commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith('python')]
  assert len(commands) == 6
  assert imported == ['calendar', 'string']
  assert all(' --module=calendar --module=string ' in command for command in commands)


def test_a_scale_is_a_file_for_each_kind_of_run(arguments, capsys):
  experiment = ['gin/experiments/table4/in128_out128.gin', *arguments[2:], '--scale=mini', '--dry_run']
  assert main(experiment) == 0
  pretraining, learned = [line for line in capsys.readouterr().out.splitlines() if line.startswith('python')]
  assert '--gin_file=gin/scales/mini.gin' in pretraining
  assert '--gin_file=gin/scales/finetuning/mini.gin' in learned


@pytest.mark.parametrize(
  ('change', 'code', 'said'),
  [
    (['--tasks=glue'], 2, 'unknown task glue'),
    (['--gin.train.nothing=1'], 2, 'unknown name'),
    (['--grid=x'], 2, "invalid grid axis 'x'"),
    (['--learning_rates=fast'], 2, 'table10 or numbers'),
    (['--seed=0'], 2, 'unknown argument --seed=0'),
    (['--side_by_side=100000'], 2, 'runs in parallel on'),
    (['gin/no_such.gin'], 2, 'no gin file gin/no_such.gin'),
  ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(arguments, tmp_path, change, code, said, capsys):
  try:
    # A file has to be next to the other; of an option given twice the last one counts.
    ended_with = main([*change, *arguments] if change[0].endswith('.gin') else [*arguments, *change])
  except SystemExit as end:
    ended_with = end.code
  assert ended_with == code
  assert said in capsys.readouterr().err
  assert not (tmp_path / 'sweep').exists()


def test_data_is_asked_for_where_something_is_learned(arguments, capsys):
  without = [argument for argument in arguments if not argument.startswith('--data_dir')]
  with pytest.raises(SystemExit):
    main([*without, '--dry_run'])
  assert '--data_dir=DIR is missing' in capsys.readouterr().err
  assert main([*without, '--tasks=', '--dry_run']) == 0
  assert '# 2 run(s)' in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_is_killed_repeated_and_told_in_a_report(arguments, small_store, tmp_path):
  (tmp_path / 'store').symlink_to(small_store.folder)
  folder = tmp_path / 'sweep'
  command = [sys.executable, '-m', 'launch.sweep', *arguments]
  first = folder / 'pretrained' / 'model-output_embedding_size=48' / 'seed_0'
  with open(tmp_path / 'output', 'wb') as output:
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
  wait_for((first / 'checkpoints' / '50').exists, process, seconds=300)  # in the middle of the first pre-training
  os.kill(process.pid, signal.SIGKILL)
  process.wait()

  result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
  assert result.returncode == 0, result.stdout + result.stderr
  assert '4 run(s), 0 already done' in result.stdout
  assert 'resuming from step' in (first / 'log.txt').read_text()
  starts = json.loads((first / 'run.json').read_text())['starts']
  assert starts[-1]['exit_code'] == 0
  assert len(starts) == 2
  content = json.loads((folder / 'sweep.json').read_text())
  for model in content['models']:
    [learned] = model['learned']
    results = json.loads((folder / learned['workdir'] / 'results.json').read_text())
    assert set(results['tasks']['panx']) == {'de', 'en', 'zh'}
  page = (folder / 'report' / 'index.html').read_text()
  assert 'model-output_embedding_size=96' in page

  again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
  assert again.returncode == 0, again.stdout + again.stderr
  assert '4 run(s), 4 already done' in again.stdout
  assert len(json.loads((first / 'run.json').read_text())['starts']) == 2
