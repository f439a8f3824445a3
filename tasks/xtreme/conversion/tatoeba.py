"""Tatoeba v1 of LASER: sentences as they are, translations sorted by code points so that line numbers tell nothing."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from rembert.errors import UsageError
from tasks.xtreme.conversion.archives import file_content, lines
from tasks.xtreme.conversion.converted import Converted
from tasks.xtreme.sources import TATOEBA_CODES
from tasks.xtreme.tatoeba import LANGUAGES


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`tatoeba/LL-en.LL`, `tatoeba/LL-en.en`, and labels."""
  for language in LANGUAGES:
    code = TATOEBA_CODES[language]
    sides = [file_content(archives, f'tatoeba.{code}-eng.{side}') for side in (code, 'eng')]
    source, english = ([line.strip() for line, _ in lines(*side)] for side in sides)
    if len(source) != len(english):
      raise UsageError(
        f'{len(source)} sentences and {len(english)} translations', where=sides[0][1], fix='fetch both files again'
      )
    yield from files_of(language, source, english)


def files_of(language: str, source: Sequence[str], english: Sequence[str]) -> Iterator[Converted]:
  """Files of a language, from sentences and their translations in the same order."""
  order = sorted(range(len(english)), key=lambda line: english[line])
  place = {line: number for number, line in enumerate(order)}
  text = lambda texts: ''.join(f'{each}\n' for each in texts)
  yield Converted(f'tatoeba/{language}-en.{language}', text(source))
  yield Converted(f'tatoeba/{language}-en.en', text(english[line] for line in order))
  yield Converted(f'labels/tatoeba/test-{language}.tsv', text(place[line] for line in range(len(english))))
