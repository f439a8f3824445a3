"""PAN-X and UDPOS: files, words to pieces, sentences that are longer than a row, tags back to words."""

import itertools

import numpy as np
import pytest
from etils import epath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.xtreme import panx, udpos
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.task import IGNORED
from tasks.xtreme.words import Sentence, spans_that_fit, word_pieces

CONFIG = XtremeConfig()
UNKNOWN, CLS, SEP = 2, 312, 313
# Words that are hard on a tokenizer: empty, white space, what SentencePiece writes spaces with, unknown characters.
ODD_WORDS = (
  '',
  ' ',
  '\N{NO-BREAK SPACE}',
  '\N{IDEOGRAPHIC SPACE}',
  '▁',
  '▁▁',
  '\N{ZERO WIDTH SPACE}',
  '𒀀',
  'x' * 500,
  '图' * 90,
)


@pytest.fixture
def write(tmp_path):
  def written(name: str, content: bytes | str) -> epath.Path:
    path = epath.Path(tmp_path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path

  return written


@pytest.fixture
def read(tmp_path):
  def sentences(task, split, language='de', *, needs_labels=True):
    return task.TASK.examples(XtremeFolder(tmp_path), split, language, needs_labels=needs_labels)

  return sentences


def sentence(*words, tags=None):
  return Sentence(words, tags, 'test-de.tsv:1')


# --- files ------------------------------------------------------------------------------------------------------------


def test_words_and_tags_of_sentences_between_blank_lines(write, read):
  path = write('panx/dev-de.tsv', 'Bad\tB-LOC\nEllern\tI-LOC\n\n.\tO\n')
  assert read(panx, 'dev') == [
    Sentence(('Bad', 'Ellern'), ('B-LOC', 'I-LOC'), f'{path}:1'),
    Sentence(('.',), ('O',), f'{path}:4'),
  ]


def test_lines_may_end_with_a_carriage_return_and_the_file_with_a_blank_line(write, read):
  write('udpos/dev-de.tsv', 'Es\tPRON\r\nregnet\tVERB\r\n\r\nJa\tINTJ\r\n\r\n')
  assert [(found.words, found.tags) for found in read(udpos, 'dev')] == [
    (('Es', 'regnet'), ('PRON', 'VERB')),
    (('Ja',), ('INTJ',)),
  ]


def test_gold_tags_of_a_test_file_come_from_beside_it(write, read):
  write('panx/test-de.tsv', 'Bad\nEllern\n\n.\n')
  write('labels/panx/test-de.tsv', 'B-LOC\nI-LOC\n\nO\n')
  assert [found.tags for found in read(panx, 'test')] == [('B-LOC', 'I-LOC'), ('O',)]


def test_a_second_column_of_a_test_file_counts(write, read):
  write('panx/test-de.tsv', 'Bad\tB-ORG\n')
  write('labels/panx/test-de.tsv', 'B-LOC\n')
  assert [found.tags for found in read(panx, 'test')] == [('B-ORG',)]


def test_without_need_no_tags_are_read(write, read):
  write('panx/test-de.tsv', 'Bad\n')
  write('labels/panx/test-de.tsv', 'nonsense\n')
  assert [found.tags for found in read(panx, 'test', needs_labels=False)] == [None]


def test_a_word_may_be_empty_or_hold_any_space(write, read):
  write('panx/dev-de.tsv', '\tO\na b\tO\n\N{LINE SEPARATOR}\tO\n\N{NO-BREAK SPACE}\tO\n')
  assert read(panx, 'dev')[0].words == ('', 'a b', '\N{LINE SEPARATOR}', '\N{NO-BREAK SPACE}')


@pytest.mark.parametrize(
  ('content', 'line', 'what'),
  [
    ('', 1, 'empty'),
    ('\n\n', 1, 'without words'),
    ('\ufeffa\tO\n', 1, 'byte order mark'),
    ('a\tO\nb\rc\tO\n', 2, 'carriage return'),
    ('a\tO\n\nb\tO\tO\n', 3, 'a line of 3 columns'),
    ('a\tO\n\nb\n', 3, 'a line of 1 column, and of 2 before'),
    ('a\tO\n\nb\tB-MISC\n', 3, "unknown label 'B-MISC'"),
    ('a\tO\nb\t\n', 2, "unknown label ''"),
    ('\na\n', 2, 'no gold labels; it takes two columns'),
    ('a\tO\nä\tO\n'.encode('latin-1'), 2, 'not UTF-8'),
  ],
)
def test_a_broken_file_is_one_error_with_file_and_line(write, read, content, line, what):
  path = write('panx/dev-de.tsv', content)
  with pytest.raises(UsageError, match=what) as error:
    read(panx, 'dev')
  assert error.value.where == f'{path}:{line}'
  assert all(error.value.fix)


@pytest.mark.parametrize('tag', ['_', 'O', 'CONJ', 'noun'])
def test_what_is_no_universal_tag_is_an_error(write, read, tag):
  path = write('udpos/dev-de.tsv', f'und\t{tag}\n')
  with pytest.raises(UsageError, match='unknown label') as error:
    read(udpos, 'dev')
  assert error.value.where == f'{path}:1'


def test_a_language_without_data_is_an_error_that_names_the_file(read, tmp_path):
  with pytest.raises(UsageError, match='missing') as error:
    read(panx, 'test', 'yo')
  assert error.value.where == str(tmp_path / 'panx' / 'test-yo.tsv')


def test_a_test_file_without_gold_tags_is_an_error_where_they_are_needed(write, read, tmp_path):
  path = write('panx/test-de.tsv', 'Bad\n')
  with pytest.raises(UsageError, match='no gold labels') as error:
    read(panx, 'test')
  assert error.value.where == str(path)
  assert str(tmp_path / 'labels' / 'panx' / 'test-de.tsv') in str(error.value)


@pytest.mark.parametrize(
  ('gold', 'line', 'what'),
  [
    ('O\nO\n\nO\n', 4, 'a sentence of 2 words with 1 gold tags'),
    ('O\nO\nO\n\nO\nO\n', 1, 'a sentence of 2 words with 3 gold tags'),
    ('O\nO\n', 1, 'gold tags of 1 sentences for 2'),
    ('O\nO\n\nO\nO\n\nO\n', 7, 'gold tags of 3 sentences for 2'),
    ('O\nO\n\nO\nOO\n', 5, "unknown label 'OO'"),
  ],
)
def test_gold_tags_that_do_not_fit_are_an_error_with_file_and_line(write, read, gold, line, what):
  path = write('panx/test-de.tsv', 'a\nb\n\nc\nd\n')
  gold_path = write('labels/panx/test-de.tsv', gold)
  with pytest.raises(UsageError, match=what) as error:
    read(panx, 'test')
  assert f'{gold_path}:{line}' in error.value.where
  if 'unknown' not in what:
    assert str(path) in error.value.where


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_tag_stands_at_the_first_piece_of_its_word(xtreme_pieces):
  words, tags = ('Wiederaufbau', 'in', 'Altbrück'), ('O', 'O', 'B-LOC')
  (row,) = panx.TASK.rows([sentence(*words, tags=tags)], xtreme_pieces, max_length=128, config=CONFIG)
  ids, labels = [CLS], [IGNORED]
  for word, tag in zip(words, tags, strict=True):
    pieces = xtreme_pieces.ids(word)
    ids += pieces
    labels += [panx.TASK.labels.index(tag)] + [IGNORED] * (len(pieces) - 1)
  assert row.input_ids.tolist() == [*ids, SEP]
  assert row.labels.tolist() == [*labels, IGNORED]
  assert row.token_type_ids.tolist() == [0] * len(row.input_ids)
  assert row.first_pieces.tolist() == [place for place, label in enumerate(labels) if label != IGNORED]
  assert {value.dtype for value in (row.input_ids, row.token_type_ids, row.labels, row.first_pieces)} == {
    np.dtype(np.int32)
  }


def test_a_word_without_pieces_becomes_unknown(xtreme_pieces):
  for word in ('', ' ', '\t', '\N{NO-BREAK SPACE}', '\N{IDEOGRAPHIC SPACE}', '▁'):
    assert word_pieces(word, xtreme_pieces) == [UNKNOWN]
  for word in ('a', ',', '图', '𒀀'):
    assert word_pieces(word, xtreme_pieces) == xtreme_pieces.ids(word)


def test_a_sentence_without_tags_has_ignored_labels_and_known_places(xtreme_pieces):
  (row,) = panx.TASK.rows([sentence('Bad', 'Ellern')], xtreme_pieces, max_length=64, config=CONFIG)
  assert set(row.labels.tolist()) == {IGNORED}
  assert row.first_pieces.tolist() == [1, 1 + len(xtreme_pieces.ids('Bad'))]


def test_a_long_sentence_becomes_rows_of_whole_words(xtreme_pieces):
  words = ('Der', 'Hund', 'lief', 'langsam', 'durch', 'den', 'Garten', 'und', 'die', 'Katze', 'schlief', '.')
  rows = udpos.TASK.rows([sentence('.'), sentence(*words)], xtreme_pieces, max_length=12, config=CONFIG)
  assert [row.example for row in rows] == [0] + [1] * (len(rows) - 1)
  assert len(rows) > 3
  inner = np.concatenate([row.input_ids[1:-1] for row in rows[1:]])
  assert inner.tolist() == [piece for word in words for piece in xtreme_pieces.ids(word)]
  for row, following in itertools.pairwise(rows[1:]):
    ends = [*following.first_pieces[1:], len(following.input_ids) - 1]
    assert len(row.input_ids) + ends[0] - 1 > 12, 'the next word would have fitted'


def test_a_word_longer_than_a_row_keeps_its_first_pieces(xtreme_pieces):
  words = ('a', 'x' * 300, 'b')
  rows = panx.TASK.rows([sentence(*words)], xtreme_pieces, max_length=16, config=CONFIG)
  assert [row.input_ids[1:-1].tolist() for row in rows] == [
    xtreme_pieces.ids('a'),
    xtreme_pieces.ids('x' * 300)[:14],
    xtreme_pieces.ids('b'),
  ]


def test_a_row_too_short_for_a_word_is_an_error(xtreme_pieces):
  with pytest.raises(UsageError, match='no room for a word'):
    panx.TASK.rows([sentence('a')], xtreme_pieces, max_length=2, config=CONFIG)


@given(st.lists(st.integers(1, 7), max_size=30), st.integers(7, 12))
def test_stretches_fit_and_are_as_long_as_they_can_be(lengths, room):
  spans = list(spans_that_fit(lengths, room))
  assert [index for begin, end in spans for index in range(begin, end)] == list(range(len(lengths)))
  for begin, end in spans:
    assert 0 < sum(lengths[begin:end]) <= room
    assert end == len(lengths) or sum(lengths[begin : end + 1]) > room


# --- predictions ------------------------------------------------------------------------------------------------------


def outputs_of_labels(task, rows, *, elsewhere):
  """Logits of a model that has learned the rows' labels, and says `elsewhere` where there is none."""
  return [
    np.eye(len(task.labels), dtype=np.float32)[np.where(row.labels == IGNORED, elsewhere, row.labels)] for row in rows
  ]


_SENTENCES = st.lists(st.lists(st.text(max_size=12) | st.sampled_from(ODD_WORDS), max_size=12), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), words=_SENTENCES, length=st.integers(3, 40))
def test_what_a_perfect_model_says_is_every_word_s_tag(xtreme_pieces, data, words, length):
  tags = st.sampled_from(panx.TASK.labels)
  examples = [sentence(*some, tags=tuple(data.draw(tags) for _ in some)) for some in words]
  rows = panx.TASK.rows(examples, xtreme_pieces, max_length=length, config=CONFIG)
  assert all(len(row.input_ids) <= length for row in rows)
  outputs = outputs_of_labels(panx.TASK, rows, elsewhere=3)
  predictions = panx.TASK.predictions(examples, rows, outputs, config=CONFIG)
  assert predictions == [example.tags for example in examples]
  unlabelled = [sentence(*some) for some in words]
  same_rows = panx.TASK.rows(unlabelled, xtreme_pieces, max_length=length, config=CONFIG)
  assert panx.TASK.predictions(unlabelled, same_rows, outputs, config=CONFIG) == predictions


