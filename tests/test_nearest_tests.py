"""`make fast`: which tests depend on a change, and in which order."""

import pathlib

from nearest_tests import distances, imported_files, nearest_tests

SOURCES = {
  'rembert/__init__.py': '',
  'rembert/low.py': '',
  'rembert/middle.py': 'def f():\n  from rembert import low\n',
  'rembert/high.py': 'import rembert.middle\n',
  'tests/conftest.py': '',
  'tests/support/helper.py': 'from rembert.low import x\n',
  'tests/test_low.py': 'from rembert.low import x\n',
  'tests/test_high.py': 'from rembert import high\n',
  'tests/test_helped.py': 'from helper import y\n',
  'tests/test_data.py': "FILE = 'data/table.csv'\n",
}


def test_imports_are_found_at_any_depth_and_by_bare_name():
  files = set(SOURCES)
  found = lambda name: imported_files(pathlib.PurePath(name), SOURCES[name], files)
  assert found('rembert/middle.py') == {'rembert/__init__.py', 'rembert/low.py'}
  assert found('tests/test_helped.py') == {'tests/support/helper.py', 'tests/conftest.py'}


def test_distance_is_the_shortest_way_along_imports():
  imports = {'a': {'b', 'c'}, 'b': {'c'}, 'd': {'a'}, 'e': set()}
  assert distances(['c'], imports) == {'c': 0, 'a': 1, 'b': 1, 'd': 2}


def test_the_nearest_tests_come_first_and_others_not_at_all():
  assert nearest_tests(['rembert/low.py'], SOURCES) == [
    (1, 'tests/test_low.py'),
    (2, 'tests/test_helped.py'),
    (3, 'tests/test_high.py'),
  ]


def test_a_changed_test_is_at_distance_zero_and_fixtures_concern_all_tests_below():
  assert nearest_tests(['tests/test_low.py'], SOURCES)[0] == (0, 'tests/test_low.py')
  assert len(nearest_tests(['tests/conftest.py'], SOURCES)) == 4


def test_data_concerns_the_tests_that_name_it():
  assert nearest_tests(['tests/data/table.csv'], SOURCES) == [(1, 'tests/test_data.py')]
