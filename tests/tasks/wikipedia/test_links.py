import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia.links import (
  category_namespaces,
  file_namespaces,
  is_embedded,
  link_namespaces,
  link_text,
  with_plain_links_read,
)

# --- namespaces -------------------------------------------------------------------------------------------------------


def test_namespace_names_are_case_folded_and_files_are_no_categories():
  for names in (file_namespaces(), category_namespaces()):
    assert all(name == name.casefold() == name.strip() and name for name in names)
  assert not file_namespaces() & category_namespaces()
  assert {'file', 'image', 'datei', 'файл', 'ไฟล์', 'ملف', 'चित्र', 'ファイル', 'picha'} <= file_namespaces()
  assert {'category', 'kategorie', 'категория', 'หมวดหมู่', 'تصنيف', 'श्रेणी', 'jamii'} <= category_namespaces()


def test_a_wikis_own_names_stand_beside_those_of_all_editions():
  assert link_namespaces().files == file_namespaces()
  own = link_namespaces({-2: 'Ton', 6: 'Ablage', 14: 'Sachgruppe', 0: '', 10: 'Vorlage'})
  assert own.files == file_namespaces() | {'ton', 'ablage'}
  assert own.categories == category_namespaces() | {'sachgruppe'}


# --- links ------------------------------------------------------------------------------------------------------------


NAMESPACES = link_namespaces()


@pytest.mark.parametrize(
  ('content', 'shown'),
  [
    ('river', 'river'),
    ('sea|wide sea', 'wide sea'),
    ('Mouth (river)|', 'Mouth'),
    ('#Course|its course', 'its course'),
    (':de:Fluss|Fluss', 'Fluss'),
    (':fr:Fleuve', 'Fleuve'),
    (':Category:Rivers', 'Category:Rivers'),
    ('wikt:flow|flow', 'flow'),
    ('wikt:ebb', 'ebb'),
    ('Portal: Rivers|portal', 'portal'),
    ('the [[\n\nnext paragraph', 'the [[\n\nnext paragraph'),
  ],
)
def test_a_link_reads_as_its_label_or_else_as_its_target(content, shown):
  assert link_text(content, NAMESPACES) == shown


@pytest.mark.parametrize(
  'content',
  [
    *('de:Fluss', 'fr:Fleuve', 'zh-min-nan:Hô', 'simple:River', 'Category:Rivers|*', 'Kategorie:Flüsse'),
    *("File:X.jpg|thumb|A [[bank]] and ''mud''.", 'Datei:X.jpg|mini|hoch=1', 'ไฟล์:X.jpg|thumb', 'media:X.ogg|listen'),
    'Xyz:Unknown.svg|20px',
  ],
)
def test_links_to_pictures_categories_and_other_editions_show_nothing(content):
  assert link_text(content, NAMESPACES) == ''


def test_a_picture_is_known_by_its_namespace_or_by_the_ending_of_its_name():
  assert is_embedded('Datei:Karte', NAMESPACES)
  assert is_embedded('Ablage:Karte.svg', NAMESPACES)
  assert not is_embedded('Ablage:Karte', NAMESPACES)
  assert is_embedded('Ablage:Karte', link_namespaces({6: 'Ablage'}))
  assert not is_embedded('Karte.svg', NAMESPACES)


def test_links_that_lack_a_bracket_are_read_all_the_same():
  half = 'A [[Danube|blue river] flows [Rhine|Rhenish]] on.'
  assert with_plain_links_read(half) == 'A blue river flows Rhenish on.'


_WORDS = st.text('abc dé川 (),.-', min_size=1, max_size=12).filter(str.strip)


@given(_WORDS, st.none() | _WORDS)
def test_plain_links_read_by_pattern_as_they_read_by_the_scanner(target, label):
  content = target if label is None else f'{target}|{label}'
  by_pattern = with_plain_links_read(f'x [[{content}]] y')
  assert by_pattern.split() == f'x {link_text(content, NAMESPACES)} y'.split()
