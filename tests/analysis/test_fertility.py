"""Scripts by their letters, and fertility beside scores."""

import pytest
from scipy import stats

from rembert.analysis.fertility import by_script, correlate, script_of


@pytest.mark.parametrize(
  ('text', 'script'),
  [
    ('Der Fluß fließt, 1234!', 'LATIN'),
    ('Река течёт (river)', 'CYRILLIC'),
    ('河流穿過城市', 'CJK'),
    ('川が街を流れる', 'KANA+CJK'),
    ('강이 도시를 흐른다', 'HANGUL'),
    ('नदी शहर से बहती है', 'DEVANAGARI'),
    ('1234 !?', ''),
  ],
)
def test_a_script_is_that_of_most_letters(text, script):
  assert script_of(text) == script


COLUMNS = ('script', 'pieces_per_word', 'pieces_per_character', 'score')
BY_LANGUAGE = {
  'en': dict(zip(COLUMNS, ('LATIN', 1.2, 0.25, 90.0), strict=True)),
  'de': dict(zip(COLUMNS, ('LATIN', 1.5, 0.26, 80.0), strict=True)),
  'sw': dict(zip(COLUMNS, ('LATIN', 2.0, 0.4, 60.0), strict=True)),
  'ru': dict(zip(COLUMNS, ('CYRILLIC', 1.8, 0.3, 75.0), strict=True)),
  'zh': dict(zip(COLUMNS, ('CJK', None, 0.7, 50.0), strict=True)),
  'xx': dict(zip(COLUMNS, ('CYRILLIC', 1.0, 0.1, None), strict=True)),
}


def test_only_languages_with_fertility_and_score_are_correlated():
  words = correlate(BY_LANGUAGE, 'word', samples=20)
  assert words['languages'] == 4
  expected = stats.spearmanr([1.2, 1.5, 2.0, 1.8], [90, 80, 60, 75]).statistic
  assert words['rho'] == pytest.approx(100 * expected)
  assert correlate(BY_LANGUAGE, 'character', samples=20)['languages'] == 5
  assert correlate({}, 'word')['rho'] is None


def test_scripts_are_means_over_their_languages():
  found = by_script(BY_LANGUAGE)
  assert list(found) == ['LATIN', 'CYRILLIC', 'CJK']
  assert found['LATIN']['pieces_per_word'] == pytest.approx((1.2 + 1.5 + 2.0) / 3)
  assert found['CYRILLIC'] == {
    'languages': 2,
    'pieces_per_word': pytest.approx(1.4),
    'pieces_per_character': pytest.approx(0.2),
    'score': 75.0,
  }
  assert found['CJK']['pieces_per_word'] is None
  unscored = {'en': BY_LANGUAGE['en'] | {'score': None}}
  assert by_script(unscored)['LATIN']['score'] is None
