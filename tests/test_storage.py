"""Files in buckets and on disks: told apart, and never seen half."""

import os
import socket

import pytest

from rembert import storage
from rembert.errors import RunError, UsageError
from rembert.storage import is_remote, write_whole


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
  storage.why_unreachable.cache_clear()
  assert [storage.why_unreachable('gs://bucket/file') for _ in range(2)] == [
    'storage.googleapis.com cannot be reached (refused)'
  ] * 2
  assert storage.why_unreachable('/local/file') == ''
  assert len(asked) == 1
  monkeypatch.setenv('https_proxy', 'http://proxy')
  assert storage.why_unreachable('gs://bucket/behind-a-proxy') == ''
  storage.why_unreachable.cache_clear()


def test_whatever_goes_wrong_in_writing_is_one_error_and_advice_is_left_as_it_is():
  def fail(error):
    with storage.write_errors('the picture', 'runs/x.png', fix='make room'):
      raise error

  with pytest.raises(RunError, match='the picture could not be written: no space left') as caught:
    fail(OSError('no space left\non the device'))
  assert (caught.value.where, caught.value.fix, caught.value.exit_code) == ('runs/x.png', ['make room'], 1)
  with pytest.raises(RunError, match='written: KeyError'):
    fail(KeyError())
  with pytest.raises(UsageError, match='the folder exists'):
    fail(UsageError('the folder exists'))


def test_a_bucket_without_its_client_is_told_before_anything_is_written(monkeypatch):
  storage.check_bucket_client('/runs/mine')
  monkeypatch.setattr(storage.importlib.util, 'find_spec', lambda name: None)
  storage.check_bucket_client('/runs/mine')
  with pytest.raises(UsageError, match='google-cloud-storage') as error:
    storage.check_bucket_client('gs://bucket/run')
  assert 'pip install google-cloud-storage' in error.value.fix[0]
