import pytest

from tasks.wikipedia.languages import (
  boilerplate_headings,
  category_namespaces,
  file_namespaces,
  language_of_database,
)


@pytest.mark.parametrize(
  ('database', 'language'),
  [
    ('enwiki', 'en'),
    ('nowiki', 'no'),
    ('nbwiki', 'no'),
    ('iwwiki', 'he'),
    ('iw', 'he'),
    ('simplewiki', 'simple'),
    ('zh_min_nanwiki', 'zh-min-nan'),
    ('zh-min-nan', 'zh-min-nan'),
    ('be_x_oldwiki', 'be-tarask'),
    ('zh_classicalwiki', 'zh-classical'),
    ('roa_rupwiki', 'roa-rup'),
    ('srwiki', 'sr'),
    ('warwiki', 'war'),
  ],
)
def test_database_names_give_wikipedia_codes(database, language):
  assert language_of_database(database) == language


@pytest.mark.parametrize('database', ['commonswiki', 'wikidatawiki', 'metawiki', 'wikimania2013wiki', 'wiki', '', '  '])
def test_databases_that_are_no_language_edition_have_no_language(database):
  assert language_of_database(database) is None


def test_a_language_code_is_its_own_database_name():
  for code in ('en', 'de-formal', 'simple', 'zh-yue', 'be-tarask'):
    assert language_of_database(code) == code


@pytest.mark.parametrize(
  ('language', 'heading'),
  [
    ('en', 'see also'),
    ('de', 'einzelnachweise'),
    ('es', 'véase también'),
    ('fr', 'notes et références'),
    ('ru', 'примечания'),
    ('el', 'παραπομπές'),
    ('ar', 'مراجع'),
    ('hi', 'सन्दर्भ'),
    ('th', 'อ้างอิง'),
    ('zh', '參考文獻'),
    ('ja', '脚注'),
    ('sw', 'marejeo'),
  ],
)
def test_closing_sections_are_known_in_their_own_language_and_english_ones_everywhere(language, heading):
  assert heading.casefold() in boilerplate_headings(language)
  assert 'references' in boilerplate_headings(language)


def test_a_word_that_closes_articles_in_one_language_may_head_prose_in_another():
  assert 'note' in boilerplate_headings('it')
  assert 'note' not in boilerplate_headings('en')


def test_a_language_without_a_table_borrows_all_of_them():
  assert {'einzelnachweise', 'примечания', 'references'} <= boilerplate_headings('lb')


def test_namespace_names_are_case_folded_and_files_are_no_categories():
  for names in (file_namespaces(), category_namespaces()):
    assert all(name == name.casefold() == name.strip() and name for name in names)
  assert not file_namespaces() & category_namespaces()
  assert {'file', 'image', 'datei', 'файл', 'ไฟล์', 'ملف', 'चित्र', 'ファイル', 'picha'} <= file_namespaces()
  assert {'category', 'kategorie', 'категория', 'หมวดหมู่', 'تصنيف', 'श्रेणी', 'jamii'} <= category_namespaces()
