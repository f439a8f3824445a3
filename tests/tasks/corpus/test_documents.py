"""Documents: every one once with its title and id, what is broken counted; what is kept depends on the text alone."""

import bz2
import gzip
import itertools
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_dumps import LAKE, RIVER, TOWN, dump_of, page
from prepared_datasets import prepare_dataset

from rembert.errors import UsageError
from tasks.corpus import documents as corpus_documents
from tasks.corpus.documents import (
  CorpusConfig,
  Document,
  Lost,
  Part,
  RawDocument,
  clean,
  digest_of,
  find_parts,
  first_of,
  is_held_out,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
  read_part,
)

CONFIG = CorpusConfig(min_characters=5)
PROSE = "Die '''Donau''' ist ein [[Fluss]] in Europa."


def raw(text, kind='text', **fields):
  return RawDocument(**{'language': 'de', 'kind': kind, 'title': 'T', 'id': '1', 'text': text} | fields)


def document(*paragraphs, title='', number=''):
  return Document('de', digest_of('\n'.join(paragraphs)), False, title, number, paragraphs)


# --- cleaning ---------------------------------------------------------------------------------------------------------


def test_an_article_becomes_a_document_of_clean_paragraphs():
  text = f'{{{{Infobox}}}}\n{PROSE}[[Ablage:X.jpg|thumb|a caption]]\n\n== Lauf ==\n{PROSE}\n== Weblinks ==\n* a b c'
  found = clean(raw(text, 'dump', namespaces=((6, 'Ablage'),)), CONFIG)
  assert found.paragraphs == ('Die Donau ist ein Fluss in Europa.',) * 2
  assert (found.title, found.id, found.digest) == ('T', '1', digest_of(found.text))


def test_plain_text_becomes_nfc_with_single_spaces():
  found = clean(raw('Mto e\u0301 \t haraka\u00a0 sana.\n\nUna  samaki.'), CONFIG)
  assert found.text == 'Mto \u00e9 haraka sana.\nUna samaki.'


def test_marks_of_wiki40b_are_taken_out():
  text = '\n_START_ARTICLE_\nTitel\n_START_PARAGRAPH_\nEin Absatz._NEWLINE_Noch einer.'
  assert clean(raw(text, 'tfds'), CONFIG).paragraphs == ('Titel', 'Ein Absatz.', 'Noch einer.')


def test_short_documents_and_broken_characters_are_losses():
  assert clean(raw('kurz'), CONFIG) == Lost('de', 'too short')
  text = b'Stra\xdfe am Fluss'.decode('utf-8', 'surrogateescape')
  assert clean(raw(text), CONFIG) == Lost('de', 'not UTF-8')
  assert clean(Lost('de', 'broken pages', 3), CONFIG) == Lost('de', 'broken pages', 3)


# --- splits and shards ------------------------------------------------------------------------------------------------


def test_whether_a_document_is_held_out_depends_on_its_text_alone():
  texts = [f'Fluss {i}' for i in range(2000)]
  assert 150 < sum(is_held_out(text, 0.1) for text in texts) < 250
  assert all(is_held_out(text, 0.3) for text in texts if is_held_out(text, 0.1))  # a larger share holds the smaller
  assert clean(raw('Fluss 0'), CorpusConfig(held_out=0.5, min_characters=1)).is_held_out == is_held_out('Fluss 0', 0.5)


def test_hashes_are_those_that_stores_were_made_with():
  assert digest_of('Fluss').hex() == '48b860fb620debbed98631fc70f146e8'
  assert [is_held_out(text, 0.5) for text in ('Fluss', 'Stadt', 'See', 'Meer')] == [True, True, False, False]


def test_shards_follow_from_the_bytes_of_input():
  parts = [Part('de', 'dump', 'a', size=100), Part('de', 'dump', 'b', size=101), Part('sw', 'text', 'c', size=1)]
  config = CorpusConfig(held_out=0.5, shard_bytes=50)
  assert numbers_of_shards(parts, config) == {
    'de': {'train': 5, 'validation': 2},
    'sw': {'train': 1, 'validation': 1},
  }


