"""Chunk F1 next to seqeval 0.0.12 on random tags: IOB and broken IOB, parts of speech, other prefixes.

seqeval is imported inside functions: the suite can be collected without it, but this comparison fails where it is
missing.
"""

import importlib.metadata
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval_cases import GOLDEN_FILE, TAG_SETS, TOLERANCE, Corpus, corpora, random_corpus, seqeval_scores

from tasks.metrics.labels import chunk_scores, chunks

pytestmark = pytest.mark.parity


@st.composite
def drawn_corpora(draw) -> Corpus:
  tags = st.sampled_from(draw(st.sampled_from(TAG_SETS)))
  pairs = draw(st.lists(st.lists(st.tuples(tags, tags), max_size=8), min_size=1, max_size=4))
  return Corpus([[gold for gold, _ in pair] for pair in pairs], [[other for _, other in pair] for pair in pairs])


def test_seqeval_is_the_version_of_xtreme_s_time():
  assert importlib.metadata.version('seqeval') == '0.0.12'


@settings(max_examples=1000, deadline=None)
@given(drawn_corpora())
def test_random_tags_have_equal_scores(corpus):
  _compare(corpus)


@settings(max_examples=1000, deadline=None)
@given(st.randoms(use_true_random=False))
def test_tags_with_few_errors_have_equal_scores(rng):
  _compare(random_corpus(rng))


@settings(max_examples=1000, deadline=None)
@given(drawn_corpora())
def test_chunks_are_the_same(corpus):
  from seqeval.metrics.sequence_labeling import get_entities

  assert chunks(corpus.gold) == set(get_entities(corpus.gold))


def test_the_golden_file_has_what_seqeval_computes():
  assert json.loads(GOLDEN_FILE.read_text()) == [corpus._asdict() | seqeval_scores(corpus) for corpus in corpora()]


def _compare(corpus: Corpus) -> None:
  expected = seqeval_scores(corpus)
  for name, score in chunk_scores(corpus.gold, corpus.predicted).items():
    assert score == pytest.approx(100 * expected[name], rel=0, abs=100 * TOLERANCE)
