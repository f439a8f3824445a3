"""Checks prose, messages and comments for words that readers would not search for, and names the field's term.

python -m docs.tools.wording            every file; exit code 1 with `FILE:LINE: 'word': use …` for each finding

`RULES` has the words that are never right here. `wording_exceptions.txt` lists the exceptions, each with three fields
separated by tabs: the file, a part of the line, the reason.
"""

import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
EXCEPTIONS = pathlib.Path(__file__).with_name('wording_exceptions.txt')
MOST_EXCEPTIONS = 50
FILES = (
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'docs/**/*.md',
  'notebooks/*.ipynb',
  'gin/**/*.gin',
  *(f'{folder}/**/*.py' for folder in ('rembert', 'tasks', 'launch', 'benchmarks', 'docs', 'examples', 'tests')),
)


class Rule(NamedTuple):
  """A word that is never right.

  Attributes:
    pattern: a regular expression, without regard to case.
    instead: what to write.
  """

  pattern: str
  instead: str


RULES = (
  Rule(r'\bjudg(e|ed|es|ing)\b', 'evaluate'),
  Rule(r'\bto the bit\b', 'bit-exactly, bitwise identical'),
  Rule(r'\banew\b', 'again, from scratch'),
  Rule(r'\bbeside\b', 'next to, compared with, in addition to'),
  Rule(r'\bmend(s|ed|ing)?\b', 'fix, repair'),
  Rule(r'\b(somebody|whoever|nobody|everybody)\b', 'you, a user, the component, or the passive'),
  Rule(r'\bfrequency alone\b', 'unigram baseline'),
  Rule(r"""(F1|accuracy|['"|]) ?without reading\b""", 'baseline'),
  Rule(r'\bleaps?\b', 'loss spike'),
  Rule(r'\b(is|are|was|were) said\b', 'is logged'),
  Rule(r'\b(is|are|was|were) told\b', 'is configured, receives'),
  Rule(r'\b(GB|MB|bytes|FLOPs|FLOP/s|rows) an? (chip|device|host|row|step)\b', 'per chip, per step'),
  Rule(r'\bfolder of Hugging Face\b', 'Hugging Face model directory'),
  Rule(r'\bfor ever\b', 'permanently'),
  Rule(r'\b(lies|lay) (in|at|beside|there|where)\b', 'is in'),
  Rule(r'\bgo(es)? on\b|\bgoing on\b', 'resumes, continues, is running'),
  Rule(r'\bthat (?-i:(is|are) none)\b', 'invalid, malformed'),
  Rule(r'\bwish(es)?\b', 'request'),
  Rule(r'\btelephone\b', 'mobile'),
  Rule(r'\bupon\b', 'on'),
  Rule(r'\bput aside\b', 'quarantined, renamed to'),
  Rule(r'\blearned in (English|German|en|de)\b', 'trained on, fine-tuned on'),
  Rule(r'\bas ever\b', 'as usual'),
  Rule(r'\bin turns\b', 'interleaved'),
  Rule(r'\bof old\b', 'earlier'),
  Rule(r'\bwalk(s|ed)? through\b', 'reads, iterates over'),
  Rule(r'\bthrown away\b', 'discarded'),
  Rule(r'\bparted by\b', 'separated by'),
  Rule(r'\bletter by letter\b', 'verbatim'),
  Rule(r'\bheld against\b', 'checked against'),
  Rule(r'\bcannot be undercut\b', 'is a lower bound'),
  Rule(r'\bwhat one would otherwise run\b', 'the usual alternatives'),
  Rule(r'\bby the clock\b', 'time-based'),
)


def read_exceptions(text: str) -> set[tuple[str, str]]:
  """Files and parts of their lines that `RULES` do not hold for; ValueError for a line without three fields."""
  exceptions = set()
  for line in text.splitlines():
    file, part, _reason = line.split('\t')
    exceptions.add((file, part))
  return exceptions


def find_words(text: str, rules: Sequence[Rule] = RULES) -> Iterator[tuple[int, str, str, str]]:
  """For each word of the rules in a text: the number of its line, the line, the word, and what to write instead."""
  for number, line in enumerate(text.splitlines(), 1):
    for rule in rules:
      if match := re.search(rule.pattern, line, re.IGNORECASE):
        yield number, line, match[0], rule.instead


def main() -> int:
  """The command."""
  exceptions = read_exceptions(EXCEPTIONS.read_text(encoding='utf-8'))
  used, errors = set(), []
  for file in sorted({file for glob in FILES for file in ROOT.glob(glob)} - {pathlib.Path(__file__).resolve()}):
    name = file.relative_to(ROOT).as_posix()
    for number, line, word, instead in find_words(file.read_text(encoding='utf-8')):
      if excused := {(name, part) for other, part in exceptions if other == name and part in line}:
        used |= excused
      else:
        errors.append(f'{name}:{number}: {word!r}: {instead}')
  errors += [f'{EXCEPTIONS.name}: no such line: {file}: {part}' for file, part in sorted(exceptions - used)]
  if len(exceptions) > MOST_EXCEPTIONS:
    errors.append(f'{EXCEPTIONS.name}: {len(exceptions)} lines, at most {MOST_EXCEPTIONS}')
  print('\n'.join(errors), end='\n' * bool(errors))
  return bool(errors)


if __name__ == '__main__':
  sys.exit(main())
