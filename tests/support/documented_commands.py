"""The commands that the pages of the documentation show: read from Markdown, in the order of the page.

A command is a line of an indented block, or of a fenced one without a language, that begins with a known program; any
line of a block in the language of a shell; and inline code that begins with a known program. Lines that end with a
backslash go on; remarks after two or more blanks, or after #, are cut off. What begins with -- and stands alone is
options, which the page explains.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence

import markdown_it

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = {'bash', 'sh', 'shell', 'zsh', 'console', 'shell-session'}
# What a line of text never begins with, and a command may.
PROGRAMS = {
  *('python', 'python3', 'python3.11', 'python3.12', 'pip', 'uv', 'pytest', 'ruff', 'mypy', 'pre-commit', 'jupyter'),
  *(
    'make',
    'sh',
    'bash',
    'source',
    'export',
    'cd',
    'mkdir',
    'rm',
    'cp',
    'mv',
    'ls',
    'cat',
    'paste',
    'head',
    'tail',
    'tar',
    'unzip',
  ),
  *('git', 'curl', 'wget', 'ssh', 'scp', 'rsync', 'ssh-add', 'tmux', 'sudo', 'apt', 'apt-get', 'conda', 'nvidia-smi'),
  *('gcloud', 'gsutil', 'kubectl', 'docker', 'xpk', 'sbatch', 'srun', 'scancel', 'squeue', 'tensorboard', 'wandb'),
  *('mkdocs', 'touch', 'time', 'env', 'huggingface-cli', 'hf'),
}
_PROGRAM = re.compile(r'(?:[A-Z_]+=\S* )*(?:\$ )?(?:\S*/bin/)?(\S+)')


@dataclasses.dataclass(frozen=True)
class Shown:
  """What a page shows.

  Attributes:
    page: path of the page, from the project's folder.
    line: of the page, from 1.
    words: as a shell would hand them over; of a command with its variables (`A=b`) in front.
    is_inline: within a sentence, and not in a block of its own.
  """

  page: str
  line: int
  words: tuple[str, ...]
  is_inline: bool = False

  @property
  def text(self) -> str:
    """The words as a line."""
    return shlex.join(self.words)

  def __str__(self) -> str:
    return f'{self.page}:{self.line}: {self.text}'


class Command(Shown):
  """A command."""


class Options(Shown):
  """Options that stand alone."""


def pages(root: pathlib.Path = ROOT) -> list[str]:
  """The pages whose commands are held to work, the README first: others may build upon it."""
  docs = sorted(str(path.relative_to(root)) for path in (root / 'docs').rglob('*.md'))
  return ['README.md', *docs, 'CONTRIBUTING.md']


def shown(text: str, page: str) -> Iterator[Shown]:
  """All commands and options of a page, in order."""
  for token in markdown_it.MarkdownIt('commonmark').enable('table').parse(_without_admonitions(text)):
    first = token.map[0] + 1 if token.map else 1
    if token.type == 'fence':
      language = (token.info.split() or [''])[0].strip('{}.').lower()
      if language in SHELLS:
        yield from _of_block(token.content, page, first + 1, is_shell=True)
      elif not language:
        yield from _of_block(token.content, page, first + 1)
    elif token.type == 'code_block':
      yield from _of_block(token.content, page, first)
    elif token.type == 'inline':
      line = first
      for child in token.children:
        if child.type == 'softbreak':
          line += 1
        elif child.type == 'code_inline':
          yield from _of_line(child.content, page, line, is_inline=True)


def _without_admonitions(text: str) -> str:
  """The page with the bodies of `!!! note`, `??? note` and `=== "tab"` taken out of their indentation."""
  lines, depth = [], 0
  in_fence = ''
  for line in text.splitlines():
    indent = len(line) - len(line.lstrip())
    if line.strip() and not in_fence:
      depth = min(depth, indent // 4)
    bare = line[4 * depth :] if not line[: 4 * depth].strip() else line.lstrip()
    if fence := re.match(r'\s*(```+|~~~+)', bare):
      in_fence = '' if in_fence and bare.strip().startswith(in_fence) else in_fence or fence[1]
    if not in_fence and re.match(r'(!!!|\?\?\?\+?|===) ', bare):
      depth += 1
      lines.append('')
      continue
    lines.append(bare)
  return '\n'.join(lines) + '\n'


def _of_block(content: str, page: str, first: int, *, is_shell: bool = False) -> Iterator[Shown]:
  lines = content.splitlines()
  has_prompt = any(line.startswith('$ ') for line in lines)
  number = 0
  while number < len(lines):
    start, line = number, lines[number].rstrip()
    while line.endswith('\\') and number + 1 < len(lines):
      number += 1
      line = line[:-1].rstrip() + ' ' + lines[number].strip()
    number += 1
    if has_prompt and not line.startswith('$ '):
      continue
    # What is set far to the right goes on with the remark above it.
    if len(line) - len(line.lstrip()) >= 8 and not is_shell:
      continue
    yield from _of_line(line.strip().removeprefix('$ '), page, first + start, is_shell=is_shell)


def _of_line(line: str, page: str, number: int, *, is_shell: bool = False, is_inline: bool = False) -> Iterator[Shown]:
  if re.match(r'--[\w{]', line):
    for alternative in _alternatives(_words(line)):
      yield Options(page, number, alternative, is_inline)
    return
  if not line or line.startswith('#') or not (is_shell or is_command(line)):
    return
  if is_inline and len(line.split()) == 1:
    return  # the name of a program, in a sentence
  for part in _split(_words(line), '&&'):
    yield Command(page, number, part, is_inline)


def is_command(line: str) -> bool:
  """Whether a line begins with a known program."""
  match = _PROGRAM.match(line)
  return bool(match) and match[1] in PROGRAMS


def _words(line: str) -> tuple[str, ...]:
  """The words of a line up to a remark."""
  lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
  lexer.whitespace_split, lexer.commenters = True, ''
  words, end = [], 0
  while True:
    rest = line[end:]
    if re.match(r'\s{2,}|\s+#', rest) and words:
      break
    try:
      word = lexer.get_token()
    except ValueError:  # a quotation mark that is no quotation mark: text
      return tuple(line.split('  ')[0].split())
    if word is None:
      break
    words.append(word)
    end = lexer.instream.tell() if lexer.instream.tell() >= len(line) else lexer.instream.tell() - 1
  return tuple(words)


def _split(words: Sequence[str], at: str) -> Iterator[tuple[str, ...]]:
  part: list[str] = []
  for word in (*words, at):
    if word == at:
      if part:
        yield tuple(part)
      part = []
    else:
      part.append(word)


def _alternatives(words: tuple[str, ...]) -> list[tuple[str, ...]]:
  """`--a=b | c` as `--a=b` and `--a=c`."""
  first, *others = _split(words, '|')
  name = first[-1].partition('=')[0]
  return [first, *((other if other[0].startswith('--') else (f'{name}={other[0]}',)) for other in others)]


def shown_on(page: str, root: pathlib.Path = ROOT) -> list[Shown]:
  """All commands and options of a page of the project."""
  return list(shown((root / page).read_text(encoding='utf-8'), page))
