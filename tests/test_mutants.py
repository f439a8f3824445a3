"""The list of mutants: each can be applied to the code as it is. What the tests make of them is `make mutants`."""

import ast
import collections

import pytest
from mutation_testing import MUTANTS, apply, mirrored_tests

AREAS = ('model', 'kernels', 'data', 'tasks', 'training', 'checkpoints', 'metrics', 'convert', 'hosts', 'launch')


@pytest.mark.parametrize('mutant', MUTANTS, ids=lambda mutant: mutant.sentence)
def test_a_mutant_changes_the_code_and_has_tests(root, tmp_path, mutant):
  source = (root / mutant.file).read_text(encoding='utf-8')
  copy = tmp_path / mutant.file
  copy.parent.mkdir(parents=True)
  copy.write_text(source, encoding='utf-8')
  assert apply(mutant, tmp_path) is None
  if mutant.file.endswith('.py'):
    assert ast.dump(ast.parse(copy.read_text(encoding='utf-8'))) != ast.dump(ast.parse(source))
  for file in mirrored_tests(mutant):
    assert (root / file).is_file(), f'no test file {file}'


def test_there_are_enough_of_every_area():
  counts = collections.Counter(mutant.area for mutant in MUTANTS)
  assert set(counts) == set(AREAS)
  assert min(counts.values()) >= 8
  assert sum(counts.values()) >= 120
  assert len({mutant.sentence for mutant in MUTANTS}) == len(MUTANTS)
