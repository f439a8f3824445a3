"""Which models come out of files and a grid."""

import gin
import pytest

from launch.sweep.models import gin_files_of, grid_of, models_of
from rembert.errors import UsageError

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
  assert grid_of([], '--grid') == [{}]
  assert grid_of(['a.b=1,2', 'c.d=x'], '--grid') == [{'a.b': '1', 'c.d': 'x'}, {'a.b': '2', 'c.d': 'x'}]
  for broken in ('a.b', '=1', 'a b=1', 'a.b='):
    with pytest.raises(UsageError, match='no axis of a grid') as error:
      grid_of([broken], '--finetune_grid')
    assert '--finetune_grid' in str(error.value)


def test_the_same_configuration_is_one_model_of_several_rows(gin_file):
  row = lambda table, name: (f'paper.table = {table}', f"paper.row = '{name}'")
  wide = 'RemBertConfig.output_embedding_size = 96'
  files = [
    gin_file('table4/wide.gin', wide, *row(4, 'in128_out768')),
    gin_file('table6/also_wide.gin', wide, *row(6, 'in128_out768')),
    gin_file('table6/other.gin'),
  ]
  first, second = models_of(files, [{}], [], TINY)
  assert (first.name, first.rows) == ('wide', ((4, 'in128_out768'), (6, 'in128_out768')))
  assert (second.name, second.rows) == ('other', ())
  assert first.gin_files == (files[0],)
  assert first.bindings == tuple(TINY)
  [at_a_point] = models_of(files[:1], [{'train.steps': '7'}], [], TINY)
  assert at_a_point.rows == ()


def test_the_rows_of_the_paper_are_ten_models(root):
  files = gin_files_of([f'gin/experiments/table{number}' for number in (2, 3, 4, 5, 6, 12)])
  models = {model.name: model for model in models_of(files, [{}], ['gin/scales/mini.gin'], [])}
  assert len(models) == 10
  assert [table for table, _ in models['in128_out768'].rows] == [3, 4, 5, 6]
  assert models['layers23to12'].kept_layers == 4
  assert models['layers23'].kept_layers is None


def test_layers_that_are_dropped_after_pre_training_make_another_model(gin_file):
  files = [gin_file('table5/a.gin'), gin_file('table5/b.gin', 'paper.kept_layers = 2')]
  whole, dropped = models_of(files, [{}], [], TINY)
  assert (whole.kept_layers, dropped.kept_layers) == (None, 2)


def test_files_of_one_name_have_their_folder_in_theirs(gin_file):
  files = [gin_file('one/a.gin'), gin_file('two/a.gin', 'train.steps = 7')]
  assert [model.name for model in models_of(files, [{}], [], TINY)] == ['a', 'two-a']


def test_a_grid_names_its_models_and_wins_over_all_other_bindings(gin_file):
  grid = grid_of(['RemBertConfig.output_embedding_size=48,96'], '--grid')
  models = models_of([gin_file('a.gin')], grid, [], [*TINY, 'RemBertConfig.output_embedding_size=64'])
  assert [model.name for model in models] == ['a-output_embedding_size=48', 'a-output_embedding_size=96']
  assert models[1].settings == {'RemBertConfig.output_embedding_size': '96'}
  assert models[1].bindings[-1] == 'RemBertConfig.output_embedding_size=96'
  assert models[1].rows == ()


def test_what_does_not_fit_is_told_with_its_file_and_its_place_in_the_grid(gin_file):
  grid = grid_of(['RemBertConfig.num_attention_heads=4,5'], '--grid')
  file = gin_file('a.gin')
  with pytest.raises(UsageError) as error:
    models_of([file], grid, [], TINY[:1])
  assert f'{file} RemBertConfig.num_attention_heads=5' in str(error.value)


def test_folders_stand_for_their_files(gin_file, tmp_path):
  files = [gin_file('rows/b.gin'), gin_file('rows/deep/a.gin')]
  assert gin_files_of([str(tmp_path / 'rows'), files[0]]) == files
  (tmp_path / 'empty').mkdir()
  with pytest.raises(UsageError, match='no gin file in this folder'):
    gin_files_of([str(tmp_path / 'empty')])
  with pytest.raises(UsageError, match='no gin file'):
    gin_files_of(['gin/pretrain_smokes.gin'])
