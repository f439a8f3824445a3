"""Surveys count exactly, extrapolate in proportion, and no vocabulary is trained on held-out text."""

import bz2
import dataclasses
import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from tasks.survey import LanguageStatistics, sample_text, spread, survey, survey_language
from tasks.wikipedia import dumps
from tasks.wikipedia.corpus import open_corpus
from tasks.wikipedia.documents import Document, is_held_out


@dataclasses.dataclass
class ListedCorpus:
  """Documents given as (text, is_held_out), read at an even pace; remembers how many were asked for."""

  listed: dict[str, list[tuple[str, bool]]]
  asked_for: int = 0

  @property
  def languages(self):
    return tuple(self.listed)

  def documents(self, language, progress=None):
    for number, (text, held_out) in enumerate(self.listed[language], 1):
      self.asked_for += 1
      if progress is not None:
        progress.fraction = number / len(self.listed[language])
      yield Document(language=language, title=str(number), text=text), held_out


_DOCUMENTS = st.lists(st.tuples(st.text('ab. \n', min_size=1, max_size=30), st.booleans()), max_size=12)


# --- counting --------------------------------------------------------------------------------------------------------

GATE = "The '''gate''' is old. It was built in stone! Who built it?"
WALL = (
  'A [[wall]] runs along the hill.\n\n== Stones ==\n* grey stones from the valley\n* red stones. And a few white ones.'
)


def test_a_dump_written_by_hand_is_counted_to_the_character(tmp_path, write_dump):
  file = write_dump(tmp_path, 'en', {'Gate': GATE, 'Gate again': GATE, 'Wall': WALL, 'Stub': 'Too short.'})
  cleaned = {
    'Gate': ['The gate is old. It was built in stone! Who built it?'],
    'Wall': ['A wall runs along the hill.', 'grey stones from the valley', 'red stones. And a few white ones.'],
  }
  texts = ['\n'.join(paragraphs) for paragraphs in cleaned.values()]
  counts = survey(open_corpus(DataConfig(dumps=str(file), held_out=0.0, min_characters=20)), limit=100)
  assert counts == {
    'en': LanguageStatistics(documents=2, held_out=0, sentences=3 + 4, characters=sum(map(len, texts)), read=1.0)
  }


def test_held_out_documents_are_counted_apart(tmp_path, write_dump):
  articles = {f'House {n}': f'House number {n} has a garden. It has a door too.' for n in range(200)}
  write_dump(tmp_path, 'en', articles)
  counts = survey(open_corpus(DataConfig(dumps=str(tmp_path), held_out=0.2, min_characters=10)), limit=1000)['en']
  held_out = sum(is_held_out(text, 0.2) for text in articles.values())
  assert 0 < held_out < 100
  assert (counts.documents, counts.held_out) == (200 - held_out, held_out)
  assert counts.sentences == 2 * counts.documents


def test_broken_pages_are_counted(tmp_path, write_dump):
  file = write_dump(tmp_path, 'en', {'Gate': GATE * 3, 'Wall': WALL * 3, 'Hill': 'A hill above the valley. ' * 9})
  xml = bz2.decompress(file.read_bytes()).replace(b'<title>Wall</title>', b'<title>Wall')
  file.write_bytes(bz2.compress(xml))
  counts = survey(open_corpus(DataConfig(dumps=str(tmp_path), held_out=0.0)), limit=100)['en']
  assert (counts.documents, counts.broken_pages) == (2, 1)


@given(_DOCUMENTS)
def test_without_a_limit_nothing_is_extrapolated(documents):
  counts = survey_language(ListedCorpus({'en': documents}), 'en', limit=len(documents) + 1)
  training = [text for text, held_out in documents if not held_out]
  assert counts.read == 1
  assert (counts.documents, counts.held_out) == (len(training), len(documents) - len(training))
  assert counts.characters == sum(map(len, training))
  assert counts.sentences >= len(training)


# --- extrapolating ---------------------------------------------------------------------------------------------------


@given(limit=st.integers(1, 60), total=st.integers(1, 60))
def test_a_limit_reads_no_further_and_extrapolates_in_proportion(limit, total):
  corpus = ListedCorpus({'en': [('One sentence. Another one.', False)] * total})
  counts = survey_language(corpus, 'en', limit)
  assert corpus.asked_for == min(limit, total)
  assert counts.read == min(1.0, limit / total)
  assert abs(counts.documents - total) <= 0.5 + 1e-6
  assert abs(counts.sentences - 2 * total) <= 0.5 + 1e-6
  assert abs(counts.characters - 26 * total) <= 0.5 + 1e-6


def test_a_limited_survey_of_a_dump_comes_near_the_whole(tmp_path, write_dump, monkeypatch):
  monkeypatch.setattr(dumps, '_CHUNK', 4096)  # the share that has been read is known by whole chunks
  packed = write_dump(
    tmp_path, 'en', {f'{n}': f'House number {n} has a garden. It has a door too.' for n in range(500)}
  )
  (tmp_path / 'enwiki-1.xml').write_bytes(bz2.decompress(packed.read_bytes()))
  packed.unlink()
  corpus = open_corpus(DataConfig(dumps=str(tmp_path), held_out=0.0, min_characters=10))
  whole, part = (survey_language(corpus, 'en', limit) for limit in (1000, 200))
  assert (whole.documents, whole.read) == (500, 1)
  assert 0.3 < part.read < 0.6
  assert part.documents == pytest.approx(500, rel=0.15)
  assert part.sentences == pytest.approx(1000, rel=0.15)
  assert part.characters == pytest.approx(whole.characters, rel=0.15)


