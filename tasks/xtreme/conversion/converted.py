"""What a conversion yields, and how the rows of each kind of task are written."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Converted(NamedTuple):
  """One file of XTREME's layout.

  Attributes:
    path: in the root of the data, `xnli/dev-de.tsv`.
    content: of the file.
  """

  path: str
  content: str


def pairs_files(task: str, split: str, language: str, rows: Iterable[tuple[str, str, str]]) -> Iterator[Converted]:
  """Files of a task of sentence pairs: `sentence1 TAB sentence2 [TAB label]`, CSV quotes, CRLF.

  Of a test split the labels are in a file of their own, `labels/TASK/test-LL.tsv`, one a line.
  """
  rows = list(rows)
  is_test = split == 'test'
  table = io.StringIO(newline='')
  csv.writer(table, delimiter='\t').writerows(row[:2] if is_test else row for row in rows)
  yield Converted(f'{task}/{split}-{language}.tsv', table.getvalue())
  if is_test:
    yield Converted(f'labels/{task}/{split}-{language}.tsv', ''.join(f'{label}\n' for *_, label in rows))


Sentence = Sequence[tuple[str, str]]  # tokens with their tags


def tagging_files(task: str, split: str, language: str, sentences: Iterable[Sentence]) -> Iterator[Converted]:
  """Files of a tagging task: `token [TAB tag]`, an empty line between sentences; labels of test as for pairs."""
  sentences = list(sentences)
  blocks = lambda line: '\n'.join(''.join(f'{line(*pair)}\n' for pair in sentence) for sentence in sentences)
  token, tag, both = (lambda token, _: token), (lambda _, tag: tag), (lambda token, tag: f'{token}\t{tag}')
  yield Converted(f'{task}/{split}-{language}.tsv', blocks(token if split == 'test' else both))
  if split == 'test':
    yield Converted(f'labels/{task}/{split}-{language}.tsv', blocks(tag))


def json_text(content: Any) -> str:
  """JSON as UTF-8."""
  return json.dumps(content, ensure_ascii=False)
