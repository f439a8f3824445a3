"""Checks prose, messages and names for words that readers would not search for, and suggests the field's term.

python -m docs.tools.wording            every file; exit code 1 with `FILE:LINE: 'word': use …` for each finding

`RULES` has the words that are never right here. `wording_exceptions.txt` lists the exceptions, each with three fields
separated by tabs: the file, a part of the line, the reason.
"""

import ast
import functools
import io
import pathlib
import re
import sys
import tokenize
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
  'Makefile',
  *(f'launch/**/*{suffix}' for suffix in ('.sh', '.sbatch', '.Dockerfile')),
  *(f'{folder}/**/*.py' for folder in ('rembert', 'tasks', 'launch', 'benchmarks', 'docs', 'examples', 'tests')),
)
# Where a rule applies. Prose: Markdown, notebooks, gin files, comments and docstrings. Messages: other strings (errors,
# --help, console). Names: functions, classes and variables, with spaces between their words.
PROSE, MESSAGES, NAMES = 'prose', 'messages', 'names'
TEXT, ALL = (PROSE, MESSAGES), (PROSE, MESSAGES, NAMES)
# From Python 3.12 on, f-strings have their own tokens.
_STRINGS = (tokenize.STRING, getattr(tokenize, 'FSTRING_MIDDLE', tokenize.STRING))


class Rule(NamedTuple):
  """A word that is never right.

  Attributes:
    pattern: a regular expression, without regard to case.
    instead: what to write.
    scopes: where it applies.
  """

  pattern: str
  instead: str
  scopes: Sequence[str] = ALL


