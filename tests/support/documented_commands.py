"""The commands that the pages of the documentation show: read from Markdown, in the order of the page.

A command is a line of an indented block, or of a fenced one without a language or in that of a shell, that begins with
a known program; so is inline code of more than one word. A backslash at the end joins lines; remarks after two or more
spaces, or after #, are cut off. A line that begins with -- is options, which the page explains.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence

import markdown_it

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = {'', 'bash', 'sh', 'shell', 'console'}  # languages of fenced blocks
# What a line of text never begins with, and a command may.
PROGRAMS = {
  *('python', 'python3', 'python3.11', 'python3.12', 'python3.13', 'pip', 'uv', 'pytest', 'ruff', 'mypy', 'pre-commit'),
  *('make', 'sh', 'bash', 'source', 'export', 'cd', 'mkdir', 'rm', 'cp', 'mv', 'ls', 'cat', 'paste', 'head', 'tail'),
  *('tar', 'unzip', 'git', 'curl', 'wget', 'ssh', 'scp', 'rsync', 'ssh-add', 'tmux', 'sudo', 'apt', 'apt-get', 'conda'),
  *('gcloud', 'gsutil', 'kubectl', 'docker', 'xpk', 'sbatch', 'srun', 'scancel', 'squeue', 'tensorboard', 'wandb'),
  *('mkdocs', 'touch', 'time', 'env', 'hf', 'huggingface-cli', 'jupyter', 'nvidia-smi'),
}
_WORD = r"""(?!\#)(?:"[^"]*"|'[^']*'|[^\s"'])+"""
_LINE = re.compile(f'{_WORD}(?: {_WORD})*')  # words with one space between them
_PROGRAM = re.compile(r'(?:[A-Z_]+=\S* )*(?:\$ )?(?:\S*/bin/)?(\S+)')


@dataclasses.dataclass(frozen=True)
class Shown:
  """What a page shows."""

  page: str  # path of the page, from the project's folder
  line: int  # of the page, from 1
  words: tuple[str, ...]  # as a shell would hand them over; of a command with its variables (`A=b`) in front
  is_inline: bool = False  # within a sentence, and not in a block of its own

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
  """The pages whose commands are held to work, the README first: others may build on it."""
  docs = sorted(str(path.relative_to(root)) for path in (root / 'docs').rglob('*.md'))
  return ['README.md', *docs, 'CONTRIBUTING.md']


def shown(text: str, page: str) -> Iterator[Shown]:
  """All commands and options of a page, in order."""
  for token in markdown_it.MarkdownIt('commonmark').enable('table').parse(text):
    first = token.map[0] + 1 if token.map else 1
    if token.type == 'code_block' or (token.type == 'fence' and token.info.strip() in SHELLS):
      yield from _of_block(token.content, page, first + (token.type == 'fence'))
    elif token.type == 'inline':
      line = first
      for child in token.children:
        if child.type == 'softbreak':
          line += 1
        elif child.type == 'code_inline':
          yield from _of_line(child.content, page, line, is_inline=True)


def _of_block(content: str, page: str, first: int) -> Iterator[Shown]:
  joined = re.sub(r' *\\\n *', lambda match: ' \0', content)  # \0 counts the lines
  number = first
  for line in joined.splitlines():
    # What is set far to the right continues the remark above it.
    if not line.startswith(' ' * 8):
      yield from _of_line(line.replace('\0', '').strip().removeprefix('$ '), page, number)
    number += 1 + line.count('\0')


def _of_line(line: str, page: str, number: int, *, is_inline: bool = False) -> Iterator[Shown]:
  if re.match(r'--[\w{]', line):
    for alternative in _alternatives(_words(line)):
      yield Options(page, number, alternative, is_inline)
    return
  # A single word in a sentence is the name of a program.
  if is_command(line) and not (is_inline and len(line.split()) == 1):
    for part in _split(_words(line), '&&'):
      yield Command(page, number, part, is_inline)


def is_command(line: str) -> bool:
  """Whether a line begins with a known program."""
  match = _PROGRAM.match(line)
  return bool(match) and match[1] in PROGRAMS


def _words(line: str) -> tuple[str, ...]:
  """The words of a line up to a remark."""
  command = _LINE.match(line)
  if command is None or line[command.end() :][:1] in ('"', "'"):  # a quotation mark that is no quotation mark: text
    return tuple(line.split('  ')[0].split())
  return tuple(shlex.split(command[0]))


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
