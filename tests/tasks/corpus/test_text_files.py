"""Text as people have it: every format and compression, columns, languages, damage; from a disk and from elsewhere."""

import bz2
import functools
import gzip
import io
import json
import lzma
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hub_server import serve_hub
from made_up_dumps import LAKE, RIVER, TOWN, files_of
from small_corpora import find_parts
from table_files import csv_of

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from rembert.tracking.console import Console
from tasks.corpus.__main__ import main
from tasks.corpus.build import CorpusConfig, find_corpus
from tasks.corpus.format import open_corpus
from tasks.corpus.sources import RawDocument, parts_to_read_together, read_together

TEXTS = [
  'Sie sagte: „Ja, gern.“\nDann ging sie.',
  'He said "no", twice;\tand left.',
  'ذهب الولد إلى المدرسة، ثم عاد.',
  'הילד הלך לבית הספר.',
  '天気がいいから、散歩しましょう。',
  'วันนี้อากาศดีมาก',
]
COMPRESSIONS = {
  '': bytes,
  '.gz': gzip.compress,
  '.bz2': bz2.compress,
  '.xz': lzma.compress,
  '.zst': lambda content: zstandard.compress(content[:99]) + zstandard.compress(content[99:]),  # of several frames
}


def table_of(rows, *options):
  """The bytes of a CSV file."""
  return csv_of(rows, *options).encode()


def lines_of(rows):
  """The bytes of a file of JSON lines."""
  return ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows).encode()


def parquet_of(rows, **options):
  """The bytes of a Parquet file."""
  file = io.BytesIO()
  pq.write_table(pa.Table.from_pylist(rows), file, **options)
  return file.getvalue()


def paragraphs_of(rows):
  """The bytes of plain text."""
  return '\n\n'.join(row['text'] for row in rows).encode()


FORMATS = {
  'txt': paragraphs_of,
  'jsonl': lines_of,
  'csv': table_of,
  'tsv': lambda rows: table_of(rows, '\t'),
  'parquet': parquet_of,
}


def read(place, languages=None, **options):
  """Texts by language, and losses as (language, reason) → count, of all parts of a place."""
  texts, lost = {}, {}
  for parts in parts_to_read_together(find_parts('text', str(place), languages, **options)):
    for each in read_together(parts):
      if isinstance(each, RawDocument):
        texts.setdefault(each.language, []).append(each.text)
      else:
        lost[each.language, each.reason] = lost.get((each.language, each.reason), 0) + each.count
  return texts, lost


# --- formats and compressions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', FORMATS)
def test_every_format_gives_the_same_documents_however_it_is_compressed(tmp_path, kind):
  rows = [{'text': text} for text in TEXTS]
  if kind == 'parquet':
    for inside in 'none', 'snappy', 'gzip', 'brotli', 'lz4', 'zstd':
      (tmp_path / 'de.parquet').write_bytes(parquet_of(rows, compression=inside))
      assert read(tmp_path) == ({'de': TEXTS}, {})
    return
  for ending, compress in COMPRESSIONS.items():
    (tmp_path / f'de.{kind}{ending}').write_bytes(compress(FORMATS[kind](rows)))
    assert read(tmp_path / f'de.{kind}{ending}') == ({'de': TEXTS}, {})


@pytest.mark.parametrize(('mark', 'newline'), [(b'', '\n'), (b'\xef\xbb\xbf', '\r\n')])
@pytest.mark.parametrize(('kind', 'delimiter'), [('csv', ','), ('tsv', '\t')])
def test_line_breaks_in_quotes_line_ends_byte_order_marks_and_empty_cells(tmp_path, kind, delimiter, mark, newline):
  rows = [{'text': text, 'n': n} for text, n in (('eins\r\nzwei ""', ''), ('', '2'), (' ', ''), ('drei', '4'))]
  (tmp_path / f'de.{kind}').write_bytes(mark + table_of(rows, delimiter, newline))
  assert read(tmp_path) == ({'de': ['eins\r\nzwei ""', 'drei']}, {('de', 'no text'): 2})


