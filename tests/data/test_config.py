"""What is asked for is checked when it is asked for."""

import pytest

from rembert.data.config import DataConfig
from rembert.errors import UsageError


def test_languages_may_be_a_list_or_a_string_with_commas_and_a_pattern_of_dumps_stays_a_string():
  for languages in 'de,sw', ' de , sw ', ['de', 'sw'], ('de', 'sw'):
    assert DataConfig(languages=languages).languages == ('de', 'sw')
  assert DataConfig(dumps='a,b').dumps == 'a,b'
  assert DataConfig(dumps=['a', 'b']).dumps == ('a', 'b')


@pytest.mark.parametrize(('source', 'what'), [('store', r'data\.store is not set'), ('text', r'data\.text is not set')])
def test_a_store_and_text_have_to_be_named(source, what):
  with pytest.raises(UsageError, match=what):
    DataConfig(source=source)
  assert DataConfig(source='text', corpus='c').text is None


@pytest.mark.parametrize(
  ('fields', 'named', 'fix'),
  [
    ({'mixture': 'm', 'corpus': 'c'}, "data.corpus = 'c'", '--gin.data.corpus=None'),
    ({'corpus': 'c', 'dumps': 'd'}, "data.dumps = 'd'", '--gin.data.dumps=sample'),
    ({'corpus': 'c', 'source': 'text', 'text': 't'}, "data.text = 't'", '--gin.data.text=None'),
    ({'corpus': 'c', 'source': 'store', 'store': 's'}, "data.store = 's'", '--gin.data.source=dumps'),
    ({'mixture': 'm', 'languages': 'de'}, "data.languages = ('de',)", '--gin.data.languages=None'),
    ({'mixture': 'm', 'alpha': 0.7, 'max_share': 0.5}, 'data.alpha = 0.7, data.max_share', '--gin.data.alpha=0.5'),
  ],
)
def test_settings_that_contradict_each_other_are_one_error(fields, named, fix):
  with pytest.raises(UsageError, match=r'data\.\w+ (names|has)') as caught:
    DataConfig(**fields)
  assert named in caught.value.where
  assert fix in caught.value.fix[0]


def test_a_mixture_or_a_corpus_is_enough_whatever_the_source_of_a_preset():
  assert DataConfig(source='tfds', corpus='c', languages='rembert', alpha=0.7).corpus == 'c'
  assert DataConfig(source='tfds', mixture='m').mixture == 'm'
  assert DataConfig(source='store', store='s', dumps='d').store == 's'