@pytest.mark.parametrize(
  'options', [{'held_out': 1.0}, {'held_out': float('nan')}, {'min_characters': 0}, {'shard_bytes': 0}]
)
def test_options_out_of_range_are_refused_by_name(options):
  with pytest.raises(UsageError, match=next(iter(options))):
    CorpusConfig(**options)


# --- deduplication ----------------------------------------------------------------------------------------------------


@given(st.permutations([('9', 'a'), ('10', 'z'), ('10', 'b'), ('', 'c')]))
def test_of_documents_with_one_text_the_smallest_id_and_title_is_kept_in_any_order(names):
  kept, lost = first_of(document(PROSE, title=title, number=number) for number, title in names)
  assert (kept.id, kept.title) == ('', 'c')
  assert lost == Lost('de', 'repeated documents', 3)


def test_a_document_that_is_alone_loses_nothing():
  assert list(first_of([document(PROSE)])) == [document(PROSE)]


@given(st.lists(st.lists(st.sampled_from('abcdef'), min_size=1, max_size=5), min_size=1, max_size=8))
def test_every_paragraph_is_kept_at_exactly_one_place_in_any_order(texts):
  documents = [document(*paragraphs) for paragraphs in {tuple(paragraphs) for paragraphs in texts}]

  def kept(documents):
    places = sorted(itertools.chain.from_iterable(map(paragraph_places, documents)), reverse=True)
    least = dict(places)  # the least place comes last
    indices = {each.digest: [index for digest, index in least.values() if digest == each.digest] for each in documents}
    config = CorpusConfig(min_characters=1)
    found = [found for each in documents for found in keep_paragraphs([each, *indices[each.digest]], config)]
    return {each.digest: each for each in found if isinstance(each, Document)}, found

  left, found = kept(documents)
  assert left == kept(documents[::-1])[0]
  paragraphs = [paragraph for each in left.values() for paragraph in each.paragraphs]
  assert sorted(paragraphs) == sorted({paragraph for text in texts for paragraph in text})
  repeated = sum(each.count for each in found if isinstance(each, Lost) and each.reason == 'repeated paragraphs')
  assert repeated + len(paragraphs) == sum(len(each.paragraphs) for each in documents)


def test_a_document_of_which_too_little_is_left_is_a_loss():
  found = list(keep_paragraphs([document('eins zwei', 'x'), 1], CONFIG))
  assert found == [Lost('de', 'repeated paragraphs', 1), Lost('de', 'too short')]


def read(parts):
  """Documents and losses of all parts."""
  found = [each for part in parts for each in read_part(part)]
  documents = [each for each in found if isinstance(each, RawDocument)]
  return documents, {each.reason: each.count for each in found if isinstance(each, Lost)}


# --- plain text -------------------------------------------------------------------------------------------------------

TEXT = 'eins \r\nzwei\n\n\n \u3000\ndrei\n'


@pytest.mark.parametrize(
  ('ending', 'pack'), [('', bytes), ('.xz', lzma.compress), ('.gz', gzip.compress), ('.bz2', bz2.compress)]
)
def test_blank_lines_separate_documents_and_the_id_is_file_and_line(tmp_path, ending, pack):
  (tmp_path / f'de.txt{ending}').write_bytes(pack(TEXT.encode()))
  documents, lost = read(find_parts('text', str(tmp_path)))
  assert [document.text for document in documents] == ['eins\nzwei', 'drei']
  assert [document.id for document in documents] == [f'de.txt{ending}:1', f'de.txt{ending}:6']
  assert {document.title for document in documents} == {''}
  assert not lost


def test_a_truncated_archive_gives_what_precedes_the_damage_and_is_counted(tmp_path):
  (tmp_path / 'de.txt.gz').write_bytes(gzip.compress(b'eins\n\nzwei\n')[:-6])
  documents, lost = read(find_parts('text', str(tmp_path)))
  assert [document.text for document in documents] == ['eins', 'zwei']
  assert lost == {'truncated files': 1}


