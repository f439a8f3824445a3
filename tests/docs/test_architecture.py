"""docs/architecture.md says where things are, and they are there."""

import csv
import pathlib
import re

PAGE = pathlib.Path('docs/architecture.md').read_text(encoding='utf-8')
# Questions that a reader who wants to change something may have, and where a reader of the list of files looks first.
# They were written before files were moved, and are not adapted to where things are.
with open('tests/data/where_to_change.csv', encoding='utf-8', newline='') as lines:
  EXPECTED = {row['question']: row['file'] for row in csv.DictReader(lines)}


def answers():
  section = PAGE.split('## Where to look for what')[1].split('\n## ')[0]
  return dict(re.findall(r'^- (.+?) `(.+?)`$', section, re.MULTILINE))


def test_every_question_is_answered_with_a_file_that_is_there():
  assert answers().keys() == EXPECTED.keys()
  assert len(EXPECTED) >= 30
  assert [file for file in answers().values() if not pathlib.Path(file).is_file()] == []


def test_things_are_where_they_are_looked_for_first():
  elsewhere = {question for question, file in answers().items() if file != EXPECTED[question]}
  assert len(elsewhere) <= 4, elsewhere
  assert not [question for question in elsewhere if pathlib.Path(EXPECTED[question]).exists()]


def test_files_and_folders_of_the_page_are_there():
  named = set(re.findall(r'`((?:rembert|tasks|launch|tests|docs|gin)/[\w./]*\w\.\w+|(?:rembert|tasks)/\w+/)`', PAGE))
  assert len(named) > 30
  assert sorted(name for name in named if not pathlib.Path(name).exists() and 'NAME' not in name) == []
