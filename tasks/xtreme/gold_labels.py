"""Labels that are known, missing or wrong, and which of them is the most frequent."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.layout import Line, MissingLabelsError
from tasks.xtreme.text_lines import text_lines

IGNORED = -1  # the label where nothing is to be predicted


def known_label(label: str, labels: Sequence[str], where: str) -> str:
  """`label`, without space around it, if it is one of `labels`; else UsageError."""
  label = label.strip()
  if label not in labels:
    raise UsageError(f'unknown label {label!r}', where=where, fix=f'one of {", ".join(labels)}')
  return label


def labels_lines(path: epath.Path, data: epath.Path) -> list[Line]:
  """Lines of the file of gold labels of `data`; MissingLabelsError if there is none."""
  if not path.is_file():
    raise _missing(f'{path} is not there either', str(data), f'put them into {path}')
  return text_lines(path)


def labels_missing(where: str, columns: str) -> MissingLabelsError:
  """For data that should bring its labels along."""
  return _missing(f'it takes {columns}', where, 'fetch the file again')


def _missing(why: str, where: str, fix: str) -> MissingLabelsError:
  evaluate_dev = "or take the dev split: --gin.xtreme.split='dev'"
  return MissingLabelsError(f'there are no gold labels; {why}', where=where, fix=(fix, evaluate_dev))


def no_score(target: Mapping[str, Any]) -> UsageError:
  """For a row of an example that has no gold labels."""
  return UsageError(
    'there is no score without gold labels',
    where=target['where'].decode(),
    fix='put them into labels/TASK/test-LANGUAGE, see tasks.xtreme.layout',
  )


def most_frequent(found: Iterable[str], labels: Sequence[str]) -> str:
  """The most frequent of the labels that were found; of several, the first in the order of `labels`."""
  counts = collections.Counter(found)
  return max(labels, key=lambda label: counts[label])
