"""gin in, dataclasses out; and errors for misspelt names."""

import dataclasses
import os
import shutil

import pytest
from etils import epath

import rembert
from rembert import configuration
from rembert.errors import UsageError
from rembert.jobs import pretrain
from rembert.model.config import RemBertConfig
from rembert.train.trainer import TrainConfig


def test_bindings_win_over_files_and_later_over_earlier():
  configuration.load(['gin/pretrain_smoke.gin'], ['train.steps=5', 'train.steps = 7'])
  assert configuration.build(TrainConfig).steps == 7
  assert configuration.build(RemBertConfig).hidden_size == 128


def test_later_files_win(tmp_path):
  (tmp_path / 'mine.gin').write_text("include 'gin/pretrain_smoke.gin'\ntrain.steps = 3\n")
  configuration.load([str(tmp_path / 'mine.gin')], [])
  assert configuration.build(TrainConfig).steps == 3
  configuration.load(['gin/pretrain_smoke.gin', str(tmp_path / 'mine.gin')], [])
  assert configuration.build(TrainConfig).steps == 3


def test_files_and_includes_are_found_from_any_folder_without_a_word(tmp_path, monkeypatch, caplog):
  monkeypatch.chdir(tmp_path)
  configuration.load(['gin/pretrain_large.gin'], [])
  assert pretrain.configured().model == dataclasses.replace(RemBertConfig(), pad_vocab_to_multiple_of=1024)
  assert not caplog.records


def test_files_and_includes_of_includes_are_found_in_an_installed_copy(tmp_path, monkeypatch, root):
  """The project as pip lays it out, seen from a folder next to it: package, gin files within, no repository."""
  package, elsewhere = tmp_path / 'site' / 'rembert', tmp_path / 'elsewhere'
  shutil.copytree(root / 'gin', package / 'gin_files' / 'gin')
  elsewhere.mkdir()
  monkeypatch.chdir(elsewhere)
  monkeypatch.setattr(rembert, '__file__', str(package / '__init__.py'))
  configuration.load(['gin/pretrain_large.gin'], [])
  config = pretrain.configured()
  assert config.model == dataclasses.replace(RemBertConfig(), pad_vocab_to_multiple_of=1024)
  assert config.data.languages == ('rembert',)  # from the included file
  configuration.load(['gin/models/english_in128_out768.gin'], [])  # english_base, which includes ablation_base
  model = configuration.build(RemBertConfig)
  assert (model.vocab_size, model.hidden_size, model.output_embedding_size) == (30_522, 768, 768)
  with pytest.raises(UsageError, match='no gin file gin/pretrain_smok') as caught:
    configuration.load(['gin/pretrain_smok.gin'], [])
  assert caught.value.fix == ['did you mean gin/pretrain_smoke.gin?']


def test_a_required_field_is_an_error_until_it_is_set(tmp_path):
  (tmp_path / 'base.gin').write_text(
    'RemBertConfig.hidden_size = %gin.REQUIRED\nRemBertConfig.num_attention_heads = 2\n'
  )
  configuration.load([str(tmp_path / 'base.gin')], [])
  with pytest.raises(UsageError, match='meant to be included') as caught:
    configuration.build(RemBertConfig)
  assert caught.value.where == 'RemBertConfig.hidden_size'
  configuration.load([str(tmp_path / 'base.gin')], ['RemBertConfig.hidden_size=6'])
  assert configuration.build(RemBertConfig).hidden_size == 6


@pytest.mark.parametrize(
  ('binding', 'message', 'fix'),
  [
    ('train.stepz=1', 'unknown name train.stepz', 'did you mean train.steps?'),
    ('RemBertConfg.hidden_size=1', 'unknown name RemBertConfg', 'did you mean RemBertConfig?'),
    ('train.steps=[1', 'cannot be read', 'gin syntax'),
    ('train.steps=many', 'must be a whole number', ''),
    ('RemBertConfig.num_attention_heads=5', 'not divisible by 5 attention heads', '4 or 8'),
    ('RemBertConfig.hidden_act=relu', 'one of gelu, gelu_tanh', '--gin.RemBertConfig.hidden_act'),
    ('RemBertConfig.tie_word_embeddings=True', 'tied embeddings must have equal sizes', 'output_embedding_size'),
    ('execution.attention=cudnn', 'computes in bfloat16, not float32', '--gin.execution.dtype=bfloat16'),
  ],
)
def test_an_invalid_binding_is_an_error_with_a_fix(binding, message, fix):
  def configure():
    configuration.load(['gin/pretrain_smoke.gin'], [binding])
    pretrain.configured()

  with pytest.raises(UsageError) as caught:
    configure()
  assert message in str(caught.value)
  assert fix in str(caught.value)
  assert 'configurable' not in str(caught.value)


def test_a_missing_include_is_an_error_with_the_including_file(tmp_path):
  (tmp_path / 'mine.gin').write_text("include 'nowhere.gin'\n")
  with pytest.raises(UsageError, match=r'nowhere\.gin') as caught:
    configuration.load([str(tmp_path / 'mine.gin')], [])
  assert 'mine.gin' in caught.value.where


@pytest.mark.parametrize(
  ('typed', 'read'),
  [
    ('a.b=dev', "a.b = 'dev'"),
    ('a.b=/data/dumps', "a.b = '/data/dumps'"),
    ('a.b=../dumps/*.bz2', "a.b = '../dumps/*.bz2'"),
    ('a.b=gs://bucket/x', "a.b = 'gs://bucket/x'"),
    ('a.b=2023-05', "a.b = '2023-05'"),
    ("a.b='dev'", "a.b = 'dev'"),
    ('a.b=1e-4', 'a.b = 1e-4'),
    ('a.b=-1', 'a.b = -1'),
    ('a.b=.5', 'a.b = .5'),
    ('a.b=None', 'a.b = None'),
    ("a.b=('en', 'de')", "a.b = ('en', 'de')"),
    ('a.b=@name', 'a.b = @name'),
    ('a.b=%MACRO', 'a.b = %MACRO'),
  ],
)
def test_strings_need_no_second_pair_of_quotes(typed, read):
  assert configuration.quoted_if_bare(typed) == read


MICRO = ('gin/experiments/table5/layers23to12.gin', 'gin/scales/micro.gin')


@pytest.mark.parametrize(
  ('gin_files', 'binding'),
  [(['gin/pretrain_smoke.gin'], 'data.languages=en,sw'), (MICRO, 'STEPS=7')],
  ids=['smoke', 'micro'],
)
def test_what_is_saved_builds_the_same_run_again(gin_files, binding, tmp_path):
  configuration.load(gin_files, ['train.seed=3', binding])
  config = pretrain.configured()
  configuration.save(epath.Path(tmp_path))
  for name in ('config.gin', 'operative_config.gin'):
    configuration.load([os.fspath(tmp_path / name)], [])
    assert pretrain.configured() == config, name


def test_old_names_of_fields_are_read_with_a_warning(tmp_path, capsys):
  (tmp_path / 'old.gin').write_text('finetune.judge_batch_size = 8\n')
  configuration.load([os.fspath(tmp_path / 'old.gin')], ['finetune.warmup_share=0.2'])
  assert configuration.bound(configuration.FinetuneOptions) == {'eval_batch_size': 8, 'warmup_ratio': 0.2}
  said = capsys.readouterr().err.splitlines()
  assert said[0] == f'rembert: warning: finetune.judge_batch_size is now finetune.eval_batch_size ({tmp_path}/old.gin)'
  assert said[1].startswith('rembert: warning: finetune.warmup_share is now finetune.warmup_ratio (--gin.')