def test_languages_are_named_by_files_and_the_list_chooses_among_them(tmp_path):
  for name in 'de', 'iw', 'bg-Latn', 'zh_min_nan':
    (tmp_path / f'{name}.txt').write_text('x')
  (tmp_path / 'notes.md').write_text('x')
  languages = lambda *chosen: [part.language for part in find_parts('text', str(tmp_path), chosen or None)]
  assert languages() == ['bg-Latn', 'de', 'he', 'zh-min-nan']
  assert languages('bg-Latn', 'de') == ['bg-Latn', 'de']
  said = []
  assert [part.language for part in find_parts('text', str(tmp_path), ('mbert',), say=said.append)] == ['de', 'he']
  assert said[0].startswith('101 of the 103 Wikipedias of mbert are not there')
  with pytest.raises(UsageError, match='no text in sw') as caught:
    languages('de', 'sw')
  assert 'bg-Latn, de, he' in caught.value.fix[0]


# --- dumps ------------------------------------------------------------------------------------------------------------


def test_articles_have_the_title_and_id_of_their_page(tmp_path):
  (tmp_path / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(page('Donau', RIVER, 7), page('Stadt', TOWN, 9)))
  documents, lost = read(find_parts('dumps', str(tmp_path)))
  assert [(document.title, document.id) for document in documents] == [('Donau', '7'), ('Stadt', '9')]
  assert {document.language for document in documents} == {'de'}
  assert not lost


def test_bad_dumps_cost_what_is_bad_in_them_and_are_counted(tmp_path):
  good = [page(f'{index}', f'{text} {index}.') for index, text in enumerate([RIVER, TOWN, LAKE])]
  write = lambda name, content: (tmp_path / f'{name}-pages-articles.xml.bz2').write_bytes(content)
  write('dewiki-1', bz2.compress(dump_of(*good)))
  write('dewiki-2', bz2.compress(dump_of(*good)[:-40]))  # no closing tag, last page cut
  write('dewiki-3', bz2.compress(dump_of('<page><title>kaputt</page>', page('gut', RIVER))))
  (tmp_path / 'dewiki-4-pages-articles.xml').write_bytes(
    ('\ufeff' + dump_of(page('b', LAKE)).decode()).encode('utf-16')
  )
  write('dewiki-5', b'BZh9 no archive')
  (tmp_path / 'dewiki-6-pages-articles.xml').write_bytes(b'<html>404</html>')
  documents, lost = read(find_parts('dumps', str(tmp_path)))
  assert len(documents) == 3 + 2 + 1 + 1
  assert lost['damaged dumps'] == 1
  assert lost['broken pages'] == 1
  assert lost['truncated dumps'] == 1


def test_the_sample_corpus_has_twelve_languages():
  assert len(find_parts('dumps', 'sample')) == 12
  assert [part.language for part in find_parts('dumps', 'sample', ('sw', 'en'))] == ['en', 'sw']


@pytest.mark.parametrize('name', ['mbert', 'rembert'])
def test_the_languages_of_a_list_that_are_missing_are_named_in_one_line(tmp_path, name):
  for code in 'de', 'sw', 'ext':
    (tmp_path / f'{code}wiki-1-pages-articles.xml').write_bytes(dump_of())
  said = []
  assert [part.language for part in find_parts('dumps', str(tmp_path), (name,), say=said.append)] == ['de', 'sw']
  missing = said[0].partition(': ')[2].split(', ')
  assert {'he', 'zh', 'tl'} <= set(missing)
  assert {'de', 'sw', 'ext', 'hmn', 'iw'}.isdisjoint(missing)
  with pytest.raises(UsageError, match='no dump of fr'):
    find_parts('dumps', str(tmp_path), ('fr', name))


