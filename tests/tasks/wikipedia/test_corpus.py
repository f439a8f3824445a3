"""Corpora: the same documents whichever way they are read, and plain words when there is nothing to read."""

import bz2
import itertools
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared_datasets import prepare_dataset

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from tasks.wikipedia import corpus as corpora
from tasks.wikipedia.corpus import ReadProgress, TfdsCorpus, open_corpus


def articles(count, word='bridge'):
  return {f'Place {n}': f'The {word} of place number {n} crosses a quiet river. ' * 3 for n in range(count)}


@pytest.fixture
def folder(tmp_path, write_dump):
  """German in two parts, Swahili in one."""
  write_dump(tmp_path, 'de', articles(40))
  write_dump(tmp_path, 'de', articles(20, 'tower'), part=2)
  write_dump(tmp_path, 'sw', articles(30, 'market'))
  return tmp_path


def opened(folder, **options):
  return open_corpus(DataConfig(dumps=str(folder), **{'held_out': 0.2} | options))


def told(error: UsageError) -> UsageError:
  """The error, after checking that it says what, where and what to do."""
  assert error.what
  assert error.where
  assert any(error.fix)
  return error


# --- dumps -----------------------------------------------------------------------------------------------------------


def test_documents_come_in_the_order_of_the_dumps_every_time(folder):
  corpus = opened(folder)
  assert corpus.languages == ('de', 'sw')
  titles = [document.title for document, _ in corpus.documents('de')]
  assert titles == [f'Place {n}' for n in itertools.chain(range(40), range(20))]
  assert list(corpus.documents('de')) == list(opened(folder).documents('de'))


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_a_split_of_the_seqio_source_is_what_documents_say_of_it(folder, split):
  corpus = opened(folder)
  expected = [document for document, is_held_out in corpus.documents('de') if is_held_out == (split == 'validation')]
  source = corpus.source('de')
  assert set(source.splits) == {'train', 'validation'}
  examples = list(source.get_dataset(split, shuffle=False).as_numpy_iterator())
  assert [(e['title'].decode(), e['text'].decode()) for e in examples] == [(d.title, d.text) for d in expected]
  assert {e['language'] for e in examples} == {b'de'}


def test_splits_share_no_document_and_leave_none_out(folder):
  corpus = opened(folder)
  texts = {
    split: [e['text'].decode() for e in corpus.source('de').get_dataset(split, shuffle=False).as_numpy_iterator()]
    for split in corpora.SPLITS
  }
  assert not set(texts['train']) & set(texts['validation'])
  everything = sorted(document.text for document, _ in corpus.documents('de'))
  assert sorted(texts['train'] + texts['validation']) == everything
  assert 0 < len(texts['validation']) < len(texts['train'])


def test_progress_runs_from_nothing_to_all(folder):
  progress = ReadProgress()
  fractions = [progress.fraction for _ in opened(folder).documents('de', progress)]
  assert all(0 < before <= after <= 1 for before, after in itertools.pairwise(fractions))
  assert progress.fraction == 1
  assert progress.counts.pages == 60


def test_the_fingerprint_changes_with_a_file_and_with_what_is_held_out(folder, write_dump):
  before = opened(folder).fingerprint()
  assert opened(folder).fingerprint() == before
  others = [opened(folder, held_out=0.3), opened(folder, min_characters=10), opened(folder, languages='de')]
  assert all(other.fingerprint() != before for other in others)
  write_dump(folder, 'sw', articles(31, 'market'))
  grown = opened(folder).fingerprint()
  assert grown != before
  write_dump(folder, 'sw', articles(1, 'harbour'), part=2)
  assert opened(folder).fingerprint() not in (before, grown)


def test_the_fingerprint_does_not_depend_on_where_the_files_lie(folder, tmp_path_factory):
  moved = shutil.copytree(folder, tmp_path_factory.mktemp('moved') / 'elsewhere')
  assert opened(moved).fingerprint() == opened(folder).fingerprint()


def test_the_sample_corpus_comes_with_the_project():
  corpus = open_corpus(DataConfig(languages=('sw', 'en')))
  assert corpus.languages == ('en', 'sw')
  assert sum(1 for _ in corpus.documents('en')) > 20


@pytest.mark.parametrize('name', ['mbert', 'rembert'])
def test_of_a_list_of_languages_those_that_are_there_are_taken_and_the_others_named_in_a_line(folder, name, write_dump):
  write_dump(folder, 'ext', articles(3))
  said = []
  corpus = open_corpus(DataConfig(dumps=str(folder), languages=name), said.append)
  assert corpus.languages == ('de', 'sw')
  (line,) = said
  assert f'Wikipedias of {name} are not there: ' in line
  missing = line.partition(': ')[2].split(', ')
  assert {'he', 'zh', 'tl'} <= set(missing)
  assert {'de', 'sw', 'ext', 'hmn', 'iw'}.isdisjoint(missing)


