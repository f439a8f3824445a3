import bz2
import errno
import gzip
import io
import lzma
import tracemalloc
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.wikipedia import dumps
from tasks.wikipedia.dumps import Dump, Page, find_dumps

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo>
    <dbname>enwiki</dbname>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie &amp; mehr</namespace>
    </namespaces>
  </siteinfo>
"""
TEXTS = {
  'Fluss': 'Ein Fluss ist ein natürliches, fließendes Gewässer.',
  'Река': 'Река — это природный водный поток & русло <ref>x</ref>.',
  'नदी': 'नदी भूतल पर प्रवाहित एक जलधारा है।',
  '川': '川は、絶えず水が流れる細長い地形である。',
  'นที': 'แม่น้ำคือทางน้ำธรรมชาติ',
  'نهر': 'النهر مجرى مائي طبيعي واسع.',
}


def page(title='Fluss', text='Ein Fluss.', *, ns=0, number=1, redirect=False):
  target = '<redirect title="Anderswo" />' if redirect else ''
  return (
    f'  <page>\n    <title>{escape(title)}</title>\n    <ns>{ns}</ns>\n    <id>{number}</id>{target}\n'
    f'    <revision><id>7</id><text xml:space="preserve">{escape(text)}</text></revision>\n  </page>\n'
  )


def export(*pages, closing='</mediawiki>\n'):
  return HEADER + ''.join(pages) + closing


EXPORT = export(*(page(title, text, number=i) for i, (title, text) in enumerate(TEXTS.items(), 1)))


def written(folder, content, name='dewiki-20230501-pages-articles.xml'):
  path = folder / name
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  return path


def read(path) -> tuple[list[Page], Dump]:
  dump = Dump(path)
  return list(dump.pages()), dump


def titles(path) -> tuple[list[str], Dump]:
  pages, dump = read(path)
  return [page.title for page in pages], dump


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
  """Chunk borders fall within tags, characters and archives."""
  monkeypatch.setattr(dumps, '_CHUNK', 61)


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
  for name in (
    'dewiki-20230501-pages-articles.xml.bz2',
    'enwiki-20230501-pages-articles1.xml-p1p41242.bz2',
    'enwiki-20230501-pages-articles2.xml-p41243p151573.bz2',
    'deep/er/zh_min_nanwiki-20230501-pages-articles.xml.xz',
    'deep/nowiki.xml',
    'deep/enwiki-20230501-abstract.xml.gz',
    'deep/readme.txt',
  ):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  return tmp_path


def test_a_directory_is_searched_with_everything_below_it(folder):
  found = find_dumps(str(folder))
  assert list(found) == ['de', 'en', 'no', 'zh-min-nan']
  assert [dump.name for dump in found['en']] == [
    'enwiki-20230501-pages-articles1.xml-p1p41242.bz2',
    'enwiki-20230501-pages-articles2.xml-p41243p151573.bz2',
  ]
  assert [dump.name for dump in found['zh-min-nan']] == ['zh_min_nanwiki-20230501-pages-articles.xml.xz']


@pytest.mark.parametrize(
  ('pattern', 'languages'),
  [
    ('{}/dewiki*', ['de']),
    ('{}/*.xml.bz2', ['de']),
    ('{}/de*/../dewiki-20230501-pages-articles.xml.bz2', ['de']),
    ('{}/d*', ['de', 'no', 'zh-min-nan']),
    ('{}/**/*.xml', ['no']),
    ('{}/**/*wiki-2*', ['de', 'en', 'zh-min-nan']),
    ('{0}/dewiki*, {0}/deep/nowiki.xml', ['de', 'no']),
    (['{}/dewiki*', '{}/deep/nowiki.xml'], ['de', 'no']),
    (['{}', '{}/dewiki*'], ['de', 'en', 'no', 'zh-min-nan']),
  ],
)
def test_globs_lists_and_commas_choose_files_each_once(folder, pattern, languages):
  pattern = pattern.format(folder) if isinstance(pattern, str) else [each.format(folder) for each in pattern]
  found = find_dumps(pattern)
  assert list(found) == languages
  assert all(len(set(files)) == len(files) for files in found.values())


def test_if_nothing_is_found_the_error_lists_what_is_there(folder):
  with pytest.raises(UsageError) as error:
    find_dumps(f'{folder}/deep/*.7z')
  assert 'readme.txt' in str(error.value)
  assert '*.7z' in str(error.value)
  with pytest.raises(UsageError, match='no dump found'):
    find_dumps('')


@pytest.mark.parametrize('name', ['articles.xml.bz2', 'commonswiki-1.xml', 'enwiktionary-1.xml.gz'])
def test_a_file_name_without_a_language_is_refused(tmp_path, name):
  (tmp_path / name).write_bytes(b'')
  with pytest.raises(UsageError, match='does not name'):
    find_dumps(str(tmp_path / name))


# --- reading ---------------------------------------------------------------------------------------------------------


PACKED = pytest.mark.parametrize(
  'pack', [bytes, bz2.compress, gzip.compress, lzma.compress], ids=['plain', 'bz2', 'gz', 'xz']
)


@PACKED
@pytest.mark.parametrize('suffix', ['.xml', '.xml.bz2'])
def test_archives_are_known_by_their_first_bytes_and_may_have_many_streams(tmp_path, pack, suffix):
  raw = EXPORT.encode()
  for content in pack(raw), b''.join(pack(raw[i : i + 100]) for i in range(0, len(raw), 100)):
    pages, dump = read(written(tmp_path, content, f'dewiki-1{suffix}'))
    assert {page.title: page.text for page in pages} == TEXTS
    assert dump.namespaces == {6: 'Datei', 14: 'Kategorie & mehr'}
    assert not dump.is_truncated


def test_a_byte_order_mark_is_skipped_and_utf_16_is_refused(tmp_path):
  pages, _ = read(written(tmp_path, EXPORT.encode('utf-8-sig')))
  assert {page.title: page.text for page in pages} == TEXTS
  with pytest.raises(UsageError, match='is not a MediaWiki export') as error:
    read(written(tmp_path, EXPORT.encode('utf-16')))
  assert 'in UTF-8' in error.value.fix[0]


def test_a_page_has_its_namespace_number_and_redirect_and_articles_are_those_of_namespace_0(tmp_path):
  pages = page('A', ns=4, number=12), page('B', redirect=True), page('C', '#ՎԵՐԱՀՂՈՒՄ [[D]]'), page('E')
  (a, b, c, _), dump = read(written(tmp_path, export(*pages)))
  assert (a.namespace, a.page_id, a.is_redirect) == (4, 12, False)
  assert b.is_redirect
  assert c.is_redirect
  assert [each.title for each in Dump(dump.path).articles()] == ['E']
  old = page('Datei:Fluss.jpg').replace('<ns>0</ns>', ''), page('Fluss').replace('<ns>0</ns>', '')
  assert [each.namespace for each in read(written(tmp_path, export(*old)))[0]] == [6, 0]  # by the title
  assert read(written(tmp_path, export()))[0] == []


def test_the_text_is_that_of_the_last_revision_and_empty_if_it_was_deleted(tmp_path):
  many = page(text='old').replace('</revision>', '</revision><revision><id>8</id><text>new</text></revision>')
  deleted = page().replace('<text xml:space="preserve">Ein Fluss.</text>', '<text deleted="deleted" />')
  assert [p.text for p in read(written(tmp_path, export(many, deleted)))[0]] == ['new', '']


@pytest.mark.parametrize(
  'broken',
  [
    page('X').replace('</title>', '</titel>'),
    page('X').replace('</title>', '</title>\x00'),
    page('X', 'a &undeclared; b').replace('&amp;', '&'),
    page('X').replace('</page>', ''),
    page('X').replace('<ns>0</ns>', '<ns>zero</ns>'),
    page('X').replace('<title>X</title>', ''),
    page('X', 'QQQ').encode().replace(b'QQQ', b'\xff\xfe\xfa'),
  ],
  ids=['tag', 'control', 'entity', 'unclosed', 'number', 'untitled', 'not UTF-8'],
)
def test_a_broken_page_costs_that_page_only(tmp_path, broken):
  before, after = (part.encode() for part in export(page('A'), 'QQQ', page('B')).split('QQQ'))
  broken = broken if isinstance(broken, bytes) else broken.encode()
  found, dump = titles(written(tmp_path, before + broken + after))
  assert found == ['A', 'B']
  assert (dump.broken_pages, dump.is_truncated) == (1, False)


def test_declared_entities_are_not_expanded(tmp_path):
  bomb = '<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n'
  found, dump = titles(written(tmp_path, bomb + export(page('A'), page('X', 'Q').replace('Q', '&b;'))))
  assert (found, dump.broken_pages) == (['A'], 1)


def test_a_page_without_end_is_dropped_without_filling_the_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 16)
  monkeypatch.setattr(dumps, '_LARGEST_PAGE', 1 << 19)
  endless = page('X', 'x' * (8 << 20)).replace('</page>', '')
  path = written(tmp_path, bz2.compress(export(page('A'), endless, page('B')).encode()))
  tracemalloc.start()
  found, dump = titles(path)
  assert tracemalloc.get_traced_memory()[1] < 6 << 20
  tracemalloc.stop()
  assert (found, dump.broken_pages) == (['A', 'B'], 1)


def test_memory_does_not_grow_with_the_dump(tmp_path, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 16)
  path = written(tmp_path, gzip.compress(export(*[page(text='Wasser fließt. ' * 2000)] * 400).encode()))
  tracemalloc.start()
  assert sum(1 for _ in Dump(path).pages()) == 400
  assert tracemalloc.get_traced_memory()[1] < 3 << 20
  tracemalloc.stop()


@PACKED
@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1))
def test_a_dump_cut_at_any_byte_gives_a_prefix_of_its_pages(tmp_path_factory, pack, share):
  packed = pack(EXPORT.encode())
  cut = int(share * len(packed))
  path = written(tmp_path_factory.getbasetemp(), packed[:cut], f'dewiki-{pack.__name__}.xml')
  try:
    found, dump = titles(path)
  except UsageError as error:
    assert path.name in str(error)  # noqa: PT017
    found = []
  else:
    is_closed = pack is bytes and packed[:cut].endswith(b'</mediawiki>')
    assert dump.is_truncated == (cut < len(packed) and not is_closed)
  assert found == list(TEXTS)[: len(found)]
  if pack is bytes:
    assert len(found) == packed[:cut].count(b'</page>')


@pytest.mark.parametrize('pack', [bz2.compress, gzip.compress, lzma.compress], ids=['bz2', 'gz', 'xz'])
def test_what_precedes_the_damage_of_an_archive_is_read(tmp_path, monkeypatch, pack):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 20)
  # In a stream of its own, which can be decompressed: what follows it is cut off.
  first, second = export(page('A'), closing=''), page('B') + '</mediawiki>'
  found, dump = titles(written(tmp_path, pack(first.encode()) + pack(second.encode())[:-5]))
  assert found[:1] == ['A']
  assert dump.is_truncated


@pytest.mark.parametrize(
  'content',
  [b'', b'hello', b'BZh9 but not really', b'<html><body>404</body></html>', b'\x1f\x8bxxxx', b'7z\xbc\xaf\x27\x1c'],
)
def test_what_is_no_export_is_refused_by_name(tmp_path, content):
  with pytest.raises(UsageError) as error:
    titles(written(tmp_path, content))
  assert 'dewiki-20230501-pages-articles.xml' in str(error.value)


def test_a_large_file_that_is_no_export_is_refused_before_it_is_read_to_the_end(tmp_path, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 16)
  path = written(tmp_path, b'INSERT INTO page VALUES (1);\n' * 200_000)
  with path.open('rb') as file:
    monkeypatch.setattr(dumps, 'decompressed', lambda opened: file)
    with pytest.raises(UsageError, match='not a MediaWiki export'):
      titles(path)
    assert file.tell() < 2 << 20


def test_an_error_of_the_storage_is_raised_and_not_taken_for_the_end_of_the_dump(tmp_path, monkeypatch):
  class Failing(io.BytesIO):
    def read1(self, size=-1):
      raise OSError(errno.EIO, 'Input/output error')

  monkeypatch.setattr(dumps, 'decompressed', lambda opened: Failing())
  with pytest.raises(OSError, match='Input/output error'):
    titles(written(tmp_path, EXPORT))


# --- real dumps ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def real(shared_data):
  return shared_data / 'dumps'


def test_the_language_is_that_of_the_file_name_if_headers_differ(real):
  found = find_dumps(str(real))
  assert len(found) == 99
  assert {'no', 'zh', 'simple', 'als'} <= set(found)
  for language, name in (('ru', 'Берлин'), ('ar', 'برلين'), ('ko', '베를린'), ('hi', 'बर्लिन'), ('zh', '柏林')):
    assert name in titles(found[language][0])[0]


def test_a_real_dump_cut_in_the_middle_of_a_page_gives_every_whole_page(real, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 20)
  path = real / 'ukwiki-20230501-pages-articles.xml.xz'
  found, dump = titles(path)
  assert len(found) == lzma.decompress(path.read_bytes()).count(b'</page>') == 532
  assert (dump.broken_pages, dump.is_truncated) == (1, True)
