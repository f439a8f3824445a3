import pytest

from tasks.wikipedia.languages import language_of_database


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
