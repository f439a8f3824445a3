"""Universal Dependencies 2.5: parts of speech, as XTREME makes them from all treebanks of a language.

Treebanks come in the order of their file names. A multiword token stands as one token, in the form it is written in,
with the tag of its word nearest to the root; of several the one whose tag ranks first (as ud-conversion-tools choose,
which XTREME calls). Words lose zero-width non-joiners and spaces. Sentences without words (`_`, as some treebanks are
published without their texts) are left out.
"""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.errors import UsageError
from tasks.xtreme.conversion.archives import lines, members
from tasks.xtreme.conversion.converted import Converted, Sentence, tagging_files
from tasks.xtreme.statistics import LANGUAGES

_RANKS = {
  'es': ('VERB', 'AUX', 'PRON', 'ADP', 'DET'),
  'fr': ('VERB', 'AUX', 'PRON', 'NOUN', 'ADJ', 'ADV', 'ADP', 'DET', 'PART', 'SCONJ'),
  'it': ('VERB', 'AUX', 'ADV', 'PRON', 'ADP', 'DET', 'INTJ'),
}
_BY_DEFAULT = 'VERB NOUN PROPN PRON ADJ NUM ADV INTJ AUX ADP DET PART CCONJ SCONJ X PUNCT'
_RANK = tuple(_BY_DEFAULT.split())
_NON_JOINER = '\u200c'
_ID, _FORM, _TAG, _HEAD, _ENHANCED = 0, 1, 3, 6, 8


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`udpos/train-LL.tsv`, `udpos/dev-LL.tsv`, `udpos/test-LL.tsv` and labels, of XTREME's 33 languages."""
  archive = archives['ud-treebanks-v2.5.tgz']
  treebanks: dict[tuple[str, str], dict[str, list[Sentence]]] = {}
  for name, content in members(archive, lambda name: _language_and_split(name) is not None):
    sentences = sentences_of(content, f'{archive}:{name}', _language_and_split(name)[0])
    treebanks.setdefault(_language_and_split(name), {})[pathlib.PurePosixPath(name).name] = sentences
  for (language, split), files in sorted(treebanks.items()):
    joined = [sentence for file in sorted(files) for sentence in files[file]]
    if joined:
      yield from tagging_files('udpos', split, language, joined)


def _language_and_split(name: str) -> tuple[str, str] | None:
  """`de`, `train` for `…/de_gsd-ud-train.conllu`; None for other languages and files."""
  file = pathlib.PurePosixPath(name)
  language = file.name.partition('_')[0]
  if file.suffix != '.conllu' or language not in LANGUAGES['udpos']:
    return None
  return next(((language, split) for split in ('train', 'dev', 'test') if split in file.stem), None)


def sentences_of(content: bytes, where: str, language: str) -> list[Sentence]:
  """Sentences of one treebank's file that have words; UsageError with the line where it is no CoNLL-U."""
  found, rows = [], []
  for line, place in (*lines(content, where), ('', where)):
    if line.startswith('#'):
      continue
    if line:
      rows.append(line.split('\t'))
      if len(rows[-1]) != 10:
        raise UsageError(f'{len(rows[-1])} columns, and CoNLL-U has 10', where=place, fix='fetch the file again')
    elif rows:
      sentence = _words(rows, language, place)
      blank = sum(form == '_' for form, _ in sentence)
      if blank == 0 or blank < len(sentence) - 1:
        found.append([(form.replace(_NON_JOINER, '').replace(' ', ''), tag) for form, tag in sentence])
      rows = []
  return found


def _words(rows: list[list[str]], language: str, where: str) -> list[tuple[str, str]]:
  """Forms and tags, each multiword token as one."""
  words = {int(row[_ID]): row for row in rows if row[_ID].isdigit()}  # 8.1 is a word that is not written
  spans = {
    int(first): (int(last), row[_FORM]) for row in rows for first, dash, last in [row[_ID].partition('-')] if dash
  }
  heights = None
  found, covered = [], 0
  for number, row in sorted(words.items()):
    if number <= covered:
      continue
    if number not in spans:
      found.append((row[_FORM].strip(), row[_TAG].strip()))
      continue
    covered, form = spans[number]
    if not all(part in words for part in range(number, covered + 1)):
      raise UsageError(f'the words of {number}-{covered} are not all there', where=where, fix='fetch the file again')
    heights = heights if heights is not None else _heights(words)
    found.append((form.strip(), _tag_of_span([words[part] for part in range(number, covered + 1)], heights, language)))
  return found


def _tag_of_span(rows: list[list[str]], heights: dict[int, int], language: str) -> str:
  rank = _RANKS.get(language, _RANK)
  highest = min(heights[int(row[_ID])] for row in rows)
  tags = [row[_TAG].strip() for row in rows if heights[int(row[_ID])] == highest]
  return min(tags, key=lambda tag: rank.index(tag) if tag in rank else len(rank))


def _heights(words: dict[int, list[str]]) -> dict[int, int]:
  """How many words each depends on, directly or not, by its head and by what its enhanced dependencies add."""
  heads: dict[int, set[int]] = {}
  for number, row in words.items():
    enhanced = (part.partition(':')[0] for part in row[_ENHANCED].split('|'))
    heads[number] = {int(head) for head in (row[_HEAD], *enhanced) if head.isdigit()}
  heights = {}
  for number in words:
    above, waiting = set(), [number]
    while waiting:
      new = heads.get(waiting.pop(), set()) - above
      above |= new
      waiting += new
    heights[number] = len(above - {number})
  return heights
