"""Files as XTREME's preprocessing writes them, gold labels next to them, and what must not be in them."""

import csv
import io
import json

import pytest
from computed_rows import pair, sentence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert.errors import UsageError
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.files import XtremeFolder

XNLI, PAWSX, PANX, UDPOS, XQUAD = (TASKS[name] for name in ('xnli', 'pawsx', 'panx', 'udpos', 'xquad'))
CONTEXT = 'vier 96 Stufen'


def asked(context=CONTEXT, **answers):
  """A file of questions, from their answers by id."""
  entry = lambda name, texts: {'id': name, 'question': '?', 'answers': [_answer(text) for text in texts]}
  _answer = lambda text: {'text': text, 'answer_start': CONTEXT.index(text) + len(context) - len(CONTEXT)}
  questions = [entry(name.rstrip('_'), texts) for name, texts in answers.items()]
  return json.dumps({'data': [{'paragraphs': [{'context': context, 'qas': questions}]}]})


def table(rows):
  """Rows as a csv writer writes them."""
  file = io.StringIO(newline='')
  csv.writer(file, delimiter='\t').writerows(rows)
  return file.getvalue()


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_line_is_two_sentences_and_a_label(write, read):
  path = write('xnli/dev-de.tsv', 'Es regnet.\tEs ist nass.\tentailment\r\nJa.\tNein.\tcontradiction\r\n')
  assert read(XNLI, 'dev') == [
    pair('Es regnet.', 'Es ist nass.', 'entailment', f'{path}:1'),
    pair('Ja.', 'Nein.', 'contradiction', f'{path}:2'),
  ]


def test_line_numbers_are_right_after_line_breaks_in_quotes(write, read):
  path = write('pawsx/dev-de.tsv', table([('a\nb', 'c\r\nd', '1'), ('e', 'f', '0'), ('g\n', '"h"', '1')]))
  assert [example.where for example in read(PAWSX, 'dev')] == [f'{path}:{line}' for line in (1, 4, 5)]


_TEXTS = st.text(
  st.characters(exclude_categories=('Cs',), exclude_characters='\0\r\ufeff'), max_size=20
) | st.sampled_from(
  ['"', '""', 'a "b" c', '"a" b', '\t', 'a\tb', '\n', 'a\nb', ' ', "'", '\x85', '\N{LINE SEPARATOR}', '\\', '图“”']
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(_TEXTS, _TEXTS, st.sampled_from(['0', '1'])), min_size=1, max_size=5))
def test_whatever_python_s_csv_writer_wrote_comes_back(write, read, rows):
  write('pawsx/dev-de.tsv', table(rows))
  assert [(*example.features.values(), example.label) for example in read(PAWSX, 'dev')] == rows


def test_words_and_tags_of_sentences_between_blank_lines(write, read):
  path = write('panx/dev-de.tsv', 'Bad\tB-LOC\r\nEllern\tI-LOC\n\n.\tO\n\n')
  assert read(PANX, 'dev') == [
    sentence('Bad', 'Ellern', tags=('B-LOC', 'I-LOC'), where=f'{path}:1'),
    sentence('.', tags=('O',), where=f'{path}:4'),
  ]


def test_a_word_may_be_empty_or_hold_any_space(write, read):
  write('panx/dev-de.tsv', '\tO\na b\tO\n\N{LINE SEPARATOR}\tO\n\N{NO-BREAK SPACE}\tO\n')
  assert read(PANX, 'dev')[0].features['words'] == ('', 'a b', '\N{LINE SEPARATOR}', '\N{NO-BREAK SPACE}')


# --- gold labels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('needs_labels', [True, False])
@pytest.mark.parametrize(
  ('task', 'content', 'gold', 'labels'),
  [
    (XNLI, 'a\tb\r\nc\td\r\n', 'neutral\nentailment\n', ['neutral', 'entailment']),
    (XNLI, 'a\tb\tneutral\n', 'entailment\n', ['neutral']),  # a column in the file counts
    (PANX, 'Bad\nEllern\n\n.\n', 'B-LOC\nI-LOC\n\nO\n', [('B-LOC', 'I-LOC'), ('O',)]),
    (PANX, 'Bad\tB-ORG\n', 'B-LOC\n', [('B-ORG',)]),
    # Matched by id.
    (XQUAD, asked(b=[''], a=['']), asked(a=['96'], b=['vier', 'ie']), [[('vier', 0), ('ie', 1)], [('96', 5)]]),
    (XQUAD, asked(a=['96']), asked(a=['vier']), [[('96', 5)]]),
  ],
)
def test_gold_labels_of_a_test_file_are_read(write, read, task, content, gold, needs_labels, labels):
  write(task.file('test', 'de'), content)
  write(f'labels/{task.name}/test-de.{task.suffix}', gold)
  assert [example.label for example in read(task, 'test', needs_labels=needs_labels)] == labels


