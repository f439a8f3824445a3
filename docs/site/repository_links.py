"""Links of a Markdown page that are relative, and what of the repository they lead to. Needs nothing but Python.

Pages of `docs/` are read on the page of the repository and in the site that `make docs` builds. A link to a gin file or
to the README leads out of `docs/`: the repository has such a path, and the site gets a page for it (`site_hook.py`).
"""

import pathlib
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
# Where the site keeps pages of files from outside of `docs/`.
FOLDER = 'repository'

_LINK = re.compile(r'!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)')
_FENCE = re.compile(r'^(```+|~~~+)')
_ELSEWHERE = re.compile(r'^([a-z][a-z0-9+.-]*:|//|#)', re.IGNORECASE)
_LEXERS = {'.gin': 'python', '.py': 'python', '.sh': 'bash', '.toml': 'toml', '.yml': 'yaml', '.json': 'json'}


class Link(NamedTuple):
  """A link or an image. `begin` and `end` are where its target stands in the text; `line` counts from 1."""

  target: str
  begin: int
  end: int
  line: int


def without_code(markdown: str) -> str:
  """The text with blanks instead of code, which holds no links: blocks, fenced or indented, and spans."""
  lines, fence = [], ''
  for line in markdown.split('\n'):
    marker = _FENCE.match(line)
    if fence:
      fence = '' if line.startswith(fence) else fence
      lines.append(' ' * len(line))
    elif marker or line.startswith('    '):
      fence = marker[1] if marker else ''
      lines.append(' ' * len(line))
    else:
      lines.append(line)
  return re.sub(r'(`+)(?!`)(?:.(?!\n\n))*?.(?<!`)\1(?!`)', _blank, '\n'.join(lines), flags=re.DOTALL)


def _blank(match: re.Match) -> str:
  return re.sub(r'[^\n]', ' ', match[0])


def relative_links(markdown: str) -> Iterator[Link]:
  """Links to other files, in their order; those to other sites and within the page are left out."""
  text = without_code(markdown)
  for match in _LINK.finditer(text):
    if not _ELSEWHERE.match(match[1]):
      yield Link(match[1], match.start(1), match.end(1), text.count('\n', 0, match.start()) + 1)


def anchors(markdown: str) -> set[str]:
  """What a `#` in a link can lead to: the headings, as the page of the repository names them."""
  lines = zip(markdown.split('\n'), without_code(markdown).split('\n'), strict=True)
  headings = [line.lstrip('#').strip() for line, prose in lines if re.match('#+ ', prose)]
  return {re.sub(r'[^\w\- ]', '', heading).lower().replace(' ', '-') for heading in headings}


def path_of(target: str, page: str) -> str:
  """Path in the repository that a link on `page`, a path in the repository too, leads to; without its anchor."""
  return posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition('#')[0]))


def site_page(path: str) -> str:
  """Where the site has a file or a folder of the repository, relative to the root of its pages."""
  if path.startswith('docs/'):
    return path.removeprefix('docs/')
  if (REPOSITORY / path).is_dir():
    return f'{FOLDER}/{path}/index.md'
  return f'{FOLDER}/{path}' if path.endswith('.md') else f'{FOLDER}/{path}.md'


def page_text(path: str) -> str:
  """Markdown for a file or a folder from outside of `docs/`: as it is, its text, or a list of its files."""
  file = REPOSITORY / path
  if path.endswith('.md'):
    return file.read_text(encoding='utf-8')
  if file.is_dir():
    names = sorted(f'{entry.name}/' if entry.is_dir() else entry.name for entry in file.iterdir())
    shown = [name for name in names if not name.startswith(('.', '__'))]
    return f'# {path}\n\n' + ''.join(f'- [{name}]({name.rstrip("/")})\n' for name in shown)
  fence = '`' * 4
  return f'# {path}\n\n{fence}{_LEXERS.get(file.suffix, "text")}\n{file.read_text(encoding="utf-8")}\n{fence}\n'


def directory_page(path: str) -> str:
  """The path that links on the page of `path` are relative to: a folder's page is in it."""
  return f'{path}/index.md' if (REPOSITORY / path).is_dir() else path


def rewritten(markdown: str, page: str, on_missing: Callable[[Link], None]) -> str:
  """The page for the site: links out of `docs/`, and all of a page from outside, lead to pages of the site.

  Args:
    markdown: of the page.
    page: its path in the repository.
    on_missing: told of links to what is not there, which are left as they are.
  """
  here = site_page(page)
  parts, done = [], 0
  for link in relative_links(markdown):
    path = path_of(link.target, directory_page(page))
    if path.startswith('..') or not (REPOSITORY / path).exists():
      on_missing(link)
      continue
    anchor = link.target.partition('#')[1:]
    target = posixpath.relpath(site_page(path), posixpath.dirname(here) or '.')
    parts += [markdown[done : link.begin], target, *anchor]
    done = link.end
  return ''.join([*parts, markdown[done:]])


def outside(markdown: str, page: str) -> set[str]:
  """Paths out of `docs/` that a page links to and that are there."""
  paths = {path_of(link.target, directory_page(page)) for link in relative_links(markdown)}
  return {path for path in paths if not path.startswith(('..', 'docs/')) and (REPOSITORY / path).exists()}
