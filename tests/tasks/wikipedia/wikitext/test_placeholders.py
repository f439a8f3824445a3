from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext import placeholders

_TEXT = st.text().map(placeholders.without_placeholders)
_MARKUP = set("[]{}<>|'=*#:;_!-")


@given(_TEXT)
def test_what_is_hidden_holds_no_markup_and_comes_back(text):
  hidden = placeholders.hide(text)
  assert not set(hidden) & _MARKUP
  assert len(hidden) == len(text)
  assert placeholders.unhide(hidden) == text
  assert placeholders.unhide(placeholders.hide_separators(text)) == text


@given(_TEXT)
def test_a_shield_within_what_is_hidden_is_undone_alone(text):
  hidden = placeholders.hide_separators(text)
  assert placeholders.unshield(placeholders.shield(hidden)) == hidden
  assert not set(placeholders.shield(text)) & set("[]<>'&:/")


@given(st.text(st.characters(min_codepoint=0xFDC0, max_codepoint=0xFDFF)))
def test_stand_ins_that_come_with_a_text_are_dropped(text):
  kept = placeholders.without_placeholders(text)
  assert kept == placeholders.unhide(placeholders.unshield(kept))


def test_marks_leave_nothing():
  assert placeholders.unhide(f'a{placeholders.NOTHING}b{placeholders.UNCLOSED}') == 'ab'