def test_the_id_of_a_document_is_its_file_and_line_or_row(tmp_path):
  rows = [{'text': 'a\nb'}, {'text': 'c'}]
  for kind in 'jsonl', 'csv', 'parquet':
    (tmp_path / f'de.{kind}').write_bytes(FORMATS[kind](rows))
  parts = find_parts('text', str(tmp_path))
  ids = [each.id for part in parts for each in read_together([part])]
  assert ids == [f'de.{kind}:{number}' for kind in ('csv', 'jsonl', 'parquet') for number in (1, 2)]


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_broken_line_of_json_is_lost_alone(tmp_path):
  broken, without_text = ['{"text": ', '', '[1]', '"text"'], ['{"text": 3}', '{}', '{"text": null}']
  lines = ['{"text": "eins"}', *broken, *without_text, '{"text": "zwei"}']
  (tmp_path / 'de.jsonl').write_text('\r\n'.join([*lines, '[' * 99_999]), encoding='utf-8-sig')
  assert read(tmp_path) == ({'de': ['eins', 'zwei']}, {('de', 'broken lines'): 4, ('de', 'no text'): 3})


def test_a_broken_row_is_lost_alone(tmp_path):
  rows = ['text,n', 'eins,1', 'zwei', 'a,b,3', '"vier" x,4', '"fünf, ""5""",5', '"sechs', '6', '']
  (tmp_path / 'de.csv').write_text('\n'.join(rows))
  assert read(tmp_path) == ({'de': ['eins', 'fünf, "5"']}, {('de', 'broken rows'): 4})


def test_a_quote_that_is_never_closed_does_not_take_the_rest_of_the_file(tmp_path, monkeypatch):
  monkeypatch.setattr('tasks.corpus.text_files._LARGEST_CELL', 1000)
  (tmp_path / 'de.csv').write_text('text,n\n"eins,1\n' + 'zwei,2\n' * 1000)
  texts, lost = read(tmp_path)
  assert len(texts['de']) > 800
  assert lost == {('de', 'broken rows'): 1}


