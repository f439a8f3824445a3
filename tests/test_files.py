"""Files in buckets and on disks: told apart, and never seen half."""

import gzip
import os
import pathlib
import socket

import pytest

from rembert import files
from rembert.errors import RunError, UsageError
from rembert.files import check_folder, check_output, is_remote, parsed_json, read_text, write_whole


def test_a_bucket_is_known_by_its_scheme():
  assert [is_remote(path) for path in ('gs://bucket/run', 'runs/mine', '/runs/mine')] == [True, False, False]


def test_a_file_is_written_in_place_of_the_old_one_or_not_at_all(tmp_path, monkeypatch):
  def stop(*_):
    raise KeyboardInterrupt

  file = tmp_path / 'folder' / 'file'
  write_whole(file, 'before')
  monkeypatch.setattr(os, 'replace', stop)
  with pytest.raises(KeyboardInterrupt):
    write_whole(file, b'after, cut')
  assert [(path.name, path.read_text()) for path in file.parent.iterdir()] == [('file', 'before')]
  monkeypatch.undo()
  write_whole(file, b'after')
  assert file.read_bytes() == b'after'


def test_an_unreachable_bucket_is_an_error_at_once_after_one_attempt(monkeypatch):
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
    with files.write_errors('the picture', 'runs/x.png', fix='free some space'):
      raise error

  with pytest.raises(RunError, match='the picture could not be written: no space left') as caught:
    fail(OSError('no space left\non the device'))
  assert (caught.value.where, caught.value.fix, caught.value.exit_code) == ('runs/x.png', ['free some space'], 1)
  with pytest.raises(RunError, match='written: ValueError'):  # of TensorStore
    fail(ValueError())
  with pytest.raises(ZeroDivisionError):  # of ours: no storage divides
    fail(ZeroDivisionError())
  with pytest.raises(UsageError, match='the folder exists'):
    fail(UsageError('the folder exists'))


def test_a_bucket_without_its_client_is_an_error_before_anything_is_written(monkeypatch):
  files.check_bucket_client('/runs/mine')
  monkeypatch.setattr(files.importlib.util, 'find_spec', lambda name: None)
  files.check_bucket_client('/runs/mine')
  with pytest.raises(UsageError, match='google-cloud-storage') as error:
    files.check_bucket_client('gs://bucket/run')
  assert 'pip install google-cloud-storage' in error.value.fix[0]


@pytest.mark.parametrize(
  ('text', 'what', 'where'),
  [
    ('{"a": [1,\n2', 'invalid JSON: Expecting', 'f.json:2'),
    (b'', 'invalid JSON: Expecting value', 'f.json:1'),
    (b'\xff{}', 'not UTF-8', 'f.json'),
    ('[' * 200_000 + ']' * 200_000, 'nested too deeply', 'f.json'),
    ('{"a":' * 200_000, 'nested too deeply', 'f.json'),
  ],
)
def test_invalid_json_is_an_error_with_file_and_line(text, what, where):
  with pytest.raises(UsageError, match=what) as error:
    parsed_json(text, 'f.json', fix='fix it')
  assert (error.value.where, error.value.fix) == (where, ['fix it'])


# --- text from outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('content', 'what', 'line', 'fix'),
  [
    ('Wörter'.encode('utf-16'), 'is UTF-16, not UTF-8', '', 'iconv -f UTF-16 -t UTF-8'),
    (gzip.compress('Wörter'.encode()), 'is gzip, not UTF-8', '', 'gunzip --keep'),
    (b'BZh91AY&SY\xff', 'is bzip2', '', 'bunzip2'),
    (b'\xfd7zXZ\x00', 'is xz', '', 'unxz'),
    ('ein\nWörter'.encode('latin-1'), 'is not UTF-8: invalid', ':2', 'iconv -f LATIN1'),
  ],
  ids=['utf-16', 'gzip', 'bzip2', 'xz', 'latin-1'],  # gzip writes the time: without names, workers collect two tests
)
def test_text_that_is_not_utf8_is_an_error_with_its_format(tmp_path, content, what, line, fix):
  file = tmp_path / 'text'
  file.write_bytes(content)
  with pytest.raises(UsageError, match=what) as error:
    read_text(file)
  assert error.value.where == f'{file}{line}'
  assert fix in error.value.fix[0]


def test_text_that_cannot_be_opened_is_an_error_with_the_reason(tmp_path):
  (tmp_path / 'dangling').symlink_to(tmp_path / 'nowhere')
  (tmp_path / 'circle').symlink_to(tmp_path / 'circle')
  for name, what in {
    'absent': 'does not exist',
    '.': 'is a directory',
    'dangling': 'links to .*nowhere, which does not exist',
    'circle': 'Too many levels of symbolic links',
  }.items():
    with pytest.raises(UsageError, match=f'a list {what}|a list cannot be read: {what}') as error:
      read_text(tmp_path / name, what='a list')
    assert error.value.where == str(tmp_path / name)


def test_a_byte_order_mark_is_no_text(tmp_path):
  (tmp_path / 'text').write_bytes(b'\xef\xbb\xbfW\xc3\xb6rter')
  assert read_text(tmp_path / 'text') == 'Wörter'


# --- places to write to -----------------------------------------------------------------------------------------------


def test_a_place_to_write_to_is_tried_before_work_begins_and_nothing_is_left(tmp_path):
  check_folder(tmp_path / 'new' / 'folder', 'the run', fix='--workdir=DIR')
  check_output(tmp_path / 'new' / 'file', '--output')
  assert not list(tmp_path.iterdir())
  (tmp_path / 'file').write_text('')
  for folder in (tmp_path / 'file', tmp_path / 'file' / 'below', pathlib.Path('/proc/run')):
    with pytest.raises(UsageError, match='the run cannot be written to') as error:
      check_folder(folder, 'the run', fix='--workdir=DIR')
    assert (error.value.where, error.value.fix) == (str(folder), ['--workdir=DIR'])
  with pytest.raises(UsageError, match='is an existing directory') as error:
    check_output(tmp_path, '--output')
  assert error.value.fix == [f'--output={tmp_path}/NAME']


def test_an_existing_file_is_replaced_only_on_request(tmp_path):
  file = tmp_path / 'file'
  file.write_text('of another program')
  check_output(file, '--output')
  check_output(file, '--output', overwrite=True)
  with pytest.raises(UsageError, match='the file already exists') as error:
    check_output(file, '--output', overwrite=False)
  assert '--overwrite' in error.value.fix[0]
