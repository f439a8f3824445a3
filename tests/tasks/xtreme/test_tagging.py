"""PAN-X and UDPOS: files, predictions, scores."""

import numpy as np
import pytest
from computed_rows import any_vocabulary, computed_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.tagging import Sentence
from tasks.xtreme.task import IGNORED

CONFIG = XtremeConfig()
PANX, UDPOS = TASKS['panx'], TASKS['udpos']
# Words that are hard on a tokenizer: empty, white space, what SentencePiece writes spaces with, unknown characters.
ODD_WORDS = ('', ' ', '\N{NO-BREAK SPACE}', '\N{IDEOGRAPHIC SPACE}', '▁', '▁▁', '𒀀', 'x' * 500, '图' * 90)


def sentence(*words, tags=None):
  return Sentence(words, tags, 'test-de.tsv:1')


# --- files ------------------------------------------------------------------------------------------------------------


def test_words_and_tags_of_sentences_between_blank_lines(write, read):
  path = write('panx/dev-de.tsv', 'Bad\tB-LOC\nEllern\tI-LOC\n\n.\tO\n')
  assert read(PANX, 'dev') == [
    Sentence(('Bad', 'Ellern'), ('B-LOC', 'I-LOC'), f'{path}:1'),
    Sentence(('.',), ('O',), f'{path}:4'),
  ]


def test_lines_may_end_with_a_carriage_return_and_the_file_with_a_blank_line(write, read):
  write('udpos/dev-de.tsv', 'Es\tPRON\r\nregnet\tVERB\r\n\r\nJa\tINTJ\r\n\r\n')
  assert [(found.words, found.tags) for found in read(UDPOS, 'dev')] == [
    (('Es', 'regnet'), ('PRON', 'VERB')),
    (('Ja',), ('INTJ',)),
  ]


@pytest.mark.parametrize(
  ('content', 'gold', 'needs_labels', 'tags'),
  [
    ('Bad\nEllern\n\n.\n', 'B-LOC\nI-LOC\n\nO\n', True, [('B-LOC', 'I-LOC'), ('O',)]),
    ('Bad\tB-ORG\n', 'B-LOC\n', True, [('B-ORG',)]),  # a second column counts
    ('Bad\n', 'nonsense\n', False, [None]),
  ],
)
def test_gold_tags_of_a_test_file_are_read_if_they_are_needed(write, read, content, gold, needs_labels, tags):
  write('panx/test-de.tsv', content)
  write('labels/panx/test-de.tsv', gold)
  assert [found.tags for found in read(PANX, 'test', needs_labels=needs_labels)] == tags


def test_a_word_may_be_empty_or_hold_any_space(write, read):
  write('panx/dev-de.tsv', '\tO\na b\tO\n\N{LINE SEPARATOR}\tO\n\N{NO-BREAK SPACE}\tO\n')
  assert read(PANX, 'dev')[0].words == ('', 'a b', '\N{LINE SEPARATOR}', '\N{NO-BREAK SPACE}')


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
    read(PANX, 'dev')
  assert error.value.where == f'{path}:{line}'
  assert all(error.value.fix)


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
    read(PANX, 'test')
  assert f'{gold_path}:{line}' in error.value.where
  if 'unknown' not in what:
    assert str(path) in error.value.where


# --- predictions ------------------------------------------------------------------------------------------------------


def targets(task, *tags_of_sentences):
  """Rows as `metric_fns` get them: every word is one token, and a sentence without words has no row."""
  index = lambda tag: -1 if tag is None else task.labels.index(tag)
  return [
    {
      'example': np.int32(number),
      'labels': np.array([-1, *map(index, tags), -1], np.int32),
      'first_tokens': np.arange(1, len(tags) + 1, dtype=np.int32),
      'where': b'test-de.tsv:1',
    }
    for number, tags in enumerate(tags_of_sentences)
    if tags
  ]


def perfect_scores(task, rows, *, elsewhere):
  """Logits of a model that has learned the rows' labels, and predicts `elsewhere` where there is none."""
  return [
    np.eye(len(task.labels), dtype=np.float32)[np.where(row['labels'] == IGNORED, elsewhere, row['labels'])]
    for row in rows
  ]