def test_rows_of_other_sentences_are_an_error(xtreme_pieces):
  rows = panx.TASK.rows([sentence('a', 'b')], xtreme_pieces, max_length=16, config=CONFIG)
  outputs = outputs_of_labels(panx.TASK, rows, elsewhere=0)
  with pytest.raises(ValueError, match='2 tags for the 3 words'):
    panx.TASK.predictions([sentence('a', 'b', 'c')], rows, outputs, config=CONFIG)


def lines_as_evaluate_py_reads_them(text):
  """XTREME's reader of tags: a blank line ends a sentence, and so does the end of the file behind a tag."""
  found, current = [], []
  for line in text.splitlines():
    if line.strip():
      current.append(line.strip())
    else:
      found.append(tuple(current))
      current = []
  return found + ([tuple(current)] if current else [])


@given(st.lists(st.lists(st.sampled_from(panx.TASK.labels), max_size=3).map(tuple), max_size=5))
def test_the_file_has_for_evaluate_py_what_was_predicted(predictions):
  examples = [sentence(*('a' for _ in tags)) for tags in predictions]
  assert lines_as_evaluate_py_reads_them(panx.TASK.file_text(examples, predictions)) == predictions


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(['a\tO', 'b\tB-LOC', '']), min_size=1).filter(any))
def test_sentences_are_those_that_evaluate_py_sees_in_the_gold_tags(write, read, lines):
  write('panx/test-de.tsv', ''.join(f'{line.split(chr(9))[0]}\n' for line in lines))
  gold = ''.join(f'{line.split(chr(9))[-1]}\n' for line in lines)
  write('labels/panx/test-de.tsv', gold)
  sentences = read(panx, 'test')
  assert [found.tags for found in sentences] == lines_as_evaluate_py_reads_them(gold)
  assert lines_as_evaluate_py_reads_them(panx.TASK.file_text(sentences, [found.tags for found in sentences])) == [
    found.tags for found in sentences
  ]


