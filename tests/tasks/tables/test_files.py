"""Rows of files as people have them: quotes, line ends, byte order marks, compression, and lines that are wrong."""

import bz2
import copy
import gzip
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from computed_rows import ask
from table_files import csv_of

from rembert.errors import UsageError
from tasks.tables.files import read_lines, read_questions, read_rows

CELLS = [
  {'id': '1', 'text': 'Sie sagte: „Ja, gern.“\nDann ging sie.', 'label': 'gut'},
  {'id': '2', 'text': 'He said "no", twice', 'label': ''},
  {'id': '2', 'text': 'ذهب الولد إلى المدرسة', 'label': '3'},
  {'id': '4', 'text': '天気がいいから、散歩しましょう\t。', 'label': ' a b '},
]


def _content(path):
  return [row for _, row in read_rows(path)]


@pytest.mark.parametrize('newline', ['\n', '\r\n'])
@pytest.mark.parametrize('mark', ['', '\ufeff'])
@pytest.mark.parametrize(('name', 'delimiter'), [('a.csv', ','), ('a.tsv', '\t'), ('a.CSV', ',')])
def test_a_table_is_read_as_a_csv_writer_wrote_it(tmp_path, name, delimiter, mark, newline):
  file = tmp_path / name
  file.write_bytes((mark + csv_of(CELLS, delimiter, newline)).encode())
  assert _content(file) == CELLS
  # The first row takes two lines.
  assert [where for where, _ in read_rows(file)] == [f'{file}:{line}' for line in (2, 4, 5, 6)]


def test_other_formats_keep_numbers_and_lists(tmp_path):
  rows = [{'text': 'bir', 'score': 1.5, 'words': ['a', 'b']}, {'text': None, 'score': 2.0, 'words': []}]
  (tmp_path / 'a.jsonl').write_text('\n\n'.join(map(json.dumps, rows)) + '\r\n')
  pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / 'a.parquet')
  assert _content(tmp_path / 'a.jsonl') == _content(tmp_path / 'a.parquet') == rows
  assert [where for where, _ in read_rows(tmp_path / 'a.jsonl')][1] == f'{tmp_path / "a.jsonl"}:3'


@pytest.mark.parametrize(
  ('suffix', 'compress'), [('gz', gzip.compress), ('bz2', bz2.compress), ('zst', zstandard.compress)]
)
def test_a_compressed_file_is_read_and_a_truncated_one_is_an_error_with_its_line(tmp_path, suffix, compress):
  content = compress(csv_of(CELLS * 500).encode())
  (tmp_path / f'a.csv.{suffix}').write_bytes(content)
  assert _content(tmp_path / f'a.csv.{suffix}') == CELLS * 500
  (tmp_path / f'b.csv.{suffix}').write_bytes(content[:-30])
  with pytest.raises(UsageError, match='cannot be read') as error:
    _content(tmp_path / f'b.csv.{suffix}')
  assert f'b.csv.{suffix}:' in error.value.where


