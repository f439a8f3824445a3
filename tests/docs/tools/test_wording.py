"""The check of words: what it finds, what it leaves, and its exceptions."""

import pytest

from docs.tools import wording


def words(text):
  return [(number, word) for number, _, word, _ in wording.find_words(text)]


def test_words_are_found_with_their_line_whatever_their_case():
  text = f'fine\nThe model is {"jud" + "ged"}.\n{"Be" + "side"} it: 3 GB {"a chip"}, logged\n'
  assert words(text) == [(2, 'jud' + 'ged'), (3, 'GB ' + 'a chip'), (3, 'Be' + 'side')]


def test_words_with_another_meaning_are_left():
  assert words('a prejudice, besides, None that is None, a lesson, a folder, goes one by one') == []


def test_comments_strings_and_names_of_python_are_distinguished():
  scopes = ((wording.PROSE,), (wording.MESSAGES,), (wording.NAMES,))
  rules = [wording.Rule(*each) for each in zip(('first', 'second', 'third part'), 'abc', scopes, strict=True)]
  text = '"""First, second."""\nx = f"first {y} second"  # first third part\nthird_part = theThirdPart = third_part\n'
  found = wording.find_words(text, rules, is_python=True)
  assert [(number, instead) for number, _, _, instead in found] == [(1, 'a'), (2, 'b'), (2, 'a'), (3, 'c'), (3, 'c')]


def test_each_word_has_a_better_one():
  assert all(rule.instead for rule in wording.RULES)


def test_exceptions_have_a_reason_and_are_few():
  assert wording.read_exceptions('a.py\tsome words\twhy\n') == {('a.py', 'some words')}
  with pytest.raises(ValueError, match='values to unpack'):
    wording.read_exceptions('a.py\tsome words\n')


def test_an_exception_that_no_line_needs_and_a_word_are_errors(tmp_path, monkeypatch, capsys):
  (tmp_path / 'docs').mkdir()
  (tmp_path / 'docs' / 'page.md').write_text(f'{"an" + "ew"}\n')
  (tmp_path / 'exceptions.txt').write_text('docs/page.md\tnot there\ta reason\n')
  monkeypatch.setattr(wording, 'ROOT', tmp_path)
  monkeypatch.setattr(wording, 'EXCEPTIONS', tmp_path / 'exceptions.txt')
  assert wording.main() == 1
  said = capsys.readouterr().out.splitlines()
  assert said == [
    f"docs/page.md:1: '{'an' + 'ew'}': again, from scratch",
    'exceptions.txt: no such line: docs/page.md: not there',
  ]
  (tmp_path / 'exceptions.txt').write_text(f'docs/page.md\t{"an" + "ew"}\ta reason\n')
  assert wording.main() == 0