def test_a_code_beside_a_list_has_to_be_there(folder):
  assert opened(folder, languages='sw,mbert').languages == ('de', 'sw')
  with pytest.raises(UsageError, match='no dump of ext'):
    opened(folder, languages='ext,mbert')


def test_codes_alone_say_nothing(folder):
  said = []
  assert open_corpus(DataConfig(dumps=str(folder), languages='sw'), said.append).languages == ('sw',)
  assert not said


def test_a_list_of_which_nothing_is_there_is_an_error(tmp_path, write_dump):
  write_dump(tmp_path, 'ext', articles(3))
  with pytest.raises(UsageError, match='no dump of any of the 103 languages') as caught:
    opened(tmp_path, languages='mbert')
  assert 'ext' in told(caught.value).fix[0]


# --- dumps that are not there, or broken -----------------------------------------------------------------------------


def test_a_pattern_that_matches_nothing_is_told_with_what_is_there(folder):
  with pytest.raises(UsageError, match='no dump found') as caught:
    opened(f'{folder}/fr*.xml.bz2')
  assert 'dewiki-1-pages-articles1.xml.bz2' in ' '.join(told(caught.value).fix)


def test_a_folder_without_dumps_is_told_with_what_is_there(tmp_path):
  (tmp_path / 'notes.txt').write_text('nothing to read')
  with pytest.raises(UsageError, match='no dump found') as caught:
    opened(tmp_path)
  assert 'notes.txt' in ' '.join(told(caught.value).fix)


def test_a_language_without_a_dump_is_told_with_those_that_have_one(folder):
  with pytest.raises(UsageError, match='no dump of xh') as caught:
    opened(folder, languages=('de', 'xh'))
  assert 'de, sw' in ' '.join(told(caught.value).fix)


def _cut(file):
  file.write_bytes(file.read_bytes()[:60])


def _scrambled(file):
  file.write_bytes(b'BZh9' + bytes(range(200)))


def _emptied(file):
  file.write_bytes(b'')


def _empty_archive(file):
  file.write_bytes(bz2.compress(b''))


def _web_page(file):
  file.write_bytes(b'<html><body>404: no such dump</body></html>')


BREAKAGES = [_cut, _scrambled, _emptied, _empty_archive, _web_page]


@pytest.mark.parametrize('damage', BREAKAGES)
def test_a_language_whose_only_dump_is_broken_is_told_by_its_file(damage, folder):
  damage(folder / 'swwiki-1-pages-articles1.xml.bz2')
  corpus = opened(folder)
  with pytest.raises(UsageError) as caught:
    list(corpus.documents('sw'))
  assert 'swwiki-1-pages-articles1.xml.bz2' in told(caught.value).where
  assert sum(1 for _ in corpus.documents('de')) == 60


@pytest.mark.parametrize('damage', BREAKAGES)
@pytest.mark.parametrize(('part', 'left'), [(1, 20), (2, 40)])
def test_a_broken_dump_beside_a_whole_one_costs_itself_alone(damage, part, left, folder):
  damage(folder / f'dewiki-1-pages-articles{part}.xml.bz2')
  assert sum(1 for _ in opened(folder).documents('de')) == left


def test_a_dump_that_was_taken_away_is_told_though_another_is_left(folder):
  corpus = opened(folder)
  (folder / 'dewiki-1-pages-articles1.xml.bz2').unlink()
  dumps = {'de': corpus.dumps['de']}
  with pytest.raises(UsageError, match='cannot open the dump') as caught:
    list(corpora.read_documents(dumps['de'], split='all', held_out=0.0))
  told(caught.value)


def test_a_broken_page_costs_itself_alone_and_is_counted(tmp_path, write_dump):
  file = write_dump(tmp_path, 'de', articles(10))
  xml = bz2.decompress(file.read_bytes()).replace(b'<title>Place 3</title>', b'<title>Place 3</titel>')
  file.write_bytes(bz2.compress(xml))
  progress = ReadProgress()
  titles = [document.title for document, _ in opened(tmp_path).documents('de', progress)]
  assert titles == [f'Place {n}' for n in range(10) if n != 3]
  assert progress.counts.broken_pages == 1


# --- TensorFlow Datasets ---------------------------------------------------------------------------------------------

TFDS_NAME = 'wikipedia/20230601.{language}'
TFDS_DOCUMENTS = {'sw': 30, 'de': 7}


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  """TFDS's `wikipedia` in two languages, prepared on disk as `tfds build` leaves it."""
  documents = {
    f'20230601.{language}': [
      {'title': f'Mahali {number}', 'text': f'Soko la mahali {number} – lina watu wengi.'} for number in range(count)
    ]
    for language, count in TFDS_DOCUMENTS.items()
  }
  return prepare_dataset('wikipedia', documents, tmp_path_factory.mktemp('tfds'))


def open_tfds(folder, languages=('sw', 'de'), **options):
  return open_corpus(DataConfig(source='tfds', tfds_data_dir=str(folder), languages=languages, **options))


