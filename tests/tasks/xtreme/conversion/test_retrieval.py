"""Tatoeba's translations in another order, and BUCC's pairs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xtreme_archives import tar_of

from rembert.errors import UsageError
from tasks.xtreme.bucc2018 import Bucc2018
from tasks.xtreme.conversion.tatoeba import files_of
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.tatoeba import Tatoeba

LINE = st.text(st.characters(categories=['L', 'N', 'P', 'Zs']), min_size=1).map(str.strip).filter(bool)


def test_translations_are_sorted_and_labels_find_them(convert):
  files = convert('tatoeba')
  assert len(files) == 3 * 36
  assert files['tatoeba/sw-en.sw'] == 'drei (sw)\neins\nzwei\n'
  assert files['tatoeba/sw-en.en'] == 'one\nthree\ntwo\n'
  assert files['labels/tatoeba/test-sw.tsv'] == '1\n0\n2\n'


@given(st.lists(LINE, min_size=1))
def test_a_label_is_the_line_of_the_translation(english):
  _, texts, labels = (file.content for file in files_of('de', english, english))
  lines = texts.split('\n')[:-1]
  assert lines == sorted(english)
  places = [int(label) for label in labels.split()]
  assert sorted(places) == list(range(len(english)))
  assert [lines[place] for place in places] == english


def test_sides_of_other_lengths_are_refused(convert):
  with pytest.raises(UsageError, match='3 sentences and 2 translations'):
    convert('tatoeba', {'tatoeba.swh-eng.eng': b'one\ntwo\n'})


def test_the_sample_is_dev_and_the_training_set_is_test(convert):
  files = convert('bucc2018')
  assert len(files) == 6 * 4
  assert files['bucc2018/ru-en.dev.ru'] == 'ru-1\teins\nru-2\tzwei\n'
  assert files['bucc2018/ru-en.dev.gold'] == files['labels/bucc2018/test-ru.tsv'] == 'ru-1\ten-2\n'
  assert 'bucc2018/ru-en.test.gold' not in files


def test_an_archive_without_pairs_is_refused(convert):
  members = {'bucc2018/de-en/de-en.sample.de': 'de-1\ta\n', 'bucc2018/de-en/de-en.sample.en': 'en-1\tb\n'}
  with pytest.raises(UsageError, match=r'the archive has no de-en\.sample\.gold'):
    convert('bucc2018', {'bucc2018-de-en.sample-gold.tar.bz2': tar_of(members, 'bz2')})


def test_what_is_made_can_be_read(convert, tmp_path):
  for path, content in (convert('tatoeba') | convert('bucc2018')).items():
    (tmp_path / 'made' / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / 'made' / path).write_text(content, 'utf-8')
  folder = XtremeFolder(tmp_path / 'made')
  examples = Tatoeba().examples(folder, 'zh')
  assert [examples.english[line] for line in examples.gold] == ['three', 'one', 'two']
  assert Bucc2018().examples(folder, 'zh').test.gold == {('zh-1', 'en-2')}


@pytest.mark.parametrize('language', ['de', 'jv', 'zh'])
def test_real_files_are_made_from_pairs_in_their_order(shared_data, language):
  folder = XtremeFolder(shared_data / 'xtreme')
  examples = Tatoeba().examples(folder, language)
  english = [examples.english[line] for line in examples.gold]
  for file in files_of(language, examples.source, english):
    assert file.content == (shared_data / 'xtreme' / file.path).read_text('utf-8')