def test_a_dump_that_was_taken_away_is_an_error(tmp_path):
  (tmp_path / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(page('Donau', RIVER)))
  parts = find_parts('dumps', str(tmp_path))
  (tmp_path / 'dewiki-1-pages-articles.xml').unlink()
  with pytest.raises(UsageError, match='cannot open the dump'):
    read(parts)


# --- TensorFlow Datasets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('name', 'config', 'split', 'folder'),
  [
    ('wikipedia/20230601.{language}', '20230601.de', 'train', 'wikipedia/20230601.de'),
    ('wiki40b/{language}', 'de', 'train', 'wiki40b/de'),
    ('c4/multilingual[{language}]', 'multilingual', 'de', 'c4/multilingual'),
  ],
  ids=['wikipedia', 'wiki40b', 'c4'],
)
def test_datasets_are_read_in_ranges_of_examples(tmp_path, monkeypatch, name, config, split, folder):
  monkeypatch.setattr(corpus_documents, '_EXAMPLES_PER_PART', 7)
  documents = [{'title': f'T{index}', 'text': f'{RIVER} {index}.', 'id': f'{index}'} for index in range(20)]
  prepare_dataset(name.split('/')[0], {config: documents}, tmp_path, split=split)
  parts = find_parts('tfds', name, ('de',), data_dir=str(tmp_path))
  assert [(part.path, part.split, part.start, part.stop) for part in parts] == [
    (folder, split, start, min(20, start + 7)) for start in (0, 7, 14)
  ]
  documents, lost = read(parts)
  assert sorted((each.id, each.title, each.text) for each in documents) == sorted(
    (f'{index}', f'T{index}', f'{RIVER} {index}.') for index in range(20)
  )
  assert not lost


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  """TFDS's `wikipedia` in two languages."""
  folder = tmp_path_factory.mktemp('tfds')
  documents = {f'20230601.{language}': [{'title': 'T', 'text': RIVER}] for language in ('de', 'sw')}
  return str(prepare_dataset('wikipedia', documents, folder))


NAME = 'wikipedia/20230601.{language}'


def test_all_datasets_that_are_missing_are_in_one_error_with_the_alternatives(prepared):
  with pytest.raises(UsageError, match=r'cannot read wikipedia/20230601\.fr and 1 more') as caught:
    find_parts('tfds', NAME, ('sw', 'fr', 'ja'), data_dir=prepared)
  assert 'fr, ja' in caught.value.where
  assert 'tfds build wikipedia/20230601.fr' in caught.value.fix[0]
  assert '--gin.data.source=dumps --gin.data.dumps=FOLDER' in caught.value.fix[-1]


def test_of_a_list_those_datasets_are_read_that_are_prepared(prepared):
  said = []
  parts = find_parts('tfds', NAME, ('rembert',), data_dir=prepared, say=said.append)
  assert [part.language for part in parts] == ['de', 'sw']
  assert said[0].startswith('100 of the 102 Wikipedias of rembert')


def test_a_list_of_which_nothing_is_prepared_is_an_error_and_nothing_is_downloaded(tmp_path):
  with pytest.raises(UsageError, match=r'cannot read wikipedia/20230601\.af and 101 more') as caught:
    find_parts('tfds', NAME, ('rembert',), data_dir=str(tmp_path / 'empty'))
  assert 'it has not been prepared in' in str(caught.value)
  assert not (tmp_path / 'empty').exists()


@pytest.mark.parametrize(('name', 'languages'), [(NAME, None), ('wikipedia/20230601.de', ('de',))])
def test_a_dataset_needs_a_place_for_the_language_and_languages(name, languages):
  with pytest.raises(UsageError, match=r'needs \{language\} in its name, and a list of languages'):
    find_parts('tfds', name, languages)


def test_parts_are_small_and_can_be_sent_around():
  import pickle

  part = Part('de', 'dump', 'gs://bucket/dewiki.xml.bz2', size=10)
  assert pickle.loads(pickle.dumps(part)) == part
