"""Tables of what gin can set, read from the dataclasses: name, type, default, and the line of the docstring.

`<!-- fields: train rembert.train.trainer.TrainConfig -->` on a page stands for the table of that class, called `train`
in gin files. Needs nothing but Python.
"""

import ast
import pathlib
import re
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).parent.parent.parent

_MARKER = re.compile(r'^<!-- fields: (\w+) ([\w.]+) -->$', re.MULTILINE)
_ATTRIBUTE = re.compile(r'^ {2}(\w+): (.*)$')


class Field(NamedTuple):
  """A field of a dataclass as its source has it; `text` is what the docstring says of it."""

  name: str
  type: str
  default: str
  text: str


def fields(path: str) -> list[Field]:
  """Fields of a class, `package.module.Class`, in their order; LookupError for one that the docstring leaves out."""
  module, _, name = path.rpartition('.')
  place = REPOSITORY / module.replace('.', '/')
  source = (place / '__init__.py' if place.is_dir() else place.with_suffix('.py')).read_text(encoding='utf-8')
  found = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
  if not found:
    raise LookupError(f'there is no class {path}')
  texts = _attributes(ast.get_docstring(found[0]) or '')
  declared = [node for node in found[0].body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
  if missing := [node.target.id for node in declared if node.target.id not in texts]:
    raise LookupError(f'{path} says nothing of {", ".join(missing)}')
  return [
    Field(
      node.target.id,
      ast.unparse(node.annotation),
      ast.unparse(node.value) if node.value else '',
      texts[node.target.id],
    )
    for node in declared
  ]


def _attributes(docstring: str) -> dict[str, str]:
  """What stands behind each name under `Attributes:`, in one line."""
  texts: dict[str, str] = {}
  name = ''
  for line in docstring.partition('Attributes:\n')[2].splitlines():
    if match := _ATTRIBUTE.match(line):
      name = match[1]
      texts[name] = match[2]
    elif line.startswith('    ') and name:
      texts[name] += ' ' + line.strip()
    elif line.strip() and not line.startswith('  '):
      break
  return texts


def markers(markdown: str) -> list[tuple[str, str]]:
  """Names in gin and classes of the tables that a page asks for."""
  return _MARKER.findall(markdown)


def with_tables(markdown: str) -> str:
  """The page with its tables."""
  return _MARKER.sub(lambda match: _table(match[1], fields(match[2])), markdown)


def _table(name: str, found: list[Field]) -> str:
  rows = []
  for field in found:
    # A bar would end the cell, in code as well.
    kind, default = (text.replace(' | ', ' or ') for text in (field.type, field.default))
    rows.append(f'| `{name}.{field.name}` | `{kind}` | `{default}` | {field.text} |')
  return '\n'.join(['| name | type | default | |', '|---|---|---|---|', *rows])