@pytest.mark.parametrize(('kind', 'compression'), [('txt', '.gz'), ('jsonl', '.zst'), ('csv', '.gz')])
def test_what_precedes_the_end_of_a_truncated_archive_is_read(tmp_path, kind, compression):
  rows = [{'text': f'{RIVER} {number}'} for number in range(9000)]
  content = COMPRESSIONS[compression](FORMATS[kind](rows))
  (tmp_path / f'de.{kind}{compression}').write_bytes(content[: len(content) * 3 // 4])
  texts, lost = read(tmp_path)
  assert 2000 < len(texts['de']) < 9000
  assert texts['de'][:2000] == [row['text'] for row in rows[:2000]]
  assert lost.pop(('de', 'truncated files')) == 1
  assert sum(lost.values()) <= 1  # the row that was being read


@pytest.mark.parametrize('kind', ['jsonl', 'csv', 'txt'])
def test_files_in_utf_16_are_lost_whole_and_empty_ones_hold_nothing(tmp_path, kind):
  (tmp_path / f'de.{kind}').write_bytes(FORMATS[kind]([{'text': 'eins'}]).decode().encode('utf-16'))
  (tmp_path / f'sw.{kind}').write_bytes(b'')
  assert read(tmp_path) == ({}, {('de', 'files in UTF-16'): 1})


@pytest.mark.parametrize('kind', ['jsonl', 'csv'])
def test_an_item_that_is_not_utf_8_is_counted_and_the_others_are_kept(tmp_path, kind):
  (tmp_path / f'de.{kind}').write_bytes(
    FORMATS[kind]([{'text': RIVER}, {'text': f'{TOWN} XX'}]).replace(b'XX', b'\xff')
  )
  command = [f'--text={tmp_path}', f'--output={tmp_path / "corpus"}', '--held_out=0', '--min_characters=20']
  assert main(command) == 0
  corpus = open_corpus(tmp_path / 'corpus')
  assert list(corpus.texts('de', 'train')) == [RIVER]
  assert corpus.languages['de'].lost == {'not UTF-8': 1}


def test_an_error_of_a_network_is_not_taken_for_the_end_of_a_file(tmp_path, monkeypatch):
  class Refused(OSError):
    """As requests and huggingface_hub have them: without a number."""

  def fail(file):
    raise Refused('503')

  (tmp_path / 'de.jsonl').write_bytes(lines_of([{'text': 'eins'}]))
  [part] = find_parts('text', str(tmp_path))
  monkeypatch.setattr('tasks.corpus.text_files.decompressed', fail)
  with pytest.raises(Refused):
    list(read_together([part]))
  with pytest.raises(UsageError, match='cannot be read: 503'):
    find_parts('text', str(tmp_path))


# --- Parquet ----------------------------------------------------------------------------------------------------------


def test_row_groups_of_parquet_are_parts_and_small_ones_are_together(tmp_path, monkeypatch):
  rows = [{'n': number, 'text': f'{RIVER} {number}'} for number in range(10)]
  (tmp_path / 'de.parquet').write_bytes(parquet_of(rows, row_group_size=4))
  [part] = find_parts('text', str(tmp_path))
  assert (part.start, part.stop) == (0, 3)
  assert [each.text for each in read_together([part])] == [row['text'] for row in rows]
  monkeypatch.setattr('tasks.corpus.text_files._RANGE_BYTES', part.size * 2 // 3 + 60)
  assert [(part.start, part.stop) for part in find_parts('text', str(tmp_path))] == [(0, 2), (2, 3)]
  monkeypatch.setattr('tasks.corpus.text_files._RANGE_BYTES', 1)
  parts = find_parts('text', str(tmp_path))
  assert [(part.start, part.stop) for part in parts] == [(0, 1), (1, 2), (2, 3)]
  assert all(part.size > 0 for part in parts)
  found = [[each.id for each in read_together([part])] for part in parts]
  assert found == [[f'de.parquet:{row + 1}' for row in rows] for rows in (range(4), range(4, 8), range(8, 10))]


@pytest.mark.parametrize('kind', [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_strings_of_every_kind_and_nulls(tmp_path, kind):
  column = pa.array(['eins', None, '', 'zwei']).cast(kind)
  pq.write_table(pa.table({'text': column}), tmp_path / 'de.parquet')
  assert read(tmp_path) == ({'de': ['eins', 'zwei']}, {('de', 'no text'): 2})


def test_memory_holds_a_few_rows_whatever_the_size_of_a_row_group(tmp_path):
  def most(rows):
    # Every text another one: dictionaries would hide the size.
    texts = [f'{number} ' * 1000 for number in range(rows)]
    options = {'compression': 'none', 'use_dictionary': False, 'data_page_size': 1 << 16, 'write_batch_size': 16}
    (tmp_path / 'de.parquet').write_bytes(
      parquet_of([{'text': text} for text in texts], row_group_size=rows, **options)
    )
    [part] = find_parts('text', str(tmp_path))
    count = peak = 0
    for _ in read_together([part]):
      count, peak = count + 1, max(peak, pa.total_allocated_bytes() - before)
    assert count == rows
    return peak

  before = pa.total_allocated_bytes()
  assert most(8_000) < most(1_000) + (8 << 20)  # the row group is 35 MB larger


def test_a_damaged_row_group_costs_itself(tmp_path):
  rows = [{'text': f'{RIVER} {number}' * 50, 'lang': 'sw' if number % 2 else 'de'} for number in range(30)]
  content = bytearray(parquet_of(rows, row_group_size=10, compression='gzip', use_dictionary=False))
  group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(1).column(0)
  start = group.data_page_offset
  content[start + 40 : start + group.total_compressed_size] = b'\xff' * (group.total_compressed_size - 40)
  (tmp_path / 'de.parquet').write_bytes(content)
  texts, lost = read(tmp_path)
  assert (len(texts['de']), lost) == (20, {('de', 'damaged row groups'): 1})
  texts, lost = read(tmp_path, language_column='lang')
  assert {language: len(some) for language, some in texts.items()} == {'de': 10, 'sw': 10}
  assert lost == {('de', 'damaged row groups'): 1, ('sw', 'damaged row groups'): 1}


def test_a_parquet_file_without_its_end_is_an_error_before_any_work(tmp_path):
  (tmp_path / 'de.parquet').write_bytes(parquet_of([{'text': RIVER}])[:-9])
  with pytest.raises(UsageError, match='not a Parquet file, or truncated') as caught:
    find_parts('text', str(tmp_path))
  assert caught.value.where == str(tmp_path / 'de.parquet')


# --- columns and languages --------------------------------------------------------------------------------------------

ROWS = [
  {'id': 1, 'body': RIVER, 'lang': 'de'},
  {'id': 2, 'body': 'Mto ni mkubwa.', 'lang': 'sw'},
  {'id': 3, 'body': LAKE, 'lang': 'DE'},
  {'id': 4, 'body': 'והנהר', 'lang': 'iw'},
  {'id': 5, 'body': 'what', 'lang': 'English'},
  {'id': 6, 'body': 'none', 'lang': None},
  {'id': 7, 'body': None, 'lang': 'sw'},
  {'id': 8, 'body': 'undetermined', 'lang': 'und'},
]
COLUMNS = {'text_column': 'body', 'language_column': 'lang'}


@pytest.mark.parametrize('kind', ['jsonl', 'csv', 'tsv', 'parquet'])
def test_a_column_names_the_language_of_each_row(tmp_path, kind):
  (tmp_path / f'crawl.{kind}').write_bytes(FORMATS[kind](ROWS))
  assert read(tmp_path, **COLUMNS) == (
    {'de': [RIVER, LAKE], 'sw': ['Mto ni mkubwa.'], 'he': ['והנהר']},
    {('und', 'no language code'): 3, ('sw', 'no text'): 1},
  )
  # What is not chosen is no loss; what has no language is.
  assert read(tmp_path, ('de',), **COLUMNS) == ({'de': [RIVER, LAKE]}, {('und', 'no language code'): 3})
  with pytest.raises(UsageError, match='no text in fr'):
    find_parts('text', str(tmp_path), ('fr',), **COLUMNS)


def test_a_file_with_many_languages_is_read_once_for_those_made_together(tmp_path):
  (tmp_path / 'crawl.jsonl').write_bytes(lines_of(ROWS))
  parts = find_parts('text', str(tmp_path), **COLUMNS)
  assert [part.language for part in parts] == ['de', 'he', 'sw', 'und']
  assert [len(some) for some in parts_to_read_together(parts)] == [4]
  assert sum(part.size for part in parts) <= (tmp_path / 'crawl.jsonl').stat().st_size
  # Files of one language each are parts of their own.
  assert len(parts_to_read_together(find_parts('text', str(tmp_path), language='de', text_column='body'))) == 1


@pytest.mark.parametrize('kind', ['jsonl', 'csv', 'parquet'])
@pytest.mark.parametrize(
  ('columns', 'missing'), [({}, "'text'"), (COLUMNS | {'language_column': 'language'}, "'language'")]
)
def test_a_missing_column_is_one_error_with_the_existing_ones_before_any_work(tmp_path, capsys, kind, columns, missing):
  for name in 'de', 'sw':
    (tmp_path / f'{name}.{kind}').write_bytes(FORMATS[kind](ROWS))
  flags = [f'--{name}={value}' for name, value in columns.items()]
  assert main([f'--text={tmp_path}', f'--output={tmp_path / "corpus"}', *flags]) == 2
  error = capsys.readouterr().err
  assert error.count('there is no column') == 1
  assert f'there is no column {missing}' in error
  assert 'the columns are id, body, lang' in error
  assert not (tmp_path / 'corpus').exists()


@pytest.mark.parametrize(
  ('name', 'content', 'options', 'words'),
  [
    ('train.jsonl', lines_of(ROWS), {'text_column': 'body'}, 'does not begin with the code of a language'),
    ('de.json', b'[1,\n2]', {}, 'not JSON lines: none of the first 2 is an object'),
    ('de.parquet', parquet_of(ROWS), {'text_column': 'id'}, 'does not hold text: id is int64'),
    (
      'a.csv',
      table_of([{'text': 'x', 'lang': 'English'}]),
      {'language_column': 'lang'},
      "is the code of a language: 'Eng",
    ),
    ('a.csv', b'text,lang\n', {'language_column': 'lang', 'language': 'de'}, 'one language, or a column'),
    ('a.csv', b'text,lang\n', {'language': 'German'}, "not a language code: 'German'"),
  ],
)
def test_what_cannot_be_meant_is_one_error(tmp_path, name, content, options, words):
  (tmp_path / name).write_bytes(content)
  with pytest.raises(UsageError, match=words) as caught:
    find_parts('text', str(tmp_path / name), **options)
  assert caught.value.fix[0]


def test_columns_of_what_has_none_are_refused(tmp_path, capsys):
  assert main(['--dumps=sample', '--text_column=body', f'--output={tmp_path / "corpus"}']) == 2
  assert 'columns and language are those of --text' in capsys.readouterr().err


# --- places -----------------------------------------------------------------------------------------------------------


def test_one_file_a_folder_or_a_glob(tmp_path):
  (tmp_path / 'more').mkdir()
  both = ['sw-00000-of-00002.jsonl', 'sw-00001-of-00002.jsonl']
  for name in ('de.txt', *both, 'more/fr.jsonl.gz', 'notes.md', 'x.json'):
    (tmp_path / name).write_bytes(lines_of([{'text': name}]))
  parts = lambda pattern: find_parts('text', f'{tmp_path}/{pattern}')
  found = lambda pattern: [part.path.removeprefix(f'{tmp_path}/') for part in parts(pattern)]
  assert found('') == ['de.txt', *both]
  assert found('sw*') == both
  assert found('**/fr.*') == found('more/fr.jsonl.gz') == ['more/fr.jsonl.gz']
  for pattern in 'notes.md', 'nothing*', 'nowhere/de.txt':
    with pytest.raises(UsageError, match='no text files'):
      found(pattern)


def test_names_with_signs_of_globs_and_urls_are_names(tmp_path):
  folder = tmp_path / 'a::b [1] #2'
  folder.mkdir()
  (folder / 'de.txt').write_text('eins')
  assert read(folder) == read(folder / 'de.txt') == ({'de': ['eins']}, {})


@pytest.mark.parametrize('kind', FORMATS)
def test_text_is_read_wherever_fsspec_can_read(tmp_path, kind):
  with fsspec.open(f'memory://text_{kind}/de.{kind}', 'wb') as file:
    file.write(FORMATS[kind]([{'text': RIVER}, {'text': LAKE}]))
  for place in f'memory://text_{kind}', f'memory://text_{kind}/*.{kind}', f'memory://text_{kind}/de.{kind}':
    assert read(place) == ({'de': [RIVER, LAKE]}, {})
  data = DataConfig(source='text', text=f'memory://text_{kind}', held_out=0, min_characters=20)
  assert find_corpus(data, tmp_path, Console(is_quiet=True))().languages['de'].documents == 2


@pytest.mark.parametrize(
  ('place', 'words'), [('s3://bucket/x', 'pip install s3fs'), ('nope://x', 'a local path, gs://')]
)
def test_a_place_that_cannot_be_read_here_is_an_error_with_what_to_install(place, words):
  if place.startswith('s3') and 's3fs' in sys.modules:
    pytest.skip('s3fs is installed')
  with pytest.raises(UsageError, match='fsspec cannot read') as caught:
    find_parts('text', place)
  assert words in caught.value.fix[0]


def test_data_sets_of_hugging_face_are_read_in_place(use_hub):
  from huggingface_hub import HfFileSystem

  place = 'hf://datasets/made-up/wikipedia/20231101.de'
  with serve_hub() as hub:
    german = parquet_of([{'text': RIVER}, {'text': TOWN}], row_group_size=1)
    swahili = parquet_of([{'text': 'Mto'}])
    hub.add('made-up/wikipedia', {'20231101.de/train-0.parquet': german, '20231101.sw/train-0.parquet': swahili})
    use_hub(hub.url)
    HfFileSystem.clear_instance_cache()
    for pattern in f'{place}/*.parquet', place, f'{place}/train-0.parquet':
      parts = find_parts('text', pattern, language='de')
      assert [part.path for part in parts] == [f'{place}/train-0.parquet']
      assert [each.text for part in parts for each in read_together([part])] == [RIVER, TOWN]
    with pytest.raises(UsageError, match=r'no text files|cannot be listed'):
      find_parts('text', 'hf://datasets/made-up/nothing/*.parquet', language='de')
  HfFileSystem.clear_instance_cache()


# --- corpora ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def crawl(tmp_path_factory):
  """A folder with files of several languages, and texts that occur in more than one of them."""
  folder = tmp_path_factory.mktemp('crawl')
  codes = 'de', 'sw', 'th', 'und'
  rows = [
    {'text': f'{(RIVER, TOWN, LAKE)[number % 3]} {number % 15}.\n{RIVER}', 'lang': codes[number % 4]}
    for number in range(180)
  ]
  (folder / 'a.jsonl.gz').write_bytes(gzip.compress(lines_of(rows[:60]) + b'{"text": \n'))
  (folder / 'b.csv').write_bytes(table_of(rows[60:120]))
  (folder / 'c.parquet').write_bytes(parquet_of(rows[120:], row_group_size=16))
  return folder


@pytest.fixture(scope='module')
def in_process(crawl, tmp_path_factory):
  """The folder of the corpus made without Beam."""
  data = DataConfig(source='text', text=str(crawl), language_column='lang', held_out=0.1, min_characters=20)
  with pytest.MonkeyPatch.context() as patched:
    small = functools.partial(CorpusConfig, shard_bytes=int(0.002 * (1 << 20)))
    patched.setattr('tasks.corpus.build.CorpusConfig', small)
    return find_corpus(data, tmp_path_factory.mktemp('run'), Console(is_quiet=True))().folder


def test_beam_writes_what_this_process_writes(crawl, in_process, tmp_path):
  corpus = open_corpus(in_process)
  assert [language for language, counts in corpus.languages.items() if counts.documents] == ['de', 'sw', 'th']
  assert all(counts.held_out for language, counts in corpus.languages.items() if language != 'und')
  assert corpus.languages['und'].lost == {'broken lines': 1, 'no language code': 45}
  assert all(counts.lost['repeated documents'] for language, counts in corpus.languages.items() if language != 'und')
  assert {tuple(each[-2:]) for each in corpus.recipe['sources']} == {('text', 'lang')}  # other columns, another corpus
  flags = ['--language_column=lang', '--held_out=0.1', '--min_characters=20', '--shard_mb=0.002']
  # At once, while this process makes one language after the other.
  assert main([f'--text={crawl}', f'--output={tmp_path / "corpus"}', *flags, '--group_mb=0']) == 0
  assert files_of(tmp_path / 'corpus') == files_of(in_process)


def test_plain_text_has_the_recipe_that_it_had_before_there_were_columns(tmp_path):
  (tmp_path / 'de.txt').write_text(RIVER)
  [part] = find_parts('text', str(tmp_path))
  assert part.recipe() == ['de', 'text', 'de.txt', '', 0, 0, None, len(RIVER.encode())]