@pytest.mark.parametrize(
  ('name', 'content', 'line', 'words'),
  [
    ('a.csv', 'text,label\nx,1\ny\n', ':3', ['1 cells under 2 columns', 'text, label']),
    ('a.csv', 'text,label\nx,1\n"y,2\nz,3\n', ':3', ['unexpected end of data', 'doubled']),
    ('a.csv', 'text,label\n"x"y,1\n', ':2', ["',' expected"]),
    ('a.csv', 'text,text\n', ':1', ["two columns are called 'text'"]),
    ('a.csv', '', ':1', ['an empty file']),
    ('a.tsv', b'text\tlabel\n\xff\t1\n', ':2', ['not UTF-8', 'iconv']),
    ('a.jsonl', '{"a": 1}\n{"a":\n', ':2', ['not JSON']),
    ('a.jsonl', '[1]\n', ':1', ['a line with list']),
    ('a.parquet', 'text', ':1', ['cannot be read']),
    ('a.xlsx', 'text', '', ["unknown format '.xlsx'", '.csv, .tsv']),
  ],
)
def test_a_wrong_line_is_one_error_with_file_line_rule_and_fix(tmp_path, name, content, line, words):
  (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises(UsageError) as error:
    _content(tmp_path / name)
  assert error.value.where == f'{tmp_path / name}{line}'
  assert all(word in str(error.value) for word in words)


def test_a_missing_file_is_an_error(tmp_path):
  with pytest.raises(UsageError, match='cannot be read: No such file'):
    _content(tmp_path / 'a.csv')


def test_memory_does_not_grow_with_a_file(tmp_path):
  def peak(rows):
    file = tmp_path / f'{rows}.csv'
    file.write_text(csv_of([{'text': 'word ' * 20, 'label': '1'}] * rows))
    tracemalloc.start()
    assert sum(1 for _ in read_rows(str(file))) == rows
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most

  assert peak(20_000) < peak(2_000) + 200_000  # the file grows by 1.9 MB


def test_lines_end_at_line_feeds_with_or_without_a_carriage_return(tmp_path):
  (path := tmp_path / 'a.tsv').write_bytes('\ufeffeins\r\nzwei\N{LINE SEPARATOR}drei\x85\n\nvier'.encode())
  assert [line.text for line in read_lines(path)] == ['eins', 'zwei\N{LINE SEPARATOR}drei\x85', '', 'vier']
  assert [line.where for line in read_lines(path)] == [f'{path}:{number}' for number in (1, 2, 3, 4)]


# --- the JSON of SQuAD ------------------------------------------------------------------------------------------------

CONTEXT = 'Der Turm in Halden hat vier Glocken 🔔 und 96 Stufen.'
ANSWERS = [[('vier', 23)], [('96', 42), ('96 Stufen', 42)]]
SQUAD = {
  'version': '1.1',
  'data': [
    {
      'paragraphs': [
        {
          'context': CONTEXT,
          'qas': [
            {'id': name, 'question': '?', 'answers': [{'text': text, 'answer_start': at} for text, at in answers]}
            for name, answers in zip('ab', ANSWERS, strict=True)
          ],
        }
      ]
    }
  ],
}


def _questions(tmp_path, content):
  (file := tmp_path / 'file.json').write_text(content if isinstance(content, str) else json.dumps(content))
  return file, lambda: read_questions(file)


def test_questions_of_all_paragraphs_are_read_in_order(tmp_path):
  content = copy.deepcopy(SQUAD)
  content['data'] *= 2
  file, read = _questions(tmp_path, content)
  assert read() == [
    ask(CONTEXT, *answers, name=name, where=f'{file}:data[{article}].paragraphs[0].qas[{index}]')
    for article in (0, 1)
    for index, (name, answers) in enumerate(zip('ab', ANSWERS, strict=True))
  ]


@pytest.mark.parametrize('answers', [[], None, [{'text': '', 'answer_start': 0}]])
def test_answers_are_blank_in_all_questions_or_in_none(tmp_path, answers):
  content = copy.deepcopy(SQUAD)
  first, second = content['data'][0]['paragraphs'][0]['qas']
  second['answers'] = answers
  file, read = _questions(tmp_path, content)
  with pytest.raises(UsageError, match='without an answer') as error:
    read()
  assert error.value.where == f'{file}:data[0].paragraphs[0].qas[1]'
  first['answers'] = answers
  assert [question.label for question in _questions(tmp_path, content)[1]()] == [None, None]


@pytest.mark.parametrize(
  ('path', 'value', 'what', 'where'),
  [
    ((), [], 'not the form of SQuAD', ''),
    (('data', 0, 'paragraphs'), None, 'not the form of SQuAD', ''),
    (('data', 0, 'paragraphs', 0, 'context'), None, "'context' has no text", ':data[0].paragraphs[0]'),
    (('data', 0, 'paragraphs', 0, 'qas'), {'a': 3}, 'not the form', ':data[0].paragraphs[0].qas[0]'),
    (('data', 0, 'paragraphs', 0, 'qas', 1), 3, 'not the form', ':data[0].paragraphs[0].qas[1]'),
    (('data', 0, 'paragraphs', 0, 'qas', 1), {'id': 'b'}, "form of SQuAD v1.1: 'question'", '…qas[1]'),
    (('data', 0, 'paragraphs', 0, 'qas', 1, 'question'), 'Wo \ud83d?', 'half a character', '…qas[1]'),
    (('data', 0, 'paragraphs', 0, 'qas', 1, 'answers'), 'vier', 'not the form', '…qas[1]'),
    (('data', 0, 'paragraphs', 0, 'qas', 1, 'answers', 1), {'text': 'vier'}, "'answer_start'", '…qas[1]'),
    *(
      (
        ('data', 0, 'paragraphs', 0, 'qas', 1, 'answers', 1),
        {'text': text, 'answer_start': at},
        'not at',
        '…qas[1].answers[1]',
      )
      for text, at in [
        ('vier', 22),
        ('fünf', 23),
        ('Stufen.', 44),
        ('vier', -30),
        ('vier', 4000),
        (' ', 3),
        ('vier', 2.5),
      ]
    ),
    (('data',), [], 'without questions', ''),
  ],
)
def test_what_is_not_squad_is_named_with_its_place(tmp_path, path, value, what, where):
  content = root = {'root': copy.deepcopy(SQUAD)}
  for key in ('root', *path)[:-1]:
    content = content[key]
  content[('root', *path)[-1]] = value
  file, read = _questions(tmp_path, root['root'])
  with pytest.raises(UsageError, match=what) as error:
    read()
  assert error.value.where == f'{file}{where.replace("…", ":data[0].paragraphs[0].")}'


def test_invalid_json_is_named_with_its_line(tmp_path):
  file, read = _questions(tmp_path, '{"data": [\n\n  {]')
  with pytest.raises(UsageError, match='invalid JSON') as error:
    read()
  assert error.value.where == f'{file}:3'