RULES = (
  # evaluation
  Rule(r'\bjudg(e|ed|es|ing)\b', 'evaluate'),
  Rule(r'\bfrequency alone\b|\bby frequency\b', 'unigram baseline'),
  Rule(r"""(F1|accuracy|['"|]) ?without reading\b""", 'baseline', TEXT),
  Rule(r'\bknow(s|ing)? how frequent (the|every)\b|\bwho knows how\b', 'majority-class baseline, unigram baseline'),
  Rule(r'\bwho(ever)? guesses\b|\bguessing (gets|gives)\b', 'chance level'),
  Rule(r'\blearned in (English|German|en|de)\b', 'trained on, fine-tuned on'),
  Rule(r'\bless the (mean|others)\b', 'minus', TEXT),
  Rule(
    r'\b(masked|restored) pieces\b|\brestor(es|ing) (masked|text)\b', 'masked-token accuracy, predicting masked tokens'
  ),
  Rule(r'\b(beyond|more than) chance\b', 'statistically significant', TEXT),
  Rule(r'\b(is|are) had\b|\bto be had\b', 'is, is available'),
  # text and batches
  Rule(r'\bfolder of Hugging Face\b', 'Hugging Face model directory'),
  Rule(r'\bpieces of their own\b|\bcut into pieces\b|\bvocabulary of [\d,]+ pieces\b', 'tokens, character coverage'),
  Rule(r'\b(\d+|many|most) rows of \d+ (tokens|pieces)\b|\btokens in a row\b', 'sequences, tokens per sequence', TEXT),
  Rule(r'\bpredictions a row\b|\bmanner of masking\b', 'masked positions per sequence, masking strategy'),
  Rule(r'\banew\b', 'again, from scratch'),
  Rule(r'\bparted by\b|\bapart by (tabs|spaces|blanks)\b', 'separated by'),
  Rule(r'\blanguages that are done\b', 'completed languages'),
  Rule(r'\bbroken pages? left out\b', 'skipped malformed pages'),
  Rule(r'\bcomes? again\b', 'is a duplicate'),
  Rule(r'\bplace in the text\b', 'position in the input stream'),
  Rule(r'\bin like proportion\b', 'proportionally'),
  # model and precision
  Rule(r'\bto the bit\b', 'bit-exactly, bitwise identical'),
  Rule(r'\bthrown away\b', 'discarded'),
  Rule(r'\bnet of two layers\b', 'two-layer MLP'),
  Rule(r'\bmoments of zero\b', 'freshly initialised optimizer state'),
  Rule(r'\bgradients? written out\b', 'hand-written backward pass'),
  Rule(r'\balong a line\b|\bnew line of the (rate|schedule)\b', 'linear schedule'),
  Rule(r'\bup to rounding\b', 'up to floating-point error'),
  Rule(r'\b(the|in a|in the) plain way\b', 'reference implementation'),
  Rule(r'\bdrops nothing\b', 'dropout is disabled'),
  # runs and failures
  Rule(r'\bgo(es)? on\b|\bgoing on\b', 'resumes, continues, is running'),
  Rule(r'\bleaps?\b', 'loss spike'),
  Rule(r'\bthat (?-i:(is|are) none)\b', 'invalid, malformed, non-finite'),
  Rule(r'\bmend(s|ed|ing)?\b', 'fix, repair'),
  Rule(r'\bfor ever\b', 'permanently'),
  Rule(r'\bwish(es)?\b', 'request'),
  Rule(r'\bput aside\b', 'quarantined, renamed to'),
  Rule(r'\bas ever\b', 'as usual'),
  Rule(r'\bby the clock\b', 'time-based'),
  Rule(r'\bsteps made again\b', 'recomputed steps'),
  Rule(r'\bsteps (that|which) count\b', 'goodput'),
  Rule(r'\bwhat (it|the (job|run)) is told\b|\b(is|are|was|were) told\b', 'is configured, receives, is an error'),
  Rule(r'\b(is|are|was|were) said\b', 'is logged, is reported'),
  Rule(r'\bstands? still\b|\bstanding still\b', 'hangs'),
  Rule(r'\bis at work here\b', 'is locked by'),
  Rule(r'\bis taken away\b|\bare taken away\b', 'is preempted, is removed'),
  Rule(r'\blast breath\b|\bsign of life\b', 'crash, heartbeat'),
  Rule(r'\brepeat(s|ed|ing)? (the|a|this) command\b', 'run the same command again'),
  Rule(r'\bmade otherwise\b', 'built with different options'),
  Rule(r'\bbegins? with the parameters of\b', 'is initialised from'),
  # hardware and speed
  Rule(
    r'\b(GB|MB|bytes|FLOPs?|FLOP/s|rows|s|pieces|predictions) an? (chip|device|host|row|step)\b',
    'per chip, per step',
    TEXT,
  ),
  Rule(r'\ba (chip|slice|device) that is not (there|here)\b', 'target topology'),
  Rule(r'\bcannot be undercut\b', 'is a lower bound'),
  Rule(r'\bcollectives? hidden\b', 'without compute–communication overlap'),
  Rule(r'\bGB (moved|sent)\b', 'HBM traffic, interconnect traffic'),
  Rule(r'\bflags of the compiler\b', 'compiler flags'),
  Rule(r'\bin turns\b', 'interleaved'),
  Rule(r'× this project\b', 'relative time'),
  Rule(r'\bwhat one would otherwise run\b', 'the usual alternatives'),
  Rule(r'\bmeasured beside\b|\bbeside\b', 'next to, compared with, in addition to'),
  Rule(r'\b(the )?most rows (of|that fit|a device)\b', 'largest batch that fits', TEXT),
  Rule(r'\btakes? a step apart\b', 'profiles a step'),
  # everyday words
  Rule(r'\b(somebody|whoever|nobody|everybody)\b', 'you, a user, the component, or the passive'),
  Rule(r'\b(lies|lay|lie) (in|at|beside|there|where|on|next|around|within|outside)\b|\blies\b', 'is in, is on'),
  Rule(r'\bbears?\b', 'has'),
  Rule(r'\b(alike|kin)\b', 'the same, equally, similar'),
  Rule(r'\bupon\b', 'on'),
  Rule(r'\bof old\b', 'earlier'),
  Rule(r'\bwalk(s|ed)? through\b|\bgone through\b', 'reads, iterates over, one pass over'),
  Rule(r'\bhands? back\b', 'returns'),
  Rule(r'\bg(iven|ave|ives?) up\b', 'stops, times out, is declared lost'),
  Rule(r'\bheld against\b', 'checked against'),
  Rule(r'\bletter by letter\b', 'verbatim'),
  Rule(r'\btelephone\b', 'mobile'),
  Rule(r'\bnamed numbers?\b', 'gin macro'),
  Rule(r'\bto look and\b|\bis to be seen\b', 'is shown'),
  Rule(r'\bwhat there (is|are)\b|\bthat there (is|are)\b', 'the noun itself: existing columns, the result'),
  Rule(r'\bso many (rows|tokens|texts|others)\b|\bof so many\b', 'N, this many'),
  Rule(r'\bequally many\b', 'the same number of'),
  Rule(
    r'(?<!\bthere )\bis no (JSON|text|list|zone|score|table|task|archive|number|whole)\b',
    'is not a, is not valid',
    TEXT,
  ),
  Rule(r'\bcannot be (a name|made out|undercut)\b|\bof \d+ cannot be\b', 'is invalid, cannot be detected'),
  Rule(r'\b(a|the) stand-in for\b', 'a mock, a fake'),
)


