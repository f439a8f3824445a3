"""The list of mutants: each can be applied to the code as it is. Whether tests notice them is for `make mutants`."""

import ast
import collections
import functools

import pytest
from mutation_testing import MUTANTS, Result, chosen_mutants, mirrored_tests, mutated, survivors

AREAS = ('model', 'kernels', 'data', 'tasks', 'training', 'checkpoints', 'metrics', 'convert', 'hosts', 'launch')


@functools.cache
def parsed(source: str) -> str:
  return ast.dump(ast.parse(source))


def problem(mutant, root) -> str | None:
  source = (root / mutant.file).read_text(encoding='utf-8')
  try:
    changed = mutated(mutant, source)
  except ValueError as error:
    return str(error)
  if mutant.file.endswith('.py') and parsed(changed) == parsed(source):
    return 'the code is the same'
  return next((f'no test file {file}' for file in mirrored_tests(mutant) if not (root / file).is_file()), None)


def test_every_mutant_changes_the_code_and_has_tests(root):
  found = {mutant.sentence: problem(mutant, root) for mutant in MUTANTS}
  assert not {sentence: reason for sentence, reason in found.items() if reason}


def test_there_are_enough_of_every_area():
  counts = collections.Counter(mutant.area for mutant in MUTANTS)
  assert set(counts) == set(AREAS)
  assert min(counts.values()) >= 8
  assert sum(counts.values()) >= 120
  assert len({mutant.sentence for mutant in MUTANTS}) == len(MUTANTS)


def test_an_anchor_that_occurs_twice_is_refused():
  with pytest.raises(ValueError, match='occurs 2 times'):
    mutated(MUTANTS[0], MUTANTS[0].anchor * 2)


def test_mutants_are_chosen_by_file_area_and_what_survived():
  first = MUTANTS[0]
  outcomes = ('survived', 'killed', 'invalid')
  results = [Result(m.area, m.sentence, outcome, 1) for m, outcome in zip(MUTANTS[:3], outcomes, strict=True)]
  assert survivors({result.mutant: result for result in results}) == {first.sentence, MUTANTS[2].sentence}
  assert chosen_mutants(MUTANTS, names={first.sentence}) == [first]
  of_file = chosen_mutants(MUTANTS, files=[first.file])
  assert of_file == [mutant for mutant in MUTANTS if mutant.file == first.file] != MUTANTS
  assert chosen_mutants(MUTANTS, files=[first.file], areas=['launch']) == []
