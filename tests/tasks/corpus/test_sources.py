"""Sources: every document once with its title and id, what is broken counted, languages chosen by code or list."""

import bz2
import gzip

import pytest
from made_up_dumps import LAKE, RIVER, TOWN, dump_of, page
from prepared_datasets import prepare_dataset
from small_corpora import find_parts

from rembert.errors import UsageError
from tasks.corpus import sources
from tasks.corpus.sources import Lost, RawDocument, read_together


def read(parts):
  """Documents and losses of all parts."""
  found = [each for part in parts for each in read_together([part])]
  documents = [each for each in found if isinstance(each, RawDocument)]
  return documents, {each.reason: each.count for each in found if isinstance(each, Lost)}


# --- plain text -------------------------------------------------------------------------------------------------------


def test_blank_lines_separate_documents_and_the_id_is_file_and_line(tmp_path):
  (tmp_path / 'de.txt.gz').write_bytes(gzip.compress('eins \r\nzwei\n\n\n \u3000\ndrei\n'.encode()))
  documents, lost = read(find_parts('text', str(tmp_path)))
  assert [document.text for document in documents] == ['eins\nzwei', 'drei']
  assert [document.id for document in documents] == ['de.txt.gz:1', 'de.txt.gz:6']
  assert {document.title for document in documents} == {''}
  assert not lost


def test_languages_are_named_by_files_and_the_list_chooses_among_them(tmp_path):
  for name in 'de', 'iw', 'bg-Latn', 'zh_min_nan':
    (tmp_path / f'{name}.txt').write_text('x')
  (tmp_path / 'notes.md').write_text('x')
  languages = lambda *chosen: [part.language for part in find_parts('text', str(tmp_path), chosen or None)]
  assert languages() == ['bg-Latn', 'de', 'he', 'zh-min-nan']
  assert languages('bg-Latn', 'de') == ['bg-Latn', 'de']
  assert len(find_parts('dumps', 'sample')) == 12


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
  assert len(documents) == 3 + 2 + 1
  assert lost['damaged dumps'] == 1
  assert lost['broken pages'] == 1
  assert lost['truncated dumps'] == 1


def test_a_dump_that_was_removed_is_an_error(tmp_path):
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
    ('c4/multilingual[{language}]', 'multilingual', 'de', 'c4/multilingual'),
  ],
  ids=['wikipedia', 'c4'],
)
def test_datasets_are_read_in_ranges_of_examples(tmp_path, monkeypatch, name, config, split, folder):
  monkeypatch.setattr(sources, '_EXAMPLES_PER_PART', 7)
  documents = [{'title': f'T{index}', 'text': f'{RIVER} {index}.', 'id': f'{index}'} for index in range(20)]
  prepare_dataset(name.split('/')[0], {config: documents}, tmp_path, split=split)
  parts = find_parts('tfds', name, ('de',), tfds_data_dir=str(tmp_path))
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
    find_parts('tfds', NAME, ('sw', 'fr', 'ja'), tfds_data_dir=prepared)
  assert 'fr, ja' in caught.value.where
  assert 'tfds build wikipedia/20230601.fr' in caught.value.fix[0]
  assert '--gin.data.source=dumps --gin.data.dumps=FOLDER' in caught.value.fix[-1]


def test_of_a_list_those_datasets_are_read_that_are_prepared(prepared):
  said = []
  parts = find_parts('tfds', NAME, ('rembert',), tfds_data_dir=prepared, say=said.append)
  assert [part.language for part in parts] == ['de', 'sw']
  assert said[0].startswith('100 of the 102 Wikipedias of rembert')


@pytest.mark.parametrize(('name', 'languages'), [(NAME, None), ('wikipedia/20230601.de', ('de',))])
def test_a_dataset_needs_a_place_for_the_language_and_languages(name, languages):
  with pytest.raises(UsageError, match=r'needs \{language\} in its name, and a list of languages'):
    find_parts('tfds', name, languages)