def read_exceptions(text: str) -> set[tuple[str, str]]:
  """Files and parts of their lines that `RULES` do not hold for; ValueError for a line without three fields."""
  exceptions = set()
  for line in text.splitlines():
    file, part, _reason = line.split('\t')
    exceptions.add((file, part))
  return exceptions


def parts_of(text: str, is_python: bool = False) -> Iterator[tuple[int, str, str]]:
  """Number, scope and text of each line or, of Python, of each line of a comment or string, and of each name once."""
  if not is_python:
    yield from ((number, PROSE, line) for number, line in enumerate(text.splitlines(), 1))
    return
  documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
  nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)]
  names: set[str] = set()
  docstrings = {(node.body[0].lineno, node.body[0].col_offset) for node in nodes}
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type == tokenize.NAME and token.string not in names:
      names.add(token.string)
      yield token.start[0], NAMES, re.sub(r'(?<=[a-z\d])(?=[A-Z])', ' ', token.string).replace('_', ' ')
    elif token.type == tokenize.COMMENT or token.type in _STRINGS:
      scope = PROSE if token.type == tokenize.COMMENT or token.start in docstrings else MESSAGES
      yield from ((token.start[0] + n, scope, line) for n, line in enumerate(token.string.splitlines()))


@functools.cache
def _pattern(rules: Sequence[Rule], scope: str) -> re.Pattern[str]:
  """All rules of a scope as one pattern: a single search excludes nearly every line."""
  return re.compile('|'.join(rule.pattern for rule in rules if scope in rule.scopes), re.IGNORECASE)


def find_words(
  text: str, rules: Sequence[Rule] = RULES, *, is_python: bool = False
) -> Iterator[tuple[int, str, str, str]]:
  """For each word of the rules in a text: the number of its line, the line, the word, and what to write instead."""
  lines = text.splitlines()
  for number, scope, part in parts_of(text, is_python):
    if not _pattern(tuple(rules), scope).search(part):
      continue
    for rule in rules:
      if scope in rule.scopes and (match := re.search(rule.pattern, part, re.IGNORECASE)):
        yield number, lines[number - 1], match[0], rule.instead


def main() -> int:
  """The command."""
  exceptions = read_exceptions(EXCEPTIONS.read_text(encoding='utf-8'))
  used, errors = set(), []
  for file in sorted({file for glob in FILES for file in ROOT.glob(glob)} - {pathlib.Path(__file__).resolve()}):
    name = file.relative_to(ROOT).as_posix()
    for number, line, word, instead in find_words(file.read_text(encoding='utf-8'), is_python=file.suffix == '.py'):
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
