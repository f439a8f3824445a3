import bz2
import gzip
import io
import lzma
import tracemalloc
from xml.sax.saxutils import escape

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.wikipedia import dumps
from tasks.wikipedia.dumps import ReadCounts, find_dumps, read_articles, read_namespaces, read_pages

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


def titles(path, counts=None):
  return [p.title for p in read_pages(path, counts=counts)]


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


def test_a_folder_is_searched_with_everything_below_it(folder):
  found = find_dumps(str(folder), None)
  assert list(found) == ['de', 'en', 'no', 'zh-min-nan']
  assert [dump.name for dump in found['en']] == [
    'enwiki-20230501-pages-articles1.xml-p1p41242.bz2',
    'enwiki-20230501-pages-articles2.xml-p41243p151573.bz2',
  ]
  assert [dump.name for dump in found['zh-min-nan']] == ['zh_min_nanwiki-20230501-pages-articles.xml.xz']


@pytest.mark.parametrize('pattern', ['{}/dewiki*', '{}/*.xml.bz2', '{}/de*/../dewiki-20230501-pages-articles.xml.bz2'])
def test_a_glob_chooses_files(folder, pattern):
  assert list(find_dumps(pattern.format(folder), None)) == ['de']


def test_two_stars_reach_into_folders(folder):
  assert list(find_dumps(f'{folder}/**/*.xml', None)) == ['no']
  assert list(find_dumps(f'{folder}/**/*wiki-2*', ['zh_min_nan', 'de'])) == ['de', 'zh-min-nan']


def test_a_list_and_a_string_with_commas_mean_the_same(folder):
  parts = [f'{folder}/dewiki*', f'{folder}/deep/nowiki.xml']
  assert find_dumps(parts, None) == find_dumps(', '.join(parts), None)
  assert list(find_dumps(parts, None)) == ['de', 'no']


def test_a_file_that_two_patterns_match_is_read_once(folder):
  assert len(find_dumps([str(folder), f'{folder}/dewiki*'], ['de'])['de']) == 1


def test_nothing_found_tells_what_is_there(folder):
  with pytest.raises(UsageError) as error:
    find_dumps(f'{folder}/deep/*.7z', None)
  assert 'readme.txt' in str(error.value)
  assert '*.7z' in str(error.value)
  with pytest.raises(UsageError, match='no dump found'):
    find_dumps('', None)


def test_a_language_without_a_dump_is_refused_with_the_nearest(folder):
  with pytest.raises(UsageError) as error:
    find_dumps(str(folder), ['en', 'zh-min-na'])
  assert "did you mean 'zh-min-nan'" in str(error.value)
  assert 'de, en, no, zh-min-nan' in str(error.value)


@pytest.mark.parametrize('name', ['articles.xml.bz2', 'commonswiki-1.xml', 'enwiktionary-1.xml.gz'])
def test_a_file_name_without_a_language_is_refused(tmp_path, name):
  (tmp_path / name).write_bytes(b'')
  with pytest.raises(UsageError, match='does not tell'):
    find_dumps(str(tmp_path / name), None)


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('pack', [bytes, bz2.compress, gzip.compress, lzma.compress], ids=['plain', 'bz2', 'gz', 'xz'])
@pytest.mark.parametrize('suffix', ['.xml', '.xml.bz2', '.xml.gz', '.xml.xz'])
def test_archives_are_known_by_their_first_bytes(tmp_path, pack, suffix):
  path = written(tmp_path, pack(EXPORT.encode()), f'dewiki-1{suffix}')
  counts = ReadCounts()
  assert {p.title: p.text for p in read_pages(path, counts=counts)} == TEXTS
  assert not counts.truncated


@pytest.mark.parametrize('pack', [bz2.compress, gzip.compress, lzma.compress], ids=['bz2', 'gz', 'xz'])
def test_an_archive_of_many_streams_is_one_dump(tmp_path, pack):
  raw = EXPORT.encode()
  pieces = [raw[i : i + 100] for i in range(0, len(raw), 100)]
  counts = ReadCounts()
  assert titles(written(tmp_path, b''.join(map(pack, pieces))), counts) == list(TEXTS)
  assert not counts.truncated


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'utf-16-be'])
def test_other_encodings_are_read(tmp_path, encoding):
  path = written(tmp_path, EXPORT.encode(encoding))
  assert {p.title: p.text for p in read_pages(path)} == TEXTS


def test_a_page_tells_its_namespace_number_and_redirect(tmp_path):
  path = written(tmp_path, export(page('A', ns=4, number=12), page('B', redirect=True), page('C', '#ՎԵՐԱՀՂՈՒՄ [[D]]')))
  a, b, c = read_pages(path)
  assert (a.namespace, a.page_id, a.is_redirect) == (4, 12, False)
  assert b.is_redirect
  assert c.is_redirect


def test_articles_are_pages_of_namespace_0_that_are_no_redirects(tmp_path):
  path = written(tmp_path, export(page('A', ns=1), page('B', redirect=True), page('C')))
  assert [p.title for p in read_articles(path)] == ['C']


def test_old_exports_without_namespace_numbers_are_told_by_the_title(tmp_path):
  old = page('Datei:Fluss.jpg').replace('<ns>0</ns>', ''), page('Fluss').replace('<ns>0</ns>', '')
  assert [p.namespace for p in read_pages(written(tmp_path, export(*old)))] == [6, 0]


def test_of_a_history_the_last_revision_is_taken(tmp_path):
  many = page(text='old').replace('</revision>', '</revision><revision><id>8</id><text>new</text></revision>')
  assert [p.text for p in read_pages(written(tmp_path, export(many)))] == ['new']


