"""Models of the Hugging Face Hub, against a server of this machine: downloaded, uploaded, and all that can be wrong."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from hub_server import TOKEN, serve_hub
from random_checkpoints import LABELS, leaves_of

import rembert
from rembert.checkpoint.load import architecture, import_model, open_described, open_source
from rembert.convert.__main__ import main
from rembert.convert.huggingface import export
from rembert.errors import UsageError
from rembert.main import main as rembert_main

NAME = 'some-lab/tiny.rembert'


@pytest.fixture
def server(use_hub):
  with serve_hub() as served:
    use_hub(served.url)
    yield served


@pytest.fixture(scope='module')
def folder(random_run, tmp_path_factory):
  """An export of `random_run` in shards, with what else is in repositories; not to be changed."""
  exported = tmp_path_factory.mktemp('hub') / 'exported'
  export(open_source(random_run), exported, shard_bytes=60_000)
  return exported


@pytest.fixture(scope='module')
def files(folder):
  more = {'pytorch_model.bin': b'large', 'onnx/model.onnx': b'large', 'onnx/model.safetensors': b'large'}
  return {file.name: file.read_bytes() for file in folder.iterdir()} | more


def parameters(model):
  return {path: tensor.read() for path, tensor in model.tensors.items()}


# --- downloads --------------------------------------------------------------------------------------------------------


def test_a_model_is_named_by_its_id_and_downloaded_once_without_what_is_not_needed(server, folder, files, assert_same):
  server.add(NAME, files)
  model = open_source(NAME)
  assert_same(parameters(model), parameters(open_source(folder)))
  assert model.vocabulary.read_bytes() == files['sentencepiece.model']
  wanted = {name for name in files if name.endswith(('.safetensors', 'index.json')) and '/' not in name}
  wanted |= {'config.json', 'sentencepiece.model', 'tokenizer.json', 'tokenizer_config.json'}
  assert set(server.downloads()) == wanted
  count = len(server.downloads())
  open_source(NAME)
  assert len(server.downloads()) == count


def test_a_revision_is_what_it_was(server, files):
  first = server.add(NAME, files)
  changed = json.loads(files['config.json']) | {'layer_norm_eps': 1e-5}
  server.add(NAME, {'config.json': json.dumps(changed).encode()})
  assert architecture(NAME).layer_norm_eps == 1e-5
  assert architecture(f'{NAME}@{first}').layer_norm_eps != 1e-5


def test_the_architecture_is_read_without_the_weights(server, folder, files):
  server.add(NAME, files)
  described = open_described(NAME)
  assert architecture(NAME) == described.config == open_source(folder).config
  assert server.downloads() == ['config.json']
  expected = {name: tensor.shape for name, tensor in open_source(folder).tensors.items()}
  assert {name: tensor.shape for name, tensor in described.tensors.items() if 'pooler' not in name} == expected


def test_a_dry_run_fetches_the_configuration_alone(server, files, tmp_path, capsys):
  server.add(NAME, files)
  config = dataclasses.asdict(architecture(NAME))
  bindings = [f'--gin.RemBertConfig.{name}={value!r}' for name, value in config.items()]
  flags = [
    '--gin_file=gin/pretrain_smoke.gin',
    f'--gin.train.init_from={NAME}',
    f'--workdir={tmp_path / "run"}',
    '--gin.train.sequence_length=48',
  ]
  assert rembert_main([*flags, *bindings, '--dry_run']) == 0
  assert f'the parameters of {NAME} fit' in capsys.readouterr().out
  assert server.downloads() == ['config.json']


def test_weights_are_asked_where_the_configuration_does_not_tell_the_architecture(server, saved, tmp_path):
  model = saved('mlm', input_embedding_size=32)  # as wide as the layers: theirs has a projection, ours has none
  export(model, tmp_path / 'exported')
  server.add(NAME, {file.name: file.read_bytes() for file in (tmp_path / 'exported').iterdir()})
  assert architecture(NAME) == model.config


def test_a_download_that_breaks_off_is_resumed(server, folder, files, assert_same, monkeypatch):
  monkeypatch.setattr('huggingface_hub.file_download.time.sleep', lambda seconds: None)
  server.add(NAME, files)
  server.breaks_after = [1000] * 4
  assert_same(parameters(open_source(NAME)), parameters(open_source(folder)))
  assert len(server.downloads()) > len(set(server.downloads()))


def test_without_a_network_only_the_cache_is_used(use_hub, folder, files, assert_same):
  with serve_hub() as served:
    use_hub(served.url)
    served.add(NAME, files)
    served.add('some-lab/other', files)
    open_source(NAME)
    architecture('some-lab/other')
  for is_offline, reason in (True, 'HF_HUB_OFFLINE is set'), (False, 'the Hub cannot be reached'):
    use_hub(served.url, is_offline=is_offline)  # whose port is closed
    assert_same(parameters(open_source(NAME)), parameters(open_source(folder)))
    for name in 'some-lab/never-seen', 'some-lab/other':  # of which the weights are missing
      with pytest.raises(UsageError, match=reason) as caught:
        open_source(name)
      assert 'no model found: no local directory has this name' in caught.value.what
      assert name in caught.value.where


@pytest.mark.parametrize(
  ('name', 'token', 'what', 'fix'),
  [
    ('some-lab/absent', None, 'no such model, or it is private', 'check the id'),
    ('some-lab/private', None, 'no such model, or it is private', 'hf auth login'),
    ('some-lab/gated', TOKEN, 'asks to accept conditions', '/some-lab/gated'),
    (f'{NAME}@v9', None, 'no revision v9', 'a branch, a tag or a commit'),
    (NAME, 'hf_of_yesterday', 'refuses the token', 'hf auth login'),
    ('some-lab/tiny--rembert', None, 'not an id of the Hub', 'org/name'),
    ('some-lab/torch', None, 'no model*.safetensors', 'save_pretrained'),
    ('some-lab/empty', None, 'no config.json', 'some-lab/empty@REVISION'),
  ],
)
def test_a_wrong_id_is_one_error_that_says_what_was_asked_and_what_to_do(
  server, use_hub, files, name, token, what, fix
):
  use_hub(server.url, token)
  for model in NAME, 'some-lab/private', 'some-lab/gated':
    server.add(model, files)
  server.private.add('some-lab/private')
  server.gated.add('some-lab/gated')
  server.add('some-lab/torch', {'config.json': files['config.json'], 'pytorch_model.bin': b'x'})
  server.add('some-lab/empty', {'README.md': b'x'})
  with pytest.raises(UsageError, match=re.escape(what)) as caught:
    open_source(name)
  assert name in caught.value.where
  assert any(fix in line for line in caught.value.fix)


def test_a_private_model_is_downloaded_with_the_token_which_the_storage_does_not_see(server, use_hub, files):
  server.add(NAME, files)
  server.private.add(NAME)
  use_hub(server.url, TOKEN)
  assert open_source(NAME).head == 'mlm'


def test_a_local_folder_wins(server, folder, files, tmp_path, monkeypatch):
  server.add(NAME, files)
  monkeypatch.chdir(tmp_path)
  shutil.copytree(folder, NAME)
  assert open_source(NAME).path == NAME
  shutil.rmtree(NAME)
  pathlib.Path(NAME).mkdir()
  with pytest.raises(UsageError, match='no model found'):
    open_source(NAME)
  assert server.requests == []


@pytest.mark.parametrize('path', ['runs', '../runs/a', './runs', '/runs/a', 'a/b/c', 'a/b@', 'a/', '~/a'])
def test_paths_that_are_no_ids_are_not_looked_up(server, path):
  with pytest.raises(UsageError, match='no model found'):
    open_source(path)
  assert server.requests == []


# --- uploads ----------------------------------------------------------------------------------------------------------


def test_a_run_is_pushed_and_loaded_back_bit_exactly(server, use_hub, random_run, tmp_path, capsys, assert_same):
  use_hub(server.url, TOKEN)
  assert (
    main(['to_hf', str(random_run), str(tmp_path / 'out'), f'--push={NAME}', '--private', '--shard_gb=0.00006']) == 0
  )
  assert f'{server.url}/{NAME}' in capsys.readouterr().out
  assert server.private == {NAME}
  [_, commit] = server.models[NAME].values()
  assert commit == {file.name: file.read_bytes() for file in (tmp_path / 'out').iterdir()}
  assert f"'{NAME}'" in commit['README.md'].decode()
  assert sum(request.startswith('PUT /lfs/') for request in server.requests) > 3
  assert main(['from_hf', NAME, str(tmp_path / 'back')]) == 0
  back = open_source(tmp_path / 'back')
  assert back.meta['converted_from'] == NAME
  assert_same(parameters(back), parameters(open_source(random_run)))


@pytest.mark.parametrize('head', [None, 'tagging'])
def test_a_loaded_model_is_pushed_as_it_is_now(server, use_hub, saved, assert_same, head):
  use_hub(server.url, TOKEN)
  source = saved(head)
  model = rembert.load(source.path, head)
  model.encoder.embeddings.norm.bias[...] += 1
  server.add(NAME, {'model-00001-of-00002.safetensors': b'', 'model.safetensors.index.json': b'{}', 'LICENSE': b''})
  assert model.push_to_hub(NAME) == f'{server.url}/{NAME}'
  assert server.private == set()
  expected = leaves_of(source)
  expected['encoder/embeddings/norm/bias'] += 1
  pushed = import_model(open_source(NAME))
  assert_same(pushed.leaves, expected)
  assert (pushed.head, pushed.labels) == (head, source.labels)
  newest = list(server.models[NAME].values())[-1]
  assert [name for name in newest if 'safetensors' in name] == ['model.safetensors']
  assert 'LICENSE' in newest


@pytest.mark.parametrize(
  ('arguments', 'token', 'words'),
  [
    ([f'--push={NAME}'], None, 'requires a token'),
    ([f'--push={NAME}'], 'hf_of_yesterday', 'refuses the token'),
    ([f'--push={NAME}@main'], TOKEN, 'uploaded to the main branch'),
    (['--push=rembert'], TOKEN, 'not an id'),
    (['--private'], TOKEN, '--push=ORG/NAME'),
  ],
)
def test_a_push_that_is_impossible_is_an_error(server, use_hub, random_run, tmp_path, capsys, arguments, token, words):
  use_hub(server.url, token)
  assert main(['to_hf', str(random_run), str(tmp_path / 'out'), *arguments]) == 2
  assert words in capsys.readouterr().err
  assert (tmp_path / 'out').exists() == ('refuses' in words)
  assert server.models == {}


def test_the_card_of_a_tagger_has_what_the_hub_reads(saved, tmp_path):
  from huggingface_hub import ModelCard

  model = saved('tagging')
  run = {'xtreme.task': 'panx', 'xtreme.train_language': 'en', 'train.init_from': None, 'optimizer.learning_rate': 1e-5}
  model = dataclasses.replace(model, meta=model.meta | run)
  scores = {'de': {'f1': 51.25}, 'no': {'f1': 50.0}, 'fa': None}
  results = {language: {'scores': of_language} for language, of_language in scores.items()}
  content = {'step': 0, 'split': 'test', 'tasks': {'panx': results}, 'mean': {'panx': {'f1': 50.6}}}
  (model.workdir / 'results.json').write_text(json.dumps(content))
  export(model, tmp_path / 'exported', name=NAME)
  card = ModelCard.load(tmp_path / 'exported' / 'README.md')
  assert card.data.language == ['de', 'en', 'no']
  assert card.data.pipeline_tag == 'token-classification'
  assert card.data.tags == ['rembert', 'panx']
  assert card.data.metrics == ['f1']
  assert card.data.labels == list(LABELS)
  assert [(result.dataset_config, result.dataset_split, result.metric_value) for result in card.data.eval_results] == [
    ('de', 'test', 51.25),
    ('no', 'test', 50.0),
  ]
  assert '`B-PER`' in card.text


# --- as a program -----------------------------------------------------------------------------------------------------


def test_the_variables_of_huggingface_hub_are_in_force(server, files, root, tmp_path):
  server.add(NAME, files)
  server.private.add(NAME)
  environment = {name: value for name, value in os.environ.items() if not name.startswith('HF_')}
  environment |= {'HF_ENDPOINT': server.url, 'HF_HOME': str(tmp_path / 'home'), 'HF_TOKEN': TOKEN, 'NO_PROXY': '*'}
  code = 'import sys; from rembert.convert import hub; print(hub.download(sys.argv[1], config_only=True))'
  run = lambda: subprocess.run([sys.executable, '-c', code, NAME], cwd=root, env=environment, capture_output=True)
  online = run()
  assert online.stdout.decode().startswith(str(tmp_path / 'home')), online.stderr.decode()
  count = len(server.requests)
  environment['HF_HUB_OFFLINE'] = '1'
  assert run().stdout == online.stdout
  assert len(server.requests) == count
