import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.sentences import count_sentences


@pytest.mark.parametrize(
  ('text', 'language', 'count'),
  [
    ('A river flows. It is wide! Is it deep? Yes…', 'en', 4),
    ('It is 3.5 km long, e.g. near J. S. Bach St. It ends.', 'en', 2),
    ('"It flows." He left. (It ended.)', 'en', 3),
    ('No terminator at all', 'en', 1),
    ('川は流れる。長い！深い？', 'ja', 3),
    ('河流很长。它流入大海。', 'zh', 2),
    ('नदी बहती है। वह चौड़ी है॥', 'hi', 2),
    ('يجري النهر. هل هو عميق؟ نعم!', 'ar', 3),
    ('دریا بہتا ہے۔ وہ چوڑا ہے۔', 'ur', 2),
    ('Գետը հոսում է։ Այն լայն է:', 'hy', 2),
    ('ወንዙ ይፈሳል። ሰፊ ነው፧', 'am', 2),
    ('မြစ်သည် စီးဆင်းသည်။ ကျယ်ဝန်းသည်။', 'my', 2),
    ('ទន្លេហូរ។ វាធំ។', 'km', 2),
    ('Ο ποταμός κυλά. Είναι βαθύς; Ναι.', 'el', 3),
    ('แม่น้ำไหลลงสู่ทะเลกว้าง น้ำในแม่น้ำลึกและเย็นมาก', 'th', 2),
    ('แม่น้ำ 3 กม.', 'th', 1),
    ('Река течёт. Она широка.', 'ru', 2),
  ],
)
def test_sentences_are_counted_in_every_script(text, language, count):
  assert count_sentences([text], language) == count


def test_every_paragraph_counts_at_least_one_sentence():
  assert count_sentences(['a river', 'A river. A sea.', 'the end'], 'en') == 4
  assert count_sentences([], 'en') == 0


@given(st.lists(st.text(), max_size=5), st.sampled_from(['en', 'th', 'el', 'hy', 'zh']))
def test_paragraphs_count_one_by_one(paragraphs, language):
  assert count_sentences(paragraphs, language) == sum(count_sentences([p], language) for p in paragraphs)
