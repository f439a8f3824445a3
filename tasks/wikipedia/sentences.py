"""Counting sentences in any script: a cheap estimate, good enough to weigh languages by."""

import re

# Terminators of scripts where they end a sentence wherever they stand.
_FULL_STOP = re.compile('[。！？｡︒।॥؟۔։፧።፨၊။។៕᙮᠃᠉⸮꓿꘎꘏꛳꛷꣎꣏꩝꩞꩟꯫܀܁܂՜՞།༎‼⁇⁈⁉]+')
# The Latin ones also stand in numbers, names and abbreviations: they need a blank or the end after them, no small
# letter after that, and no single letter before.
_LATIN_STOP = re.compile(r'(?<![^\W\d_]\b\.)(?<!\b[^\W\d_])[.!?…]+["\'”’»)\]]*(?=\s+[^\sa-zà-öø-ÿа-яёα-ω]|\s*$)')
_GREEK_QUESTION = re.compile(r';(?=\s+[Α-ΩΆ-Ώ]|\s*$)')
_ARMENIAN_COLON = re.compile(r':(?=\s+[Ա-Ֆ]|\s*$)')
_THAI_CLAUSE = 12  # letters


def count_sentences(paragraphs: list[str], language: str) -> int:
  """Returns the number of sentences, at least one a paragraph: a cheap estimate, good enough to weigh languages by.

  Thai and Lao end no sentence with a sign but part clauses and sentences by a blank: spaced pieces of at least 12
  letters are counted instead.

  Args:
    paragraphs: clean text.
    language: Wikipedia's code.
  """
  return sum(_sentences(paragraph, language) for paragraph in paragraphs)


def _sentences(paragraph: str, language: str) -> int:
  if language in ('th', 'lo'):
    return max(1, sum(len(piece) >= _THAI_CLAUSE for piece in paragraph.split()))
  count = len(_FULL_STOP.findall(paragraph)) + len(_LATIN_STOP.findall(paragraph))
  if language == 'el':
    count += len(_GREEK_QUESTION.findall(paragraph))
  elif language == 'hy':
    count += len(_ARMENIAN_COLON.findall(paragraph))
  return max(1, count)
