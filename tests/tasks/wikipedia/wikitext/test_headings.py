import pytest

from tasks.wikipedia.wikitext.headings import boilerplate_headings


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


def test_titles_are_case_folded_and_none_is_empty():
  assert all(title == title.casefold() == title.strip() and title for title in boilerplate_headings('lb'))
