"""Files as XTREME's preprocessing writes them, checked on files that it wrote."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from tasks.xtreme.conversion.converted import pairs_files, tagging_files

# What a line of a published file can hold: anything but the ends of lines and columns.
TEXT = st.text(st.characters(exclude_characters='\r\n\t', codec='utf-8'), min_size=1)


def test_pairs_have_csv_quotes_and_carriage_returns():
  (file,) = pairs_files('xnli', 'dev', 'de', [('Er sagte "ja".', 'Ja.', 'entailment')])
  assert file == ('xnli/dev-de.tsv', '"Er sagte ""ja""."\tJa.\tentailment\r\n')


def test_labels_of_a_test_split_are_in_a_file_of_their_own():
  rows = [('a', 'b', '0'), ('c', 'd', '1')]
  assert dict(pairs_files('pawsx', 'test', 'fr', rows)) == {
    'pawsx/test-fr.tsv': 'a\tb\r\nc\td\r\n',
    'labels/pawsx/test-fr.tsv': '0\n1\n',
  }


@given(st.lists(st.tuples(TEXT, TEXT, st.sampled_from('01'))))
def test_pairs_come_back_as_they_were(rows):
  (file,) = pairs_files('pawsx', 'dev', 'de', rows)
  assert [tuple(row) for row in csv.reader(io.StringIO(file.content, newline=''), delimiter='\t')] == rows


def test_sentences_are_blocks_of_tokens():
  sentences = [[('Anna', 'B-PER'), ('lacht', 'O')], [('Rom', 'B-LOC')]]
  assert dict(tagging_files('panx', 'dev', 'de', sentences)) == {
    'panx/dev-de.tsv': 'Anna\tB-PER\nlacht\tO\n\nRom\tB-LOC\n'
  }
  assert dict(tagging_files('panx', 'test', 'de', sentences)) == {
    'panx/test-de.tsv': 'Anna\nlacht\n\nRom\n',
    'labels/panx/test-de.tsv': 'B-PER\nO\n\nB-LOC\n',
  }


def test_real_files_are_written_as_they_are(shared_data):
  root = shared_data / 'xtreme'
  read = lambda name: (root / name).read_bytes().decode()
  rows = list(csv.reader(io.StringIO(read('pawsx/dev-de.tsv'), newline=''), delimiter='\t'))
  assert dict(pairs_files('pawsx', 'dev', 'de', rows)) == {'pawsx/dev-de.tsv': read('pawsx/dev-de.tsv')}
  names = ['panx/test-sw.tsv', 'labels/panx/test-sw.tsv']
  blocks = [[block.splitlines() for block in read(name).split('\n\n')] for name in names]
  sentences = [list(zip(tokens, tags, strict=True)) for tokens, tags in zip(*blocks, strict=True)]
  assert dict(tagging_files('panx', 'test', 'sw', sentences)) == {name: read(name) for name in names}
