"""Archives made to harm: they lead out of their folder, hold links, or unpack to more than fits."""

import io
import pathlib
import struct
import tarfile
import zipfile

import pytest
from xtreme_archives import tar_of, zip_of

from rembert.errors import UsageError
from tasks.xtreme import archives
from tasks.xtreme.archives import members, nested_tar

EVERYTHING = lambda name: True
NAMES = ('../../../../tmp/outside', '/tmp/outside', 'a/../../outside', '..\\outside', 'C:\\outside', '~/outside')


@pytest.fixture
def read(tmp_path):
  """Writes an archive and reads all of it; nothing may appear beside it."""

  def check(content: bytes):
    (tmp_path / 'inner').mkdir()
    archive = tmp_path / 'inner' / 'archive'
    archive.write_bytes(content)
    try:
      return dict(members(archive, EVERYTHING))
    finally:
      assert [path for path in tmp_path.rglob('*') if path.is_file()] == [archive]

  return check


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('pack', [zip_of, tar_of])
def test_names_that_lead_elsewhere_write_nothing(read, pack, name):
  assert list(read(pack({name: b'content'})).values()) == [b'content']
  assert not pathlib.Path('/tmp/outside').exists()


@pytest.mark.parametrize('kind', [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_passed_over(read, kind):
  content = io.BytesIO()
  with tarfile.open(fileobj=content, mode='w') as opened:
    info = tarfile.TarInfo('train.tsv')
    info.type, info.linkname = kind, '/etc/passwd'
    opened.addfile(info)
    real = tarfile.TarInfo('dev.tsv')
    real.size = 2
    opened.addfile(real, io.BytesIO(b'ok'))
  assert read(content.getvalue()) == {'dev.tsv': b'ok'}


def test_a_link_of_a_zip_is_its_text_and_not_what_it_points_to(read):
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w') as opened:
    info = zipfile.ZipInfo('train.tsv')
    info.external_attr = 0o120777 << 16
    opened.writestr(info, '/etc/passwd')
  assert read(content.getvalue()) == {'train.tsv': b'/etc/passwd'}


@pytest.mark.parametrize('compression', [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_unpacks_to_too_much_is_refused(read, compression, monkeypatch):
  monkeypatch.setattr(archives, 'LARGEST_MEMBER', 1 << 20)
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w', compression) as opened:
    opened.writestr('bomb.tsv', bytes(8 << 20))
  assert len(content.getvalue()) < 20_000
  with pytest.raises(UsageError, match=r'bomb.tsv is larger'):
    read(content.getvalue())


def test_a_declared_size_is_not_believed(read, monkeypatch):
  monkeypatch.setattr(archives, 'LARGEST_MEMBER', 1 << 20)
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w', zipfile.ZIP_DEFLATED) as opened:
    opened.writestr('bomb.tsv', bytes(8 << 20))
  lying = content.getvalue().replace(struct.pack('<I', 8 << 20), struct.pack('<I', 100))
  with pytest.raises(UsageError):
    read(lying)


@pytest.mark.parametrize('compression', ['gz', 'bz2', 'xz'])
def test_a_tar_that_unpacks_to_too_much_is_refused(read, compression, monkeypatch):
  monkeypatch.setattr(archives, 'LARGEST_MEMBER', 1 << 20)
  with pytest.raises(UsageError, match='is larger'):
    read(tar_of({'bomb': bytes(8 << 20)}, compression))


def test_a_tar_that_declares_an_exabyte_is_refused(read):
  info = tarfile.TarInfo('train.tsv')
  info.size = 1 << 60
  with pytest.raises(UsageError, match='is larger'):
    read(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def test_many_members_together_are_limited_too(read, monkeypatch):
  monkeypatch.setattr(archives, 'LARGEST_TOTAL', 1 << 20)
  with pytest.raises(UsageError, match='all that is wanted is larger'):
    read(zip_of({f'{number}': bytes(1 << 18) for number in range(8)}))


def test_a_tar_of_very_many_files_is_given_up(read, monkeypatch):
  monkeypatch.setattr(archives, 'MOST_MEMBERS', 10)
  with pytest.raises(UsageError, match='the number of its files'):
    read(tar_of({f'{number}': b'' for number in range(11)}))


def test_an_archive_within_an_archive_has_the_same_limits(tmp_path, monkeypatch):
  monkeypatch.setattr(archives, 'LARGEST_MEMBER', 1 << 20)
  with pytest.raises(UsageError, match='is larger'):
    list(nested_tar(f'{tmp_path}/panx.zip:de.tar.gz', tar_of({'train': bytes(8 << 20)})))


def test_an_encrypted_zip_is_told_and_no_traceback(read):
  content = bytearray(zip_of({'train.tsv': b'content'}))
  for signature, flags in ((b'PK\x03\x04', 6), (b'PK\x01\x02', 8)):
    content[content.index(signature) + flags] |= 1
  with pytest.raises(UsageError, match='encrypted'):
    read(bytes(content))