def test_progress_is_told_within_each_language_and_ends_at_one():
  corpus = ListedCorpus({language: [('One. Two.', False)] * 4 for language in ('de', 'sw')})
  told = []
  survey(corpus, 10, lambda fraction, language: told.append((fraction, language)))
  assert [fraction for fraction, _ in told] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.625, 0.75, 0.875, 1.0, 1.0]
  assert [language for _, language in told] == ['de'] * 5 + ['sw'] * 5


# --- nothing to count ------------------------------------------------------------------------------------------------


def test_a_corpus_without_text_is_an_error_that_says_what_to_do(tmp_path, write_dump):
  write_dump(tmp_path, 'de', {'Stub': 'Zu kurz.'})
  write_dump(tmp_path, 'sw', {})
  with pytest.raises(UsageError, match='no text to train on') as caught:
    survey(open_corpus(DataConfig(dumps=str(tmp_path))), limit=10)
  assert 'de, sw' in caught.value.where
  assert 'pages-articles' in caught.value.fix[0]


def test_text_that_is_all_held_out_is_no_text_to_train_on():
  with pytest.raises(UsageError, match='no text to train on'):
    survey(ListedCorpus({'de': [('Ein Satz.', True)]}), limit=10)


def test_a_language_without_text_beside_one_with_text_counts_nothing():
  counts = survey(ListedCorpus({'de': [('Ein Satz.', False)], 'sw': []}), limit=10)
  assert counts['sw'] == LanguageStatistics(documents=0, held_out=0, sentences=0, characters=0)
  assert counts['de'].documents == 1


# --- text for a vocabulary -------------------------------------------------------------------------------------------


def hash_of(text):
  return hashlib.blake2b(text.encode(), digest_size=8, person=b'vocabulary').digest()


@given(st.lists(st.text('ab.', min_size=1, max_size=30), max_size=40), st.integers(0, 300))
def test_a_spread_is_the_lowest_hashes_that_hold_enough_in_the_order_of_the_text(texts, characters):
  read = list(itertools.accumulate(map(len, texts)))
  texts = texts[: sum(before < 8 * characters for before in [0, *read][: len(texts)]) or 1]
  by_hash = sorted(range(len(texts)), key=lambda number: (hash_of(texts[number]), -number))
  held = list(itertools.accumulate(len(texts[number]) for number in by_hash))
  enough = next((n for n, count in enumerate(held) if count >= characters), len(held))
  assert spread(texts, characters) == [texts[number] for number in sorted(by_hash[: enough + 1])]


@given(st.sets(st.text(min_size=1, max_size=30), max_size=20).map(list), st.integers(100, 300), st.randoms())
def test_what_is_taken_does_not_depend_on_the_order(texts, characters, random):
  shuffled = random.sample(texts, len(texts))
  assert sorted(spread(shuffled, characters)) == sorted(spread(texts, characters))


def test_a_spread_comes_from_all_that_is_read_and_little_is_read():
  texts = [f'{number:010}' for number in range(100_000)]
  unread = iter(texts)
  taken = [int(text) for text in spread(unread, 8_000)]
  assert len(taken) == 800
  assert next(unread) == '0000006400'
  for begin in range(0, 6400, 800):  # about 100 from each eighth
    assert 60 < sum(begin <= number < begin + 800 for number in taken) < 140


@given(_DOCUMENTS, st.integers(1, 200))
def test_a_sample_never_holds_held_out_text(documents, budget):
  sampled = list(sample_text(ListedCorpus({'en': documents}), {'en': budget}))
  training = [text for text, held_out in documents if not held_out]
  assert sampled == [line for text in spread(training, budget) for line in text.split('\n')]


def test_each_language_has_its_own_budget_and_what_lies_far_behind_is_not_read():
  listed = {'de': [('x' * 100, False)] * 90, 'sw': [('y' * 100, False)] * 90}
  corpus = ListedCorpus(listed)
  texts = list(sample_text(corpus, {'de': 250, 'sw': 100}))
  assert [text[0] for text in texts] == ['x', 'x', 'x', 'y']
  assert corpus.asked_for == 20 + 8


def test_a_sample_tells_how_much_of_it_is_done_whether_the_text_ends_or_enough_is_read():
  corpus = ListedCorpus({'de': [('x' * 100, False)] * 4, 'sw': [('y' * 100, False)] * 90})
  told = []
  list(sample_text(corpus, {'de': 300, 'sw': 100}, lambda fraction, language: told.append((fraction, language))))
  assert told[:4] == [(0.1875, 'de'), (0.375, 'de'), (0.5625, 'de'), (0.75, 'de')]
  assert told[4:] == [(pytest.approx(0.75 + number / 32), 'sw') for number in range(1, 8)]


def test_the_sample_of_real_text_is_its_training_documents():
  corpus = open_corpus(DataConfig(languages=('sw',), held_out=0.3))
  held_out = {line for document, out in corpus.documents('sw') if out for line in document.text.split('\n')}
  training = {line for document, out in corpus.documents('sw') if not out for line in document.text.split('\n')}
  sampled = set(sample_text(corpus, {'sw': 10**9}))
  assert sampled == training
  assert held_out - training
  assert not sampled & (held_out - training)