# --- scores -----------------------------------------------------------------------------------------------------------


def test_names_are_scored_whole():
  gold = [sentence('Bad', 'Ellern', 'und', 'Oslo', tags=('B-LOC', 'I-LOC', 'O', 'B-LOC'))]
  scores = panx.TASK.score(gold, [('B-LOC', 'O', 'O', 'B-LOC')], 'de')
  assert scores == {'f1': 50.0, 'precision': 50.0, 'recall': 50.0}


def test_parts_of_speech_are_scored_by_stretches_of_equal_tags():
  gold = [sentence('a', 'b', 'c', tags=('NOUN', 'NOUN', 'VERB'))]
  scores = udpos.TASK.score(gold, [('NOUN', 'VERB', 'VERB')], 'de')
  assert scores == {'f1': 0.0, 'precision': 0.0, 'recall': 0.0}


def test_there_is_no_score_and_no_baseline_without_tags():
  with pytest.raises(UsageError, match='no score without gold labels'):
    panx.TASK.score([sentence('a')], [('O',)], 'de')
  with pytest.raises(UsageError, match='gold labels'):
    panx.TASK.baseline([sentence('a')], [sentence('a')])


def test_the_baseline_is_the_most_frequent_tag_of_train():
  train = [sentence('a', 'b', 'c', tags=('B-LOC', 'O', 'O'))]
  examples = [sentence('d', 'e', tags=('O', 'B-PER')), sentence()]
  baseline = panx.TASK.baseline(train, examples)
  assert baseline == [('O', 'O'), ()]
  assert panx.TASK.score([examples[0]], baseline[:1], 'de')['f1'] == 0.0


