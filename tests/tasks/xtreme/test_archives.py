"""Archives: what breaks off is resumed, what is not right is not kept, what cannot be read is one error."""

import errno
import hashlib
import json
import pathlib
import random

import pytest
from file_server import serve_files
from xtreme_archives import tar_of, zip_of

from rembert.errors import RunError, UsageError
from tasks.xtreme.archives import SOURCES, Downloads, Source, columns, members, nested_tar

# --- fetching ---------------------------------------------------------------------------------------------------------


CONTENT = random.Random(0).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
  with serve_files() as files:
    files.files['/data.zip'] = CONTENT
    yield files


@pytest.fixture
def downloads(tmp_path):
  return Downloads(tmp_path, seconds=5, attempts=3, pause=0)


@pytest.fixture
def source(server):
  return Source('data.zip', (f'{server.url}/data.zip',), len(CONTENT), SHA256)


def files_in(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_and_verified(downloads, source, server, tmp_path):
  told = []
  fetched = downloads.fetch(source, lambda fraction, note: told.append(fraction))
  assert fetched.read_bytes() == CONTENT
  assert told == sorted(told)
  assert told[-1] == 1
  assert downloads.fetch(source) == fetched
  assert server.requests == [('/data.zip', 0)]
  assert files_in(tmp_path / 'downloads') == ['data.zip']
  record = json.loads((tmp_path / 'checksums.json').read_text())
  assert record == {'data.zip': {'bytes': len(CONTENT), 'sha256': SHA256, 'state': 'verified'}}


def test_a_connection_that_breaks_goes_on_where_it_broke(downloads, source, server):
  server.breaks_after = [1_000_000, 500_000]
  assert downloads.fetch(source).read_bytes() == CONTENT
  assert server.requests == [('/data.zip', 0), ('/data.zip', 1_000_000), ('/data.zip', 1_500_000)]


def test_the_next_run_goes_on_where_the_last_gave_up(downloads, source, server, tmp_path):
  server.breaks_after = [1_000_000, 100_000, 100_000]
  with pytest.raises(RunError, match='breaks off') as error:
    downloads.fetch(source)
  assert '1,200,000 of 3,000,000 bytes came' in error.value.where
  assert 'goes on from there' in error.value.fix[0]
  assert not (tmp_path / 'downloads' / 'data.zip').exists()
  assert Downloads(tmp_path).fetch(source).read_bytes() == CONTENT
  assert server.requests[-1] == ('/data.zip', 1_200_000)


def test_a_file_that_changed_meanwhile_is_fetched_from_its_beginning(downloads, server):
  source = Source('data.zip', (f'{server.url}/data.zip',))
  server.breaks_after = [1_000_000] * 3
  server.resumes = False
  with pytest.raises(RunError):
    downloads.fetch(source)
  server.files['/data.zip'] = CONTENT[::-1]
  server.resumes = True
  assert downloads.fetch(source).read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize('lacks', ['resumes', 'versions'])
def test_a_server_that_cannot_resume_is_asked_for_all(downloads, source, server, lacks):
  setattr(server, lacks, False)
  server.breaks_after = [1_000_000]
  assert downloads.fetch(source).read_bytes() == CONTENT


def test_a_rest_that_there_is_not_is_fetched_anew(downloads, source, server, tmp_path):
  (tmp_path / 'downloads').mkdir()
  (tmp_path / 'downloads' / 'data.zip.partial').write_bytes(bytes(4_000_000))
  (tmp_path / 'downloads' / 'data.zip.partial.version').write_text(f'"{hash(CONTENT)}"')
  assert downloads.fetch(source).read_bytes() == CONTENT


def test_the_second_address_is_asked_when_the_first_has_not_got_it(downloads, source, server):
  two = Source('data.zip', (f'{server.url}/gone.zip', *source.urls), source.size, source.sha256)
  assert downloads.fetch(two).read_bytes() == CONTENT


def test_what_is_nowhere_is_one_error_with_what_to_do(downloads, server, tmp_path):
  by_hand = Source('data.zip', (f'{server.url}/gone.zip', 'http://127.0.0.1:9/data.zip'), by_hand='save it as {path}')
  with pytest.raises(UsageError, match='cannot be fetched') as error:
    downloads.fetch(by_hand)
  assert 'HTTP 404' in error.value.where
  assert 'cannot be reached' in error.value.where
  assert error.value.fix == [f'save it as {tmp_path}/downloads/data.zip']
  assert files_in(tmp_path / 'downloads') == []


def test_a_server_in_trouble_is_asked_again(downloads, source, server):
  server.status['/data.zip'] = 503
  with pytest.raises(RunError, match='breaks off') as error:
    downloads.fetch(source)
  assert 'HTTP 503' in error.value.where
  assert len(server.requests) == 3


@pytest.mark.parametrize('size', [len(CONTENT), None, 7])
def test_another_file_than_the_one_expected_is_not_kept(downloads, server, tmp_path, size):
  other = Source('data.zip', (f'{server.url}/data.zip',), size, hashlib.sha256(b'other').hexdigest())
  with pytest.raises(UsageError, match='cannot be fetched') as error:
    downloads.fetch(other)
  assert ('another file' in error.value.where) == (size != 7)
  assert ('3,000,000 bytes, and 7 are expected' in error.value.where) == (size == 7)
  assert files_in(tmp_path / 'downloads') == []


def test_a_file_put_there_by_hand_is_taken_if_it_is_the_right_one(downloads, source, server, tmp_path):
  (tmp_path / 'downloads').mkdir()
  file = tmp_path / 'downloads' / 'data.zip'
  file.write_bytes(CONTENT)
  assert downloads.fetch(source) == file
  assert json.loads((tmp_path / 'checksums.json').read_text())['data.zip']['state'] == 'verified'
  file.write_bytes(CONTENT[:-1])
  with pytest.raises(UsageError, match='is not the file that was expected') as error:
    downloads.fetch(source)
  assert error.value.fix == ['delete it, and run the command again']
  assert server.requests == []


def test_what_nobody_knows_is_taken_as_it_comes_and_remembered(downloads, server, tmp_path):
  unknown = Source('data.zip', (f'{server.url}/data.zip',))
  downloads.fetch(unknown)
  assert json.loads((tmp_path / 'checksums.json').read_text())['data.zip']['state'].startswith('unverified')
  (tmp_path / 'downloads' / 'data.zip').write_bytes(b'something else')
  with pytest.raises(UsageError, match='fetched the first time'):
    downloads.fetch(unknown)


def test_a_full_disk_is_one_error(downloads, source, monkeypatch, tmp_path):
  class Full:
    def __init__(self, file):
      self._file = file

    def __enter__(self):
      return self

    def __exit__(self, *_):
      self._file.close()

    def write(self, _):
      raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(
    'builtins.open', lambda path, mode='r', open=open: Full(open(path, mode)) if mode == 'wb' else open(path, mode)
  )
  with pytest.raises(RunError, match='No space left') as error:
    downloads.fetch(source)
  assert error.value.__cause__.errno == errno.ENOSPC
  assert not (tmp_path / 'downloads' / 'data.zip').exists()


def test_a_damaged_record_is_told(downloads, source, tmp_path):
  (tmp_path / 'checksums.json').write_text('{')
  with pytest.raises(UsageError, match=r'checksums\.json is damaged'):
    downloads.fetch(source)


# --- the table of sources -----------------------------------------------------


def test_every_source_has_a_name_of_its_own_a_size_and_a_checksum():
  sources = [source for task in SOURCES.values() for source in task]
  assert len({source.name for source in sources}) == len(sources)
  for source in sources:
    assert all(url.startswith('https://') and url.endswith(f'/{source.name}') for url in source.urls)
    assert source.size > 0
    assert len(bytes.fromhex(source.sha256)) == 32


def test_a_server_that_sends_without_end_does_not_fill_the_disk(downloads, source, server, tmp_path):
  server.files['/data.zip'] = CONTENT * 20
  server.states_length = False
  with pytest.raises(UsageError) as error:
    downloads.fetch(source)
  assert 'more than the 3,000,000 bytes that are expected' in error.value.where
  assert not any(path.stat().st_size for path in (tmp_path / 'downloads').iterdir())


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=['zip', 'gz', 'bz2'])
def archive(request, tmp_path):
  """An archive of two files; its content is long and random, so that half of it ends within."""
  import random

  text = random.Random(0).randbytes(50_000).hex()
  content = {'a/eins.txt': text, 'a/._eins.txt': 'x', '__MACOSX/a/eins.txt': 'x', 'zwei.txt': 'zwei'}
  path = tmp_path / f'archive.{request.param}'
  path.write_bytes(zip_of(content) if request.param == 'zip' else tar_of(content, request.param))
  return path


