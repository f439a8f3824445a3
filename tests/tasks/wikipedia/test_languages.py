"""Codes, editions and databases; the languages of multilingual BERT and of RemBERT, counted."""

import pytest

from rembert.errors import UsageError
from tasks.wikipedia.languages import (
  LISTS,
  MBERT,
  REMBERT,
  ROMANISED,
  WITHOUT_EDITION,
  chosen_languages,
  edition_of,
  language_of_database,
  without_lists,
)


def test_database_names_give_wikipedia_codes_or_none_where_they_are_no_language_edition():
  expected = {
    **{'enwiki': 'en', 'de-formal': 'de-formal', 'nowiki': 'no', 'nbwiki': 'no', 'iwwiki': 'he', 'iw': 'he'},
    **{'simplewiki': 'simple', 'zh_min_nanwiki': 'zh-min-nan', 'zh-min-nan': 'zh-min-nan', 'srwiki': 'sr'},
    **{'be_x_oldwiki': 'be-tarask', 'zh_classicalwiki': 'zh-classical', 'roa_rupwiki': 'roa-rup', 'warwiki': 'war'},
    **dict.fromkeys(('commonswiki', 'wikidatawiki', 'metawiki', 'wikimania2013wiki', 'wiki', '', '  ')),
  }
  assert {database: language_of_database(database) for database in expected} == expected


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(('name', 'codes', 'count'), [('mbert', 104, 103), ('rembert', 110, 102)])
def test_a_list_has_as_many_codes_as_was_published_and_each_is_a_wikipedia_or_known_to_be_none(name, codes, count):
  assert len(LISTS[name]) == len(set(LISTS[name])) == codes
  editions = {code: edition_of(code) for code in LISTS[name]}
  assert {code for code, edition in editions.items() if edition is None} == WITHOUT_EDITION & set(LISTS[name])
  there = sorted({edition for edition in editions.values() if edition is not None})
  assert without_lists([name]) == ((), tuple(there))
  assert len(there) == count
  assert [language_of_database(f'{edition}wiki') for edition in there] == there
  assert [edition_of(edition) for edition in there] == there


def test_rembert_is_what_its_card_names_and_seven_more():
  card = {*REMBERT, 'zh'} - {'zh-Hans', 'zh-Hant', *ROMANISED}
  assert len(card) == 103
  assert {'bs', 'hr', 'iw', 'fil', 'hmn', 'zu'} <= card
  assert {'tl', 'he', 'nb', 'und'}.isdisjoint(REMBERT)


def test_codes_of_the_crawl_are_mapped_to_wikipedias():
  expected = {'iw': 'he', 'no': 'no', 'nb': 'no', 'fil': 'tl', 'jv': 'jv', 'zh-Hans': 'zh', 'zh-Hant': 'zh'}
  expected |= {**dict.fromkeys(('hmn', *ROMANISED)), 'haw': 'haw', 'ceb': 'ceb', 'sr': 'sr', 'simple': 'simple'}
  assert {code: edition_of(code) for code in expected} == expected


def test_lists_may_stand_among_codes_and_overlap():
  codes, editions = without_lists(('ext', 'mbert', 'iw', 'rembert'))
  assert codes == ('ext', 'iw')
  assert set(editions) == set(without_lists(['mbert'])[1]) | set(without_lists(['rembert'])[1])


def test_languages_are_chosen_by_code_edition_or_list_of_what_is_there():
  there, said = ('he', 'zh-min-nan', 'de', 'bg-Latn'), []
  choose = lambda *languages: chosen_languages(languages or None, there, where='here', say=said.append)
  assert choose() == ['bg-Latn', 'de', 'he', 'zh-min-nan']
  assert choose('zh_min_nan', 'iw', 'bg-Latn') == ['bg-Latn', 'he', 'zh-min-nan']
  assert not said
  assert choose('mbert', 'bg-Latn') == ['bg-Latn', 'de', 'he']
  assert said[0].startswith('101 of the 103 Wikipedias of mbert are missing: af, ')
  with pytest.raises(UsageError, match='no text in zh-min-na') as caught:
    choose('de', 'zh-min-na')
  assert caught.value.fix == ["did you mean 'zh-min-nan' for 'zh-min-na'?", 'choose among bg-Latn, de, he, zh-min-nan']
  with pytest.raises(UsageError, match='no text in mbert'):
    chosen_languages(('mbert',), ('ext',), where='here')


def test_every_edition_of_the_real_dumps_is_understood(shared_data):
  databases = sorted(path.name.removesuffix('-mini.xml.bz2') for path in (shared_data / 'dumps' / 'mini').iterdir())
  if not databases:
    pytest.skip('no dumps there')
  editions = [language_of_database(database) for database in databases]
  assert None not in editions
  assert len(set(editions)) == len(databases)
  assert len(set(editions) & {edition_of(code) for code in MBERT}) > 70
