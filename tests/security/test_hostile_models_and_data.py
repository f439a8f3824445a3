"""Models and data made to harm: code in pickles, names of other people's files, sizes that are no sizes."""

import json
import os
import pathlib
import pickle
import re
import shutil
import struct
import subprocess
import sys

import pytest

from rembert.checkpoint.load import open_source
from rembert.convert.huggingface import open_weights
from rembert.data.token_store import MANIFEST, TokenStore
from rembert.errors import UsageError
from rembert.files import inside

OUTSIDE = (
  '../../etc/passwd',
  '/etc/passwd',
  'de/../../secret',
  'C:\\secret',
  '..\\secret',
  'gs://bucket/secret',
  '',
  'a//b',
)


class Bomb:
  """Unpickled, it makes a folder."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (str(self._path),)


@pytest.fixture
def exploded(tmp_path):
  """The folder that a bomb makes, which must not exist."""
  path = tmp_path / 'exploded'
  yield path
  assert not path.exists()


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', [*OUTSIDE, None, 3, 'a\0b'])
def test_a_name_that_leads_out_of_its_folder_is_refused(tmp_path, name):
  with pytest.raises(UsageError, match='leads out of its directory'):
    inside(tmp_path, name, where='manifest')


def test_a_name_below_its_folder_is_taken(tmp_path):
  for name in ('de/train-00000-of-00004.array_record', 'model.safetensors', 'a..b/c', 'ä'):
    assert inside(tmp_path, name, where='manifest') == tmp_path / name


def test_an_index_of_shards_reads_no_file_elsewhere(tmp_path):
  index = {'weight_map': {'rembert.embeddings.word_embeddings.weight': OUTSIDE[0]}}
  (tmp_path / 'model.safetensors.index.json').write_text(json.dumps(index))
  with pytest.raises(UsageError, match='leads out of its directory'):
    open_weights(tmp_path)


@pytest.fixture
def store(small_store, tmp_path):
  """A copy of the small store, and a function that changes its manifest."""
  folder = tmp_path / 'store'
  shutil.copytree(small_store.folder, folder)

  def change(alter):
    manifest = json.loads((folder / MANIFEST).read_text())
    alter(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder

  return change


def test_a_manifest_reads_no_file_elsewhere(store):
  folder = store(lambda manifest: manifest['languages']['sw']['shards']['train'][0].update(file=OUTSIDE[0]))
  with pytest.raises(UsageError, match='leads out of its directory'):
    TokenStore(folder)


@pytest.mark.parametrize(
  'alter',
  [
    lambda manifest: manifest.update(dtype='O'),  # Python objects: what `np.load` would unpickle
    lambda manifest: manifest.update(sequence_length=-1),
    lambda manifest: manifest.update(sequence_length='64'),
    lambda manifest: manifest.update(languages=[]),
    lambda manifest: manifest['languages']['sw'].update(shards={'train': [{'file': 'x', 'code': 'y'}]}),
    lambda manifest: manifest.pop('special'),
  ],
)
def test_a_malformed_manifest_is_an_error_without_a_traceback(store, alter):
  with pytest.raises(UsageError, match='malformed'):
    TokenStore(store(alter))


@pytest.mark.parametrize('content', [b'\xff\xfe', b'[' * 100_000, b'3', pickle.dumps({'format': 1})])
def test_a_manifest_that_is_not_json_is_an_error_without_a_traceback(tmp_path, content):
  (tmp_path / MANIFEST).write_bytes(content)
  with pytest.raises(UsageError):
    TokenStore(tmp_path)


# --- pickles ----------------------------------------------------------------------------------------------------------


def test_a_pickle_called_safetensors_runs_no_code(tmp_path, exploded):
  (tmp_path / 'model.safetensors').write_bytes(pickle.dumps(Bomb(exploded)))
  with pytest.raises(UsageError, match='damaged safetensors'):
    open_weights(tmp_path)


@pytest.mark.parametrize('size', [1 << 60, 1 << 31, 0, 10])
def test_safetensors_that_declare_a_size_they_have_not_are_refused(tmp_path, size):
  header = json.dumps({'a': {'dtype': 'F32', 'shape': [1 << 40], 'data_offsets': [0, 1 << 42]}}).encode()
  (tmp_path / 'model.safetensors').write_bytes(struct.pack('<Q', size) + header)
  with pytest.raises(UsageError, match='damaged safetensors'):
    open_weights(tmp_path)


def test_a_checkpoint_with_a_pickle_in_it_runs_no_code(saved, exploded):
  model = saved()
  for name in ('meta/metadata', 'state/manifest.ocdbt'):
    pathlib.Path(model.path, name).write_bytes(pickle.dumps(Bomb(exploded)))
  for read in (model.tensors['mlm/bias'].read, lambda: open_source(model.path)):
    with pytest.raises(UsageError, match='the checkpoint cannot be read'):
      read()


def test_a_vocabulary_with_a_pickle_in_it_runs_no_code(tmp_path, exploded):
  from rembert.tokenizer import load_vocabulary

  (tmp_path / 'sentencepiece.model').write_bytes(pickle.dumps(Bomb(exploded)))
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    load_vocabulary(str(tmp_path / 'sentencepiece.model'))


def test_the_linter_finds_code_that_would_run_text(root):
  """`make lint` refuses it in rembert, tasks and launch; `allow_pickle` it does not know."""
  lines = [
    'eval(text)',
    'pickle.loads(text)',
    'subprocess.run(text, shell=True)',
    'tar.extractall(text)',
    'yaml.load(text)',
  ]
  code = 'import pickle, subprocess, tarfile, yaml\n\n\ndef plot(text, tar):\n' + ''.join(
    f'  {line}\n' for line in lines
  )
  ruff = [sys.executable, '-m', 'ruff', 'check', '--no-cache', '--output-format=concise', '-']
  ruff.append('--stdin-filename=rembert/plot.py')
  checked = subprocess.run(ruff, input=code, cwd=root, capture_output=True, text=True, check=False, timeout=60)
  assert set(re.findall(r'plot\.py:(\d):\d+: S\d{3} ', checked.stdout)) >= set('56789'), checked


def test_nothing_in_the_project_reads_arrays_with_pickles(root):
  for folder in ('rembert', 'tasks', 'launch'):
    for file in (root / folder).rglob('*.py'):
      assert not re.search(r'allow_pickle=(?!False)', file.read_text()), file
