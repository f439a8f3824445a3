import pytest

from rembert.errors import UsageError
from tasks.xtreme.gold_labels import known_label, most_frequent


def test_a_label_is_taken_without_the_space_around_it():
  assert known_label(' 1 ', ('0', '1'), 'dev-de.tsv:3') == '1'


def test_an_unknown_label_is_an_error_that_names_the_known_ones():
  with pytest.raises(UsageError, match=r"unknown label '2'") as error:
    known_label('2', ('0', '1'), 'dev-de.tsv:3')
  assert error.value.where == 'dev-de.tsv:3'
  assert error.value.fix == ['one of 0, 1']


def test_of_equally_frequent_labels_the_first_in_their_order_is_taken():
  assert most_frequent(['b', 'a', 'c', 'b', 'c'], ('c', 'b', 'a')) == 'c'
  assert most_frequent(['b', 'a', 'b'], ('a', 'b')) == 'b'