def test_tfds_documents_are_all_there_once_and_the_last_are_held_out(prepared):
  documents = list(open_tfds(prepared, held_out=0.1).documents('sw'))
  assert sorted(document.title for document, _ in documents) == sorted(f'Mahali {n}' for n in range(30))
  assert [is_held_out for _, is_held_out in documents] == [False] * 27 + [True] * 3
  assert documents[0][0].text == f'Soko la {documents[0][0].title.lower()} – lina watu wengi.'
  assert documents == list(open_tfds(prepared, held_out=0.1).documents('sw'))


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_a_split_of_the_tfds_source_is_what_documents_say_of_it(prepared, split):
  corpus = open_tfds(prepared, held_out=0.3)
  expected = [document for document, is_held_out in corpus.documents('sw') if is_held_out == (split == 'validation')]
  examples = corpus.source('sw').get_dataset(split, shuffle=False).as_numpy_iterator()
  assert [(e['title'].decode(), e['text'].decode()) for e in examples] == [(d.title, d.text) for d in expected]


@given(held_out=st.floats(0, 1, exclude_max=True))
def test_of_tfds_one_document_at_least_is_in_each_split(prepared, held_out):
  corpus = TfdsCorpus(tuple(TFDS_DOCUMENTS), TFDS_NAME, str(prepared), held_out)
  total, first_held_out = corpus._lengths('de')
  assert total == 7
  assert 1 <= first_held_out <= 6
  assert abs((total - first_held_out) - held_out * total) <= 1


def test_tfds_progress_ends_with_all(prepared):
  progress = ReadProgress()
  fractions = [progress.fraction for _ in open_tfds(prepared).documents('de', progress)]
  np.testing.assert_allclose(fractions, np.arange(1, 8) / 7)
  assert progress.counts is None


def test_the_tfds_fingerprint_names_datasets_and_the_held_out_share(prepared):
  before = open_tfds(prepared).fingerprint()
  assert before['datasets'] == ['wikipedia/20230601.sw', 'wikipedia/20230601.de']
  assert open_tfds(prepared).fingerprint() == before
  assert open_tfds(prepared, held_out=0.4).fingerprint() != before
  assert open_tfds(prepared, languages=('sw',)).fingerprint() != before


def test_all_datasets_that_are_missing_are_told_at_once_with_the_local_alternative(prepared):
  with pytest.raises(UsageError, match=r'cannot read wikipedia/20230601\.fr and 1 more') as caught:
    open_tfds(prepared, languages=('sw', 'fr', 'ja'))
  error = told(caught.value)
  assert 'fr, ja' in error.where
  assert 'sw' not in error.where
  assert '--gin.data.source=dumps --gin.data.dumps=FOLDER' in error.fix[-1]
  assert 'tfds build wikipedia/20230601.fr' in error.fix[0]


@pytest.mark.parametrize('options', [{'tfds': 'wikipedia/19990101.{language}'}, {'tfds': 'nothing/{language}'}])
def test_a_dataset_that_tfds_does_not_know_is_told(prepared, options):
  with pytest.raises(UsageError, match='TensorFlow Datasets cannot read') as caught:
    open_tfds(prepared, **options)
  told(caught.value)


def test_a_folder_without_tfds_data_is_told_and_not_filled(tmp_path):
  with pytest.raises(UsageError, match='it has not been prepared there') as caught:
    open_tfds(tmp_path / 'empty')
  assert str(tmp_path) in told(caught.value).where
  assert not (tmp_path / 'empty').exists()


def test_reading_never_begins_to_download(prepared, tmp_path):
  shutil.copytree(prepared, tmp_path / 'tfds')
  source = open_tfds(tmp_path / 'tfds', languages=('sw',)).source('sw')
  shutil.rmtree(tmp_path / 'tfds')
  with pytest.raises(Exception, match=r'(?i)not found|no such file|could not find'):
    list(source.get_dataset('train', shuffle=False))
  assert not (tmp_path / 'tfds').exists()


def test_tfds_wants_a_list_of_languages():
  with pytest.raises(UsageError, match='needs a list of languages') as caught:
    open_corpus(DataConfig(source='tfds'))
  told(caught.value)


def test_of_a_list_of_languages_tfds_gives_those_that_are_prepared(prepared):
  said = []
  data = DataConfig(source='tfds', tfds_data_dir=str(prepared), languages='rembert')
  assert open_corpus(data, said.append).languages == ('de', 'sw')
  assert len(said) == 1
  assert said[0].startswith('100 of the 102 Wikipedias of rembert')


def test_a_list_of_which_nothing_is_prepared_is_an_error(tmp_path):
  with pytest.raises(UsageError, match=r'cannot read wikipedia/20230601\.af and 101 more') as caught:
    open_corpus(DataConfig(source='tfds', tfds_data_dir=str(tmp_path / 'empty'), languages='rembert'))
  told(caught.value)
