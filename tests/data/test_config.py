"""What is asked for is checked when it is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.config import SAMPLE, DataConfig, VocabularyConfig
from rembert.errors import UsageError


def test_nothing_asked_for_is_the_sample_corpus_in_all_its_languages():
  config = DataConfig()
  assert (config.source, config.dumps, config.languages) == ('dumps', SAMPLE, None)
  assert VocabularyConfig().path is None


@pytest.mark.parametrize('languages', ['de,sw', ' de , sw ', ['de', 'sw'], ('de', 'sw')])
def test_languages_may_be_a_list_or_a_string_with_commas(languages):
  assert DataConfig(languages=languages).languages == ('de', 'sw')


def test_a_pattern_of_dumps_stays_a_string_and_a_list_becomes_a_tuple():
  assert DataConfig(dumps='a,b').dumps == 'a,b'
  assert DataConfig(dumps=['a', 'b']).dumps == ('a', 'b')


def test_configurations_that_mean_the_same_are_equal_and_can_be_keys():
  assert len({DataConfig(languages='de,sw'), DataConfig(languages=['de', 'sw'])}) == 1


@given(st.floats(0, 1, exclude_max=True))
def test_any_share_below_one_may_be_held_out(held_out):
  assert DataConfig(held_out=held_out).held_out == held_out


@given(st.floats(max_value=0, exclude_max=True) | st.floats(min_value=1) | st.just(float('nan')))
def test_a_share_that_is_none_is_refused_with_its_value(held_out):
  with pytest.raises(UsageError, match='held_out must be') as caught:
    DataConfig(held_out=held_out)
  assert caught.value.where == f'data.held_out = {held_out}'


@pytest.mark.parametrize('field', ['max_share', 'max_upsampling'])
@pytest.mark.parametrize('value', [0, -1, float('nan'), 0.5, 1, 7])
def test_limits_that_no_corpus_could_keep_are_refused(field, value):
  if (0 < value <= 1) if field == 'max_share' else value >= 1:
    assert getattr(DataConfig(**{field: value}), field) == value
    return
  with pytest.raises(UsageError) as caught:
    DataConfig(**{field: value})
  assert caught.value.where == f'data.{field} = {value}'


def test_a_store_has_to_be_named():
  with pytest.raises(UsageError, match='no token store is named'):
    DataConfig(source='store')


@pytest.mark.parametrize(
  ('fields', 'named', 'fix'),
  [
    ({'mixture': 'm', 'corpus': 'c'}, "data.corpus = 'c'", '--gin.data.corpus=None'),
    ({'mixture': 'm', 'dumps': 'd'}, "data.dumps = 'd'", '--gin.data.dumps=sample'),
    ({'corpus': 'c', 'dumps': 'd'}, "data.dumps = 'd'", '--gin.data.dumps=sample'),
    ({'corpus': 'c', 'source': 'store', 'store': 's'}, "data.store = 's'", '--gin.data.source=dumps'),
    ({'mixture': 'm', 'languages': 'de'}, "data.languages = ('de',)", '--gin.data.languages=None'),
    (
      {'mixture': 'm', 'alpha': 0.7, 'max_share': 0.5},
      'data.alpha = 0.7, data.max_share = 0.5',
      '--gin.data.alpha=0.5',
    ),
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
