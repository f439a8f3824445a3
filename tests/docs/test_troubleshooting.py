"""Every message that docs/troubleshooting.md quotes is one that the program says."""

import ast
import functools
import pathlib
import re

import pytest

from rembert.errors import UsageError
from rembert.train.trainer import TrainConfig

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / 'docs' / 'troubleshooting.md'
# Of a message as it is quoted, the share that the source must have verbatim; names and numbers are the rest.
LEAST_SHARE = 0.25

Parts = tuple[str | None, ...]


def quoted() -> list[str]:
  return re.findall(r'^### `+ ?(.+?) ?`+$', PAGE.read_text(encoding='utf-8'), re.MULTILINE)


def parts_of(node: ast.AST) -> Parts:
  """A string as the source has it; None for whatever is put into it."""
  match node:
    case ast.Constant(value=str(text)):
      return (text,)
    case ast.JoinedStr(values=values):
      return tuple(part for value in values for part in parts_of(value))
    case ast.BinOp(left=left, op=ast.Add(), right=right):
      return parts_of(left) + parts_of(right)
  return (None,)


def first_line_of(parts: Parts) -> Parts:
  """Up to the first end of a line: the page quotes no more."""
  kept = []
  for part in parts:
    kept.append(part if part is None else part.partition('\n')[0])
    if part is not None and '\n' in part:
      break
  return tuple(kept)


@functools.cache
def said() -> list[Parts]:
  """All strings of the program that are more than a word."""
  found = []
  for folder in ('rembert', 'tasks', 'launch'):
    for file in (ROOT / folder).rglob('*.py'):
      for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
          parts = parts_of(node)
          if ' ' in ''.join(part or '' for part in parts):
            found.append(first_line_of(parts))
  return found


def is_printed_by(message: str, parts: Parts) -> bool:
  """Whether a message is `parts` with something put into it."""
  at, is_free, letters = 0, False, 0
  for part in parts:
    if part is None:
      is_free = True
      continue
    found = message.find(part, at)
    if found < 0 or (found != at and not is_free):
      return False
    at, is_free, letters = found + len(part), False, letters + len(part)
  return (is_free or at == len(message)) and letters >= LEAST_SHARE * len(message)


def test_a_message_is_recognised_by_its_fixed_parts():
  parts = ('the store has rows of ', None, ' tokens, and training has ', None)
  assert is_printed_by('the store has rows of 128 tokens, and training has 512', parts)
  assert not is_printed_by('the store has rows of 128 pieces, and training has 512', parts)
  assert not is_printed_by('a long name of something that is nowhere to be found is missing', (None, ' is missing'))
  assert not is_printed_by('no token store here', ('no token store',))


@pytest.mark.parametrize('message', quoted())
def test_quoted_messages_are_in_the_code(message):
  assert any(is_printed_by(text, parts) for parts in said() for text in (message, f'rembert: {message}'))


def test_no_message_is_explained_twice():
  assert len(set(quoted())) == len(quoted()) > 10


def test_the_example_of_a_whole_message_is_one():
  shown = 'a batch of 32 sequences cannot be divided over 3 device group(s)'
  with pytest.raises(UsageError) as error:
    TrainConfig(batch_size=32).check_divides(3)
  text = PAGE.read_text(encoding='utf-8')
  assert error.value.what == shown
  assert '\n'.join(f'    {line}' for line in f'rembert: {error.value}'.splitlines()) in text
