"""Labels that are known, missing or wrong, and which of them is the most frequent."""

import collections
from collections.abc import Iterable, Sequence

from etils import epath

from rembert.errors import UsageError
from tasks.xtreme.layout import Line, MissingLabelsError
from tasks.xtreme.text_lines import text_lines


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


def require_labels(examples: Iterable, labels: Iterable) -> None:
  """Raises UsageError for the first example whose label is None: what has no labels gets no score."""
  for example, label in zip(examples, labels, strict=True):
    if label is None:
      raise UsageError(
        'there is no score without gold labels', where=example.where, fix='read the examples with their labels'
      )


def most_frequent(found: Iterable[str], labels: Sequence[str]) -> str:
  """The most frequent of the labels that were found; of several, the first in the order of `labels`."""
  counts = collections.Counter(found)
  return max(labels, key=lambda label: counts[label])
