"""Documents: what is kept of a text, and where, depends on the text alone; what is left out is counted."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.corpus.documents import (
  CorpusConfig,
  Document,
  clean,
  digest_of,
  first_of,
  is_held_out,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
)
from tasks.corpus.sources import Lost, Part, RawDocument

CONFIG = CorpusConfig(min_characters=5)
PROSE = "Die '''Donau''' ist ein [[Fluss]] in Europa."


def raw(text, namespaces=None):
  return RawDocument('de', 'T', '1', text, namespaces)


def document(*paragraphs, title='', number=''):
  return Document('de', digest_of('\n'.join(paragraphs)), False, title, number, paragraphs)


# --- cleaning ---------------------------------------------------------------------------------------------------------


def test_an_article_becomes_a_document_of_clean_paragraphs():
  text = f'{{{{Infobox}}}}\n{PROSE}[[Ablage:X.jpg|thumb|a caption]]\n\n== Lauf ==\n{PROSE}\n== Weblinks ==\n* a b c'
  found = clean(raw(text, {6: 'Ablage'}), CONFIG)
  assert found.paragraphs == ('Die Donau ist ein Fluss in Europa.',) * 2
  assert (found.title, found.id, found.digest) == ('T', '1', digest_of(found.text))


def test_plain_text_becomes_nfc_with_single_spaces():
  found = clean(raw('Mto e\u0301 \t haraka\u00a0 sana.\n\nUna  samaki.'), CONFIG)
  assert found.text == 'Mto \u00e9 haraka sana.\nUna samaki.'


def test_marks_of_wiki40b_are_taken_out():
  text = '\n_START_ARTICLE_\nTitel\n_START_PARAGRAPH_\nEin Absatz._NEWLINE_Noch einer.'
  assert clean(raw(text), CONFIG).paragraphs == ('Titel', 'Ein Absatz.', 'Noch einer.')


def test_short_documents_and_broken_characters_are_losses():
  assert clean(raw('kurz'), CONFIG) == Lost('de', 'too short')
  text = b'Stra\xdfe am Fluss'.decode('utf-8', 'surrogateescape')
  assert clean(raw(text), CONFIG) == Lost('de', 'not UTF-8')
  assert clean(Lost('de', 'broken pages', 3), CONFIG) == Lost('de', 'broken pages', 3)


# --- splits and shards ------------------------------------------------------------------------------------------------


def test_whether_a_document_is_held_out_depends_on_its_text_alone():
  texts = [f'Fluss {i}' for i in range(2000)]
  assert 150 < sum(is_held_out(text, 0.1) for text in texts) < 250
  assert all(is_held_out(text, 0.3) for text in texts if is_held_out(text, 0.1))  # a larger share holds the smaller
  assert clean(raw('Fluss 0'), CorpusConfig(held_out=0.5, min_characters=1)).is_held_out == is_held_out('Fluss 0', 0.5)


def test_hashes_are_those_that_stores_were_made_with():
  assert digest_of('Fluss').hex() == '48b860fb620debbed98631fc70f146e8'
  assert [is_held_out(text, 0.5) for text in ('Fluss', 'Stadt', 'See', 'Meer')] == [True, True, False, False]


def test_shards_follow_from_the_bytes_of_input():
  parts = [Part('de', 'dump', 'a', size=100), Part('de', 'dump', 'b', size=101), Part('sw', 'text', 'c', size=1)]
  config = CorpusConfig(held_out=0.5, shard_bytes=50)
  assert numbers_of_shards(parts, config) == {
    'de': {'train': 5, 'validation': 2},
    'sw': {'train': 1, 'validation': 1},
  }


@pytest.mark.parametrize(
  'options', [{'held_out': 1.0}, {'held_out': float('nan')}, {'min_characters': 0}, {'shard_bytes': 0}]
)
def test_options_out_of_range_are_refused_by_name(options):
  with pytest.raises(UsageError, match=next(iter(options))):
    CorpusConfig(**options)


# --- deduplication ----------------------------------------------------------------------------------------------------


@given(st.permutations([('9', 'a'), ('10', 'z'), ('10', 'b'), ('', 'c')]))
def test_of_documents_with_one_text_the_smallest_id_and_title_is_kept_in_any_order(names):
  kept, lost = first_of(document(PROSE, title=title, number=number) for number, title in names)
  assert (kept.id, kept.title) == ('', 'c')
  assert lost == Lost('de', 'repeated documents', 3)


def test_a_document_that_is_alone_loses_nothing():
  assert list(first_of([document(PROSE)])) == [document(PROSE)]


@given(st.lists(st.lists(st.sampled_from('abcdef'), min_size=1, max_size=5), min_size=1, max_size=8))
def test_every_paragraph_is_kept_at_exactly_one_place_in_any_order(texts):
  documents = [document(*paragraphs) for paragraphs in {tuple(paragraphs) for paragraphs in texts}]

  def kept(documents):
    places = sorted(itertools.chain.from_iterable(map(paragraph_places, documents)), reverse=True)
    least = dict(places)  # the least place comes last
    indices = {each.digest: [index for digest, index in least.values() if digest == each.digest] for each in documents}
    config = CorpusConfig(min_characters=1)
    found = [found for each in documents for found in keep_paragraphs([each, *indices[each.digest]], config)]
    return {each.digest: each for each in found if isinstance(each, Document)}, found

  left, found = kept(documents)
  assert left == kept(documents[::-1])[0]
  paragraphs = [paragraph for each in left.values() for paragraph in each.paragraphs]
  assert sorted(paragraphs) == sorted({paragraph for text in texts for paragraph in text})
  repeated = sum(each.count for each in found if isinstance(each, Lost) and each.reason == 'repeated paragraphs')
  assert repeated + len(paragraphs) == sum(len(each.paragraphs) for each in documents)


def test_a_document_of_which_too_little_is_left_is_a_loss():
  found = list(keep_paragraphs([document('eins zwei', 'x'), 1], CONFIG))
  assert found == [Lost('de', 'repeated paragraphs', 1), Lost('de', 'too short')]
