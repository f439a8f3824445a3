"""The command line of the converter: what it writes, what it says, and that nothing is written where it refuses."""

import json
import pathlib
import re
import shutil

import pytest
from sentencepiece import sentencepiece_model_pb2

from rembert import configuration
from rembert.checkpoint.load import import_model, open_source
from rembert.convert.__main__ import main
from rembert.model.config import RemBertConfig


@pytest.fixture
def run(random_run):
  return random_run


@pytest.fixture(scope='module')
def exported(random_run, tmp_path_factory):
  """The same in a directory of Hugging Face, not to be changed."""
  folder = tmp_path_factory.mktemp('exported') / 'there'
  assert main(['to_hf', str(random_run), str(folder)]) == 0
  return folder


def test_there_and_back_again(run, exported, tmp_path, capsys, assert_same):
  back = tmp_path / 'back'
  assert {file.name for file in exported.iterdir()} == {
    'README.md',
    'config.json',
    'model.safetensors',
    'sentencepiece.model',
    'special_tokens_map.json',
    'tokenizer.json',
    'tokenizer_config.json',
  }
  assert main(['from_hf', str(exported), str(back)]) == 0
  assert 'left out        nothing' in capsys.readouterr().out
  before, after = open_source(run), open_source(back)
  assert after.config == before.config
  assert after.meta['converted_from'] == 'there'
  assert_same(import_model(after).leaves, import_model(before).leaves)
  assert after.vocabulary.read_bytes() == before.vocabulary.read_bytes()
  configuration.load([str(back / 'config.gin')], [])
  assert configuration.build(RemBertConfig) == before.config


def test_the_model_card_holds_the_facts_and_no_path(run, exported):
  card = (exported / 'README.md').read_text()
  assert card.startswith('---\nlibrary_name: transformers\n')
  assert 'pipeline_tag: fill-mask' in card
  assert '3 × 32, 4 heads' in card
  assert re.search(r'parameters in pre-training \| [\d,]+ \|', card)
  assert str(exported.parent) not in card
  assert str(run.parent) not in card


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['to_hf', 'nowhere', 'new'], 'no model found'),
    (['to_hf', 'run', 'new', '--step=7'], 'no checkpoint of step 7'),
    (['to_hf', 'run', 'new', '--head=qa'], 'not for qa'),
    (['to_hf', 'run', 'gs://bucket/new'], 'local disks'),
    (['to_hf', 'run', 'run'], 'the destination exists'),
    (['from_hf', 'run', 'new'], 'no model found'),
    (['from_hf', 'there', 'run'], 'the destination holds checkpoints'),
    (['from_hf', 'there', 'new', '--head=tagging'], 'no head for tagging'),
    (['from_hf', 'there', 'new', '--vocabulary=there/config.json'], 'not a SentencePiece model'),
  ],
  ids=lambda part: ' '.join(part) if isinstance(part, list) else None,
)
def test_impossible_conversions_are_errors_and_write_nothing(
  saved_with_vocabulary, exported, tmp_path, monkeypatch, capsys, arguments, words
):
  monkeypatch.chdir(tmp_path)
  shutil.copytree(exported, 'there')
  before = sorted(path for path in tmp_path.rglob('*'))
  assert main(arguments) == 2
  error = capsys.readouterr().err
  assert words in error
  assert '  fix ' in error
  assert sorted(path for path in tmp_path.rglob('*')) == before


def test_the_head_is_left_behind_and_another_vocabulary_taken_where_that_is_asked_for(run, tmp_path, capsys):
  other = shutil.copy(run / 'vocabulary' / 'sentencepiece.model', tmp_path / 'other.model')
  proto = sentencepiece_model_pb2.ModelProto.FromString(pathlib.Path(other).read_bytes())
  proto.pieces[-1].piece = 'ꙮ'
  pathlib.Path(other).write_bytes(proto.SerializeToString())
  assert main(['to_hf', str(run), str(tmp_path / 'there'), '--head=none', f'--vocabulary={other}']) == 0
  assert 'tokenizer    written' in capsys.readouterr().out
  assert json.loads((tmp_path / 'there' / 'config.json').read_text())['architectures'] == ['RemBertModel']
  assert (tmp_path / 'there' / 'sentencepiece.model').read_bytes() == pathlib.Path(other).read_bytes()


def test_the_card_has_the_evaluation_of_its_own_step(run, tmp_path):
  shutil.copytree(run, tmp_path / 'run')
  rows = [{'step': step, 'eval/loss': loss, 'eval/accuracy': 0.5} for step, loss in ((0, 2.125), (9, 1.125))]
  (tmp_path / 'run' / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  assert main(['to_hf', str(tmp_path / 'run'), str(tmp_path / 'there')]) == 0
  card = (tmp_path / 'there' / 'README.md').read_text()
  assert '2.125' in card
  assert '1.125' not in card


def test_a_disk_that_fills_up_costs_nothing(exported, tmp_path, monkeypatch, capsys):
  from rembert.checkpoint import load

  def fail(*_, **__):
    raise OSError('no space left on device')

  (tmp_path / 'mine').mkdir()
  (tmp_path / 'mine' / 'notes').write_text('precious')
  with monkeypatch.context() as full:
    full.setattr(load, 'save_model', fail)
    for destination in 'new', 'mine':
      assert main(['from_hf', str(exported), str(tmp_path / destination)]) == 1
      assert 'the workdir could not be written: no space left on device' in capsys.readouterr().err
  assert not (tmp_path / 'new').exists()
  assert (tmp_path / 'mine' / 'notes').read_text() == 'precious'
  assert main(['from_hf', str(exported), str(tmp_path / 'mine')]) == 0
