"""Answers from the logits of windows: the best span, cut from the context itself.

As BERT's `run_squad.py` with SQuAD v1.1: in each window the `n_best` likeliest first and last positions are paired, and
the pair with the greatest sum of logits over all windows is the answer. A question always has one: v1.1 knows no
unanswerable ones, so [CLS] is no candidate. Two things are different: positions outside the context take no places
among the `n_best`, and where no pair is possible all positions are tried, where BERT answers `empty`. The text is cut
from the context by the places of characters; nothing is put together from pieces, whose normalised text may differ.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def best_answers(
  targets: Sequence[Mapping[str, Any]], scores: Sequence[np.ndarray], *, n_best: int, max_answer_length: int
) -> dict[int, str]:
  """The best answer to each question, by its number, without white space around it.

  It is '' only if the context is white space.

  Args:
    targets: all windows of the questions, rows of `tasks.xtreme.preprocessors.question_rows`.
    scores: of each row float32 logits [S, 2], of the first position and of the last. Padding may follow.
    n_best: the most likely first, and last positions of a window that are paired.
    max_answer_length: tokens in an answer at most.

  Raises:
    ValueError: rows and scores do not fit together, or a logit is not a number.
  """
  of_question = collections.defaultdict(list)
  for row, logits_Sx2 in zip(targets, scores, strict=True):
    if logits_Sx2.ndim != 2 or logits_Sx2.shape[1] != 2 or len(logits_Sx2) < len(row['input_ids']):
      raise ValueError(f'logits of {logits_Sx2.shape} for a row of {len(row["input_ids"])} ids')
    logits_Wx2 = logits_Sx2[row['offset'] : row['offset'] + len(row['begin'])]
    if np.isnan(logits_Wx2).any():
      raise ValueError(f'logits are not numbers: row of {row["where"].decode()}')
    of_question[int(row['example'])].append((row, logits_Wx2))
  return {question: _best_answer(windows, n_best, max_answer_length) for question, windows in of_question.items()}


def spans(
  logits_Wx2: np.ndarray, may_begin: np.ndarray, *, n_best: int, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Spans of a window that could be an answer: first and last index, int, and sum of logits, float64.

  Args:
    logits_Wx2: of the first and of the last position.
    may_begin: [W] bool, where a span may begin.
    n_best: of the first, and of the last positions, so many are looked at; the earlier where logits are equal.
    max_length: of a span.
  """
  length = len(logits_Wx2)
  by_start, by_end = np.argsort(-logits_Wx2, axis=0, kind='stable').T
  first_Kx1 = by_start[may_begin[by_start]][:n_best, None]
  is_last = np.zeros(length + 1, bool)  # one more, for what is behind the window
  is_last[by_end[:n_best]] = True
  last_KxL = np.minimum(first_Kx1 + np.arange(min(max_length, length)), length)
  start, steps = np.nonzero(is_last[last_KxL])
  first, last = first_Kx1[start, 0], last_KxL[start, steps]
  return first, last, logits_Wx2[first, 0].astype(np.float64) + logits_Wx2[last, 1]


def _best_answer(windows: Sequence[tuple[Mapping[str, Any], np.ndarray]], n_best: int, max_length: int) -> str:
  context = windows[0][0]['context'].decode()
  everything = max(len(logits) for _, logits in windows)
  for most in (n_best, everything):
    candidates = [np.zeros((5, 0))]
    for row, logits in windows:
      first, last, sums = spans(logits, row['has_most_context'], n_best=most, max_length=max_length)
      # Where windows overlap, the same span is at other positions of each: tokens are counted in the context.
      candidates.append(
        np.stack([sums, row['first'] + first, row['first'] + last, row['begin'][first], row['end'][last]])
      )
    sums, first, last, begin, end = np.concatenate(candidates, axis=1)
    for best in np.lexsort((last, first, -sums)):  # of equal ones the first in the text, then the shortest
      if text := context[int(begin[best]) : int(end[best])].strip():
        return text
  return ''