# --- samples and real data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize('task', [panx, udpos])
def test_the_samples_have_every_tag(xtreme_samples, task):
  for split, languages, count in (
    ('train', ['en'], 12),
    ('dev', ['de', 'en', 'zh'], 6),
    ('test', ['de', 'en', 'zh'], 6),
  ):
    for language in languages:
      examples = task.TASK.examples(xtreme_samples, split, language, needs_labels=True)
      assert len(examples) == count
      tags = {tag for example in examples for tag in example.tags}
      assert len(tags) >= len(task.TASK.labels) - 2
  train = task.TASK.examples(xtreme_samples, 'train', 'en', needs_labels=True)
  assert {tag for example in train for tag in example.tags} == set(task.TASK.labels)


@pytest.mark.slow
@pytest.mark.parametrize(('task', 'languages'), [(panx, 7), (udpos, 22)])
def test_every_real_sentence_gets_as_many_tags_as_words(shared_data, xtreme_pieces, task, languages):
  folder = XtremeFolder(shared_data / 'xtreme')
  found = [language for language in task.TASK.languages if folder.has(task.TASK.name, f'test-{language}.tsv')]
  assert len(found) == languages
  split_sentences = 0
  for language in found:
    examples = task.TASK.examples(folder, 'test', language, needs_labels=True)
    rows = task.TASK.rows(examples, xtreme_pieces, max_length=64, config=CONFIG)
    split_sentences += len(rows) - len(examples)
    assert max(len(row.input_ids) for row in rows) <= 64
    outputs = outputs_of_labels(task.TASK, rows, elsewhere=0)
    predictions = task.TASK.predictions(examples, rows, outputs, config=CONFIG)
    assert predictions == [example.tags for example in examples]
    assert task.TASK.score(examples, predictions, language) == {'f1': 100.0, 'precision': 100.0, 'recall': 100.0}
  assert split_sentences > 100


@pytest.mark.parametrize(('task', 'count'), [(panx, 20_000), (udpos, 21_253)])
def test_real_training_data_is_read_whole(shared_data, task, count):
  train = task.TASK.examples(XtremeFolder(shared_data / 'xtreme'), 'train', 'en', needs_labels=True)
  assert len(train) == count  # paper, table 11
  assert {tag for example in train for tag in example.tags} == set(task.TASK.labels)
