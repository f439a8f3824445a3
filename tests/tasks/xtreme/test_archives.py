"""Archives that are cut off, wrong or empty: one error, which names the file."""

import pytest
from xtreme_archives import tar_of, zip_of

from rembert.errors import UsageError
from tasks.xtreme.archives import columns, lines, members, nested_tar


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
    list(nested_tar('de.tar.gz', tar_of({'train': 'x'})[:20], tmp_path / 'all.zip'))
  assert error.value.where == f'{tmp_path}/all.zip:de.tar.gz'


def test_lines_end_at_line_feeds_alone():
  assert [line for line, _ in lines('a\u2028b\r\nc\x0bd\n\n'.encode(), 'f')] == ['a\u2028b', 'c\x0bd', '']
  with pytest.raises(UsageError, match='not UTF-8') as error:
    list(lines(b'a\n\xff\n', 'f'))
  assert error.value.where == 'f:2'


def test_columns_leave_out_the_header_and_tell_a_short_row():
  assert list(columns(b'x\ty\na\tb\n', 'f', 2)) == [(['a', 'b'], 'f:2')]
  with pytest.raises(UsageError, match='1 columns, and 2 are needed') as error:
    list(columns(b'x\ty\na\tb\nc\n', 'f', 2))
  assert error.value.where == 'f:3'
