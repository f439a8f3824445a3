import shutil

import pytest

from benchmarks import sample_corpus, windows

TINY = windows.Setting(contexts=12, questions=2, pieces=2000)


@pytest.fixture
def vocabulary(xtreme_vocabulary, tmp_path):
  """In a folder of its own: a tokenizer is exported beside it."""
  return shutil.copy(xtreme_vocabulary, tmp_path / 'sentencepiece.model')


def test_questions_are_drawn_from_a_seed(xtreme_pieces):
  questions = windows.made_up(TINY, xtreme_pieces.ids)
  assert questions == windows.made_up(TINY, xtreme_pieces.ids)
  assert questions != windows.made_up(TINY, xtreme_pieces.ids, seed=1)


def test_questions_are_on_contexts_of_the_sample_corpus_and_have_answers_there(xtreme_pieces):
  questions = windows.made_up(TINY, xtreme_pieces.ids)
  assert (len(questions), len({question.context for question in questions})) == (24, 12)
  texts = sample_corpus.texts()
  for question in questions:
    [answer] = question.answers
    assert 600 <= len(question.context) <= 1800
    assert any(question.context in text for text in texts)
    assert question.context[answer.start :].startswith(answer.text)
    assert answer.text == answer.text.strip() != ''
    assert len(xtreme_pieces.ids(question.question)) == windows.QUESTION_PIECES


def test_transformers_makes_the_same_windows(vocabulary, monkeypatch):
  # Of a character that is several pieces, bytes, each side takes others; the test's vocabulary knows Latin letters.
  latin = [text for text in sample_corpus.texts() if sum(map(str.isascii, text)) > 0.95 * len(text)]
  monkeypatch.setattr(sample_corpus, 'texts', lambda: latin)
  ours, theirs = (prepare(TINY, vocabulary)() for prepare in (windows.prepare_ours, windows.prepare_transformers))
  assert (ours['windows'], ours['pieces']) == (theirs['windows'], theirs['pieces'])
  assert ours['windows'] > 24
  assert ours['answered'] == theirs['answered'] > 0
  assert ours['mean start'] == pytest.approx(theirs['mean start'], rel=0.01)


def test_the_loop_finds_the_first_and_the_last_piece_of_an_answer():
  sequences = [None, 0, None, 1, 1, 1, 1, None]
  offsets = [(0, 0), (0, 9), (0, 0), (10, 13), (13, 18), (18, 20), (20, 25), (0, 0)]
  for answer, positions in {
    (10, 13): (3, 3),
    (14, 19): (4, 5),
    (10, 25): (3, 6),
    (9, 13): (0, 0),
    (24, 26): (0, 0),
    (30, 31): (0, 0),
    (1, 5): (0, 0),
  }.items():
    assert windows._answer_positions(offsets, sequences, *answer) == positions


def test_both_sides_have_the_same_work_on_one_core(monkeypatch, tmp_path, xtreme_vocabulary):
  monkeypatch.setattr(sample_corpus, 'make_vocabulary', lambda pieces, file: shutil.copy(xtreme_vocabulary, file))
  monkeypatch.setitem(windows.SETTINGS, 'squad', TINY)
  ours, theirs = windows.contestants('squad', tmp_path)
  assert ours.work == theirs.work
  assert ours.work['questions'] == 24
  assert (ours.one_core, theirs.one_core) == (True, True)
  assert theirs.environment['RAYON_NUM_THREADS'] == '1'