def test_wanted_files_come_and_what_macs_add_does_not(archive):
  found = dict(members(archive, lambda name: name.endswith('eins.txt')))
  assert list(found) == ['a/eins.txt']
  assert len(found['a/eins.txt']) == 100_000


def test_half_an_archive_is_damaged(archive):
  archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
  with pytest.raises(UsageError, match='the archive is damaged') as error:
    list(members(archive, lambda name: True))
  assert error.value.where == str(archive)
  assert 'delete it' in error.value.fix[0]


@pytest.mark.parametrize('content', [b'', b'<html>Not found</html>'])
def test_what_is_no_archive_is_damaged(archive, content):
  archive.write_bytes(content)
  with pytest.raises(UsageError, match='the archive is damaged'):
    list(members(archive, lambda name: True))


def test_another_archive_is_told_from_the_right_one(archive):
  with pytest.raises(UsageError, match='none of the files that it should have'):
    list(members(archive, lambda name: name.endswith('drei.txt')))


def test_a_damaged_archive_within_an_archive_is_named(tmp_path):
  with pytest.raises(UsageError, match='damaged') as error:
    list(nested_tar(f'{tmp_path}/all.zip:de.tar.gz', tar_of({'train': 'x'})[:20]))
  assert error.value.where == f'{tmp_path}/all.zip:de.tar.gz'


def test_columns_leave_out_the_header_and_tell_a_short_row():
  assert list(columns(b'x\ty\na\tb\n', 'f', 2)) == [(['a', 'b'], 'f:2')]
  with pytest.raises(UsageError, match='1 columns, and 2 are needed') as error:
    list(columns(b'x\ty\na\tb\nc\n', 'f', 2))
  assert error.value.where == 'f:3'
