"""Files in buckets and on disks: told apart, and never seen half."""

import os
import socket

import pytest

from rembert import files
from rembert.errors import RunError, UsageError
from rembert.files import is_remote, parsed_json, write_whole


@pytest.mark.parametrize(
  ('path', 'is_in_bucket'), [('gs://bucket/run', True), ('runs/mine', False), ('/runs/mine', False)]
)
def test_a_bucket_is_known_by_its_scheme(path, is_in_bucket):
  assert is_remote(path) == is_in_bucket


def test_a_file_is_written_in_place_of_the_old_one_or_not_at_all(tmp_path, monkeypatch):
  def refuse(*_):
    raise OSError('no space left')

  file = tmp_path / 'folder' / 'file'
  write_whole(file, 'before')
  monkeypatch.setattr(os, 'replace', refuse)
  with pytest.raises(OSError, match='no space'):
    write_whole(file, b'after, cut')
  assert file.read_text() == 'before'
  monkeypatch.undo()
  write_whole(file, b'after')
  assert file.read_bytes() == b'after'
  assert [path.name for path in file.parent.iterdir()] == ['file']


def test_a_bucket_that_refuses_is_told_at_once_and_asked_once(monkeypatch):
  asked = []

  def refuse(address, timeout):
    asked.append(address)
    raise ConnectionRefusedError('refused')

  monkeypatch.setattr(socket, 'create_connection', refuse)
  for name in ('https_proxy', 'HTTPS_PROXY'):
    monkeypatch.delenv(name, raising=False)
  files.why_unreachable.cache_clear()
  assert [files.why_unreachable('gs://bucket/file') for _ in range(2)] == [
    'storage.googleapis.com cannot be reached (refused)'
  ] * 2
  assert files.why_unreachable('/local/file') == ''
  assert len(asked) == 1
  monkeypatch.setenv('https_proxy', 'http://proxy')
  assert files.why_unreachable('gs://bucket/behind-a-proxy') == ''
  files.why_unreachable.cache_clear()


def test_whatever_goes_wrong_in_writing_is_one_error_and_advice_is_left_as_it_is():
  def fail(error):
    with files.write_errors('the picture', 'runs/x.png', fix='make room'):
      raise error

  with pytest.raises(RunError, match='the picture could not be written: no space left') as caught:
    fail(OSError('no space left\non the device'))
  assert (caught.value.where, caught.value.fix, caught.value.exit_code) == ('runs/x.png', ['make room'], 1)
  with pytest.raises(RunError, match='written: KeyError'):
    fail(KeyError())
  with pytest.raises(UsageError, match='the folder exists'):
    fail(UsageError('the folder exists'))


def test_a_bucket_without_its_client_is_told_before_anything_is_written(monkeypatch):
  files.check_bucket_client('/runs/mine')
  monkeypatch.setattr(files.importlib.util, 'find_spec', lambda name: None)
  files.check_bucket_client('/runs/mine')
  with pytest.raises(UsageError, match='google-cloud-storage') as error:
    files.check_bucket_client('gs://bucket/run')
  assert 'pip install google-cloud-storage' in error.value.fix[0]


@pytest.mark.parametrize(
  ('text', 'what', 'where'),
  [
    ('{"a": [1,\n2', 'not JSON: Expecting', 'f.json:2'),
    (b'', 'not JSON: Expecting value', 'f.json:1'),
    (b'\xff{}', 'not UTF-8', 'f.json'),
    ('[' * 200_000 + ']' * 200_000, 'nested too deeply', 'f.json'),
    ('{"a":' * 200_000, 'nested too deeply', 'f.json'),
  ],
)
def test_what_is_no_json_is_told_with_file_and_line(text, what, where):
  with pytest.raises(UsageError, match=what) as error:
    parsed_json(text, 'f.json', fix='mend it')
  assert (error.value.where, error.value.fix) == (where, ['mend it'])


def test_json_is_read(tmp_path):
  assert parsed_json('{"a": [1, null]}', tmp_path / 'f.json') == {'a': [1, None]}