def test_a_deleted_text_is_empty(tmp_path):
  deleted = page().replace('<text xml:space="preserve">Ein Fluss.</text>', '<text deleted="deleted" />')
  assert [p.text for p in read_pages(written(tmp_path, export(deleted)))] == ['']


def test_the_header_names_the_namespaces(tmp_path):
  assert read_namespaces(written(tmp_path, EXPORT)) == {6: 'Datei', 14: 'Kategorie & mehr'}


@pytest.mark.parametrize(
  'broken',
  [
    page('X').replace('</title>', '</titel>'),
    page('X').replace('</title>', '</title>\x00'),
    page('X', 'a &undeclared; b').replace('&amp;', '&'),
    page('X').replace('</page>', ''),
    page('X').replace('<ns>0</ns>', '<ns>zero</ns>'),
    page('X').replace('<title>X</title>', ''),
  ],
  ids=['tag', 'control', 'entity', 'unclosed', 'number', 'untitled'],
)
def test_a_broken_page_costs_that_page_only(tmp_path, broken):
  counts = ReadCounts()
  assert titles(written(tmp_path, export(page('A'), broken, page('B'))), counts) == ['A', 'B']
  assert counts.broken_pages == 1
  assert not counts.truncated


def test_bytes_that_are_no_utf8_cost_their_page_only(tmp_path):
  raw = export(page('A'), page('X', 'QQQ'), page('B')).encode().replace(b'QQQ', b'\xff\xfe\xfa')
  counts = ReadCounts()
  assert titles(written(tmp_path, raw), counts) == ['A', 'B']
  assert counts.broken_pages == 1


def test_declared_entities_are_not_expanded(tmp_path):
  bomb = '<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n'
  path = written(tmp_path, bomb + export(page('A'), page('X', 'Q').replace('Q', '&b;')))
  counts = ReadCounts()
  assert titles(path, counts) == ['A']
  assert counts.broken_pages == 1


def test_a_page_without_end_is_dropped_without_filling_the_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 16)
  monkeypatch.setattr(dumps, '_LARGEST_PAGE', 1 << 20)
  endless = page('X', 'x' * (20 << 20)).replace('</page>', '')
  path = written(tmp_path, bz2.compress(export(page('A'), endless, page('B')).encode()))
  counts = ReadCounts()
  tracemalloc.start()
  assert titles(path, counts) == ['A', 'B']
  assert tracemalloc.get_traced_memory()[1] < 8 << 20
  tracemalloc.stop()
  assert counts.broken_pages == 1


def test_memory_does_not_grow_with_the_dump(tmp_path, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 16)
  path = written(tmp_path, gzip.compress(export(*[page(text='Wasser fließt. ' * 2000)] * 1000).encode()))
  tracemalloc.start()
  assert sum(1 for _ in read_pages(path)) == 1000
  assert tracemalloc.get_traced_memory()[1] < 4 << 20
  tracemalloc.stop()


@pytest.mark.parametrize('pack', [bytes, bz2.compress, gzip.compress, lzma.compress], ids=['plain', 'bz2', 'gz', 'xz'])
@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1))
def test_a_dump_cut_at_any_byte_gives_a_prefix_of_its_pages(tmp_path_factory, pack, share):
  packed = pack(EXPORT.encode())
  cut = int(share * len(packed))
  path = written(tmp_path_factory.getbasetemp(), packed[:cut], f'dewiki-{pack.__name__}.xml')
  counts = ReadCounts()
  try:
    found = titles(path, counts)
  except UsageError as error:
    assert path.name in str(error)  # noqa: PT017
    found = []
  else:
    assert counts.truncated == (cut < len(packed) and not (pack is bytes and packed[:cut].endswith(b'</mediawiki>')))
  assert found == list(TEXTS)[: len(found)]
  if pack is bytes:
    assert len(found) == packed[:cut].count(b'</page>')


def test_every_whole_page_before_a_cut_is_kept_and_the_loss_counted(tmp_path):
  raw = EXPORT.encode()
  counts = ReadCounts()
  assert titles(written(tmp_path, raw[: raw.rindex(b'</text>')]), counts) == list(TEXTS)[:-1]
  assert counts.truncated
  assert counts.broken_pages == 1


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
  path, asked_for = written(tmp_path, b'INSERT INTO page VALUES (1);\n' * 200_000), []

  class Counted(io.FileIO):
    def read(self, size=-1):
      asked_for.append(size)
      return super().read(size)

  monkeypatch.setattr(type(epath.Path(path)), 'open', lambda *_: Counted(path))
  with pytest.raises(UsageError, match='not a MediaWiki export'):
    titles(path)
  assert sum(asked_for) < 2 << 20


def test_a_missing_file_is_refused(tmp_path):
  with pytest.raises(UsageError, match='cannot open'):
    titles(tmp_path / 'dewiki-1.xml')


def test_an_export_without_pages_is_empty(tmp_path):
  assert titles(written(tmp_path, export())) == []


# --- real dumps ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def real(shared_data):
  return shared_data / 'dumps'


def test_the_language_is_that_of_the_file_name_where_headers_lie(real):
  found = find_dumps(str(real), None)
  assert len(found) == 99
  assert {'no', 'zh', 'simple', 'als'} <= set(found)
  for language, name in (('ru', 'Берлин'), ('ar', 'برلين'), ('ko', '베를린'), ('hi', 'बर्लिन'), ('zh', '柏林')):
    assert name in [p.title for p in read_pages(found[language][0])]


def test_a_real_dump_cut_in_the_middle_of_a_page_gives_every_whole_page(real, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 1 << 20)
  path = real / 'ukwiki-20230501-pages-articles.xml.xz'
  counts = ReadCounts()
  assert len(titles(path, counts)) == lzma.decompress(path.read_bytes()).count(b'</page>') == 532
  assert counts.truncated
  assert counts.broken_pages == 1