def test_gold_labels_may_be_in_another_directory(write, tmp_path):
  write('data/xnli/test-de.tsv', 'a\tb\n')
  write('gold/xnli/test-de.tsv', 'neutral\n')
  examples = XNLI.examples(XtremeFolder(tmp_path / 'data', tmp_path / 'gold'), 'test', 'de', needs_labels=True)
  assert [example.label for example in examples] == ['neutral']


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('task', 'content', 'line', 'what'),
  [
    (XNLI, '', 1, 'empty'),
    (XNLI, 'a\tb\tneutral\na\n', 2, 'a line of 1 column'),
    (XNLI, 'a\tb\tneutral\n\na\tb\tneutral\n', 2, 'a line of 0 columns'),
    (XNLI, 'a\tb\tneutral\nc\td\n', 2, 'a line of 2 columns, and of 3 before'),
    (XNLI, '"a\n\nb"\tb\tneutral\na\tb\tcontradictory\n', 4, "unknown label 'contradictory'"),
    (XNLI, 'a\tb\tneutral\n"No," he said.\tb\tneutral\n', 2, 'not as a csv writer writes it'),
    (XNLI, 'a\tb\tneutral\n"No.\tb\tneutral\na\tb\tneutral\n', 2, 'not as a csv writer writes it'),
    (XNLI, 'a\rb\tb\tneutral\n', 1, 'not as a csv writer writes it'),
    (XNLI, 'a\tb\tneutral\nä\tb\tneutral\n'.encode('latin-1'), 2, 'not UTF-8'),
    (XNLI, 'a\tb\tneutral\n'.encode('utf-16'), 1, 'not UTF-8'),
    (PANX, '\n\n', 1, 'without words'),
    (PANX, 'a\tO\nb\rc\tO\n', 2, 'carriage return'),
    (PANX, 'a\tO\rb\tO\r', 1, 'carriage return'),
    (PANX, 'a\tO\n\nb\tO\tO\n', 3, 'a line of 3 columns'),
    (PANX, 'a\tO\n\nb\n', 3, 'a line of 1 column, and of 2 before'),
    (PANX, 'a\tO\nb\t\n', 2, "unknown label ''"),
  ],
)
def test_a_broken_file_is_one_error_with_file_and_line(write, read, task, content, line, what):
  path = write(f'{task.name}/dev-de.tsv', content)
  with pytest.raises(UsageError, match=what) as error:
    read(task, 'dev')
  assert error.value.where == f'{path}:{line}'
  assert all(error.value.fix)


@pytest.mark.parametrize(
  ('task', 'content'), [(XNLI, 'a\tb\n'), (PANX, '\na\n'), (XQUAD, asked(a=[''])), (UDPOS, 'a\n')]
)
def test_files_without_labels_are_an_error_where_these_are_needed(write, read, tmp_path, task, content):
  for split in set(task.files) & {'dev', 'test'}:
    path = write(task.file(split, 'de'), content)
    assert {example.label for example in read(task, split, needs_labels=False)} == {None}
    with pytest.raises(UsageError, match='no gold labels') as error:
      read(task, split)
    assert error.value.where == str(path)
  assert str(tmp_path / 'labels' / task.name / f'test-de.{task.suffix}') in str(error.value) or split == 'dev'


@pytest.mark.parametrize(
  ('task', 'gold', 'line', 'what'),
  [
    (PAWSX, '0\n', 1, '1 gold labels for 2 pairs'),
    (PAWSX, '0\n0\n0\n', 3, '3 gold labels for 2 pairs'),
    (PAWSX, '0\nyes\n', 2, "unknown label 'yes'"),
    (PANX, 'O\nO\n\nO\n', 4, 'a sentence of 2 words with 1 gold tags'),
    (PANX, 'O\nO\nO\n\nO\nO\n', 1, 'a sentence of 2 words with 3 gold tags'),
    (PANX, 'O\nO\n', 1, 'gold tags of 1 sentences for 2'),
    (PANX, 'O\nO\n\nO\nO\n\nO\n', 7, 'gold tags of 3 sentences for 2'),
    (PANX, 'O\nO\n\nO\nOO\n', 5, "unknown label 'OO'"),
  ],
)
def test_gold_labels_that_do_not_fit_are_an_error_with_both_files(write, read, task, gold, line, what):
  path = write(f'{task.name}/test-de.tsv', 'a\tb\nc\td\n' if task == PAWSX else 'a\nb\n\nc\nd\n')
  gold_path = write(f'labels/{task.name}/test-de.tsv', gold)
  with pytest.raises(UsageError, match=what) as error:
    read(task, 'test')
  assert f'{gold_path}:{line}' in error.value.where
  if 'unknown' not in what:
    assert str(path) in error.value.where


@pytest.mark.parametrize(
  ('gold', 'what', 'place'),
  [
    (asked(b=['96']), "no gold answer for the question 'a'", 'xquad.de.json:…qas[1]'),
    (asked(a=['']), "no gold answer for the question 'b'", 'xquad.de.json:…qas[0]'),
    (asked(a=['vier'], b=['96'], c=['96']), "'c', which is not a question of the file", 'test-de.json:…qas[2]'),
    (asked(a=['vier'], b=['96'], a_=['96']), "two questions have the id 'a'", 'test-de.json:…qas[2]'),
    (asked('x' + CONTEXT, a=['vier'], b=['96']), 'is not at', 'xquad.de.json:…qas[0]'),
  ],
)
def test_gold_answers_that_do_not_fit_are_named_with_their_place(write, read, gold, what, place):
  write('xquad/xquad.de.json', asked(b=[''], a=['']))
  write('labels/xquad/test-de.json', gold)
  with pytest.raises(UsageError, match=what) as error:
    read(XQUAD, 'test')
  assert place.replace('…', 'data[0].paragraphs[0].') in error.value.where


# --- real data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('task', 'split', 'language', 'count'),  # README.md next to the data; of tagging the paper's table 11
  [
    (XNLI, 'dev', 'en', 2_490),
    (XNLI, 'test', 'sw', 2_505),
    (PAWSX, 'dev', 'de', 2_000),
    (PANX, 'train', 'en', 20_000),
  ],
)
def test_real_files_are_read_whole(shared_data, task, split, language, count):
  examples = task.examples(XtremeFolder(shared_data / 'xtreme'), split, language, needs_labels=True)
  assert len(examples) == count
  if task.head == 'tagging':
    assert {tag for example in examples for tag in example.label} == set(task.labels)
  else:
    assert not any('""' in text for example in examples for text in example.features.values())
