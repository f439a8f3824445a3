import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.wikitext.variants import with_one_variant


@pytest.mark.parametrize(
  ('wikitext', 'text', 'language'),
  [
    ('一条-{zh-hans:软件; zh-hant:軟體}-河流在这里流动。', '一条软件河流在这里流动。', 'zh'),
    ('一条-{zh-tw:計程車;zh-hk:的士}-河流在这里流动。', '一条計程車河流在这里流动。', 'zh'),
    ('一条-{河}-流在-{H|zh-cn:甲;zh-tw:乙}-这里不停流动。', '一条河流在这里不停流动。', 'zh'),
    ('一条-{R|zh:河}-流。', '一条zh:河流。', 'zh'),
    ('-{-{zh-hans:甲;zh-hant:乙}-河}-', '甲河', 'zh'),
    ('Широка -{sr-ec:река;sr-el:reka}- тече на север.', 'Широка река тече на север.', 'sr'),
    ('-{кан=>kk-latn:qan}-', 'qan', 'kk'),
  ],
)
def test_of_several_variants_one_is_read(wikitext, text, language):
  assert with_one_variant(wikitext, language) == text


@given(st.text('-{}|:;zh TW=>河', max_size=30))
def test_an_edition_without_a_converter_shows_the_signs_as_they_are(text):
  assert with_one_variant(text, 'en') == text