_WORDS = st.text(max_size=12) | st.sampled_from(ODD_WORDS)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=20)
@given(st.lists(st.lists(st.tuples(_WORDS, st.sampled_from(PANX.labels)), max_size=12), min_size=1), st.integers(3, 40))
def test_a_perfect_model_predicts_every_words_tag(xtreme_vocabulary, sentences, length):
  examples = [sentence(*(word for word, _ in some), tags=tuple(tag for _, tag in some)) for some in sentences]
  found = computed_rows(PANX, examples, any_vocabulary(xtreme_vocabulary), max_length=length)
  rows = [row.example for row in found]
  predictions = PANX.predict(rows, perfect_scores(PANX, rows, elsewhere=3), CONFIG)
  expected = {number: example.tags for number, example in enumerate(examples) if example.words}
  assert predictions == expected
  if rows:
    assert set(PANX.score(rows, predictions, 'de').values()) <= {0.0, 100.0}


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


@given(st.lists(st.lists(st.sampled_from(PANX.labels), max_size=3).map(tuple), max_size=5))
def test_the_file_has_for_evaluate_py_what_was_predicted(predictions):
  by_example = {number: tags for number, tags in enumerate(predictions) if tags}
  assert lines_as_evaluate_py_reads_them(PANX.file_text(by_example, [], len(predictions))) == predictions


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(['a\tO', 'b\tB-LOC', '']), min_size=1).filter(any))
def test_sentences_are_those_that_evaluate_py_sees_in_the_gold_tags(write, read, lines):
  write('panx/test-de.tsv', ''.join(f'{line.split(chr(9))[0]}\n' for line in lines))
  gold = ''.join(f'{line.split(chr(9))[-1]}\n' for line in lines)
  write('labels/panx/test-de.tsv', gold)
  sentences = read(PANX, 'test')
  assert [found.tags for found in sentences] == lines_as_evaluate_py_reads_them(gold)
  tags = {number: found.tags for number, found in enumerate(sentences) if found.words}
  assert lines_as_evaluate_py_reads_them(PANX.file_text(tags, [], len(sentences))) == [
    found.tags for found in sentences
  ]


# --- scores -----------------------------------------------------------------------------------------------------------


def test_rows_of_one_sentence_are_scored_as_one():
  first, second = targets(UDPOS, ('VERB', 'NOUN'), ('NOUN', 'VERB'))
  second['example'] = first['example']
  scores = UDPOS.score([first, second], {0: ('VERB', 'NOUN', 'NOUN', 'VERB')}, 'de')
  assert scores == {'f1': 100.0, 'precision': 100.0, 'recall': 100.0}
  wrong = UDPOS.score([first, second], {0: ('VERB', 'NOUN', 'VERB', 'VERB')}, 'de')
  assert wrong['recall'] == pytest.approx(100 / 3)  # VERB, NOUN NOUN, VERB


def test_there_is_no_score_without_tags():
  with pytest.raises(UsageError, match='no score without gold labels') as error:
    PANX.score(targets(PANX, ('O', None)), {0: ('O', 'O')}, 'de')
  assert error.value.where == 'test-de.tsv:1'


def test_the_baseline_is_the_most_frequent_tag_of_train():
  train = [sentence('a', 'b', 'c', tags=('B-LOC', 'O', 'O'))]
  rows = targets(PANX, ('O', 'B-PER'), ())
  baseline = PANX.baseline(train, rows)
  assert baseline == {0: ('O', 'O')}
  assert PANX.score(rows, baseline, 'de')['f1'] == 0.0


# --- real data --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(('task', 'languages'), [(PANX, 7), (UDPOS, 22)])
def test_every_real_sentence_gets_as_many_tags_as_words(shared_data, xtreme_vocabulary, task, languages):
  folder = XtremeFolder(shared_data / 'xtreme')
  found = [language for language in task.languages if folder.has(f'{task.name}/test-{language}.tsv')]
  assert len(found) == languages
  split_sentences = 0
  for language in found:
    examples = task.examples(folder, 'test', language, needs_labels=True)
    rows = [row.example for row in computed_rows(task, examples, any_vocabulary(xtreme_vocabulary), max_length=64)]
    split_sentences += len(rows) - len(examples)
    assert max(len(row['input_ids']) for row in rows) <= 64
    predictions = task.predict(rows, perfect_scores(task, rows, elsewhere=0), CONFIG)
    assert predictions == {number: example.tags for number, example in enumerate(examples)}
    assert set(task.score(rows, predictions, language).values()) == {100.0}
  assert split_sentences > 100


@pytest.mark.parametrize(('task', 'count'), [(PANX, 20_000), (UDPOS, 21_253)])
def test_real_training_data_is_read_whole(shared_data, task, count):
  train = task.examples(XtremeFolder(shared_data / 'xtreme'), 'train', 'en', needs_labels=True)
  assert len(train) == count  # paper, table 11
  assert {tag for example in train for tag in example.tags} == set(task.labels)
