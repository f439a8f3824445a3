"""How much masked text a model restores, language by language (paper, Table 8, last column; section 6.1).

Rows are held out of training and masked as in training: of every 100 chosen pieces 80 are shown as [MASK], 10 as
another piece, 10 as they are, and all count. Accuracy is the share whose piece has the highest logit, loss the mean
cross-entropy in nats.

`results` of `analysis.json`:

    languages       by code, sorted:
      rows          held-out rows
      positions     masked positions in them
      accuracy      0 to 100
      loss          nats
      most_frequent 0 to 100: the accuracy of who always says the piece that is masked most often
    all             the same over all positions: languages count by how many they have
    mean            {"accuracy", "loss"}: the unweighted mean over languages
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rembert.train.losses import LossSums


@dataclasses.dataclass(frozen=True)
class MaskedAccuracy:
  """Of some held-out rows; see the head of this file."""

  rows: int
  positions: int
  accuracy: float
  loss: float
  most_frequent: float


@dataclasses.dataclass(frozen=True)
class MaskedTargets:
  """What is to be restored, by language.

  Attributes:
    rows: [languages] rows that have something to be restored.
    counts: [languages, V] how often each piece is masked.
  """

  rows: np.ndarray
  counts: np.ndarray


def masked_targets(
  batches: Iterable[Mapping[str, np.ndarray]], *, num_languages: int, vocab_size: int
) -> MaskedTargets:
  """Counts rows and targets of batches (`rembert.data.batches`); rows that only fill the last batch do not count."""
  rows = np.zeros(num_languages, np.int64)
  counts = np.zeros((num_languages, vocab_size), np.int64)
  for batch in batches:
    weights, language = np.asarray(batch['weights']) > 0, np.asarray(batch['language'])
    rows += np.bincount(language[weights.any(1)], minlength=num_languages)
    row, slot = np.nonzero(weights)
    np.add.at(counts, (language[row], np.asarray(batch['targets'])[row, slot]), 1)
  return MaskedTargets(rows, counts)


def masked_accuracy(
  sums: LossSums, targets: MaskedTargets, languages: Sequence[str]
) -> tuple[dict[str, MaskedAccuracy], MaskedAccuracy]:
  """Each language that has rows, sorted by code, and all of them together.

  Args:
    sums: of `rembert.train.metrics.language_sums`, [languages] each.
    targets: of the same batches.
    languages: codes, in the order of the sums.

  Raises:
    ValueError: the sums are not of these targets.
  """
  if not np.array_equal(np.rint(sums.weight), targets.counts.sum(1)):
    raise ValueError('sums and targets are of different batches')

  def of(chosen: Sequence[int]) -> MaskedAccuracy:
    chosen = list(chosen)
    positions, counts = float(sums.weight[chosen].sum()), targets.counts[chosen].sum(0)
    return MaskedAccuracy(
      rows=int(targets.rows[chosen].sum()),
      positions=round(positions),
      accuracy=100 * float(sums.correct[chosen].sum()) / positions,
      loss=float(sums.loss[chosen].sum()) / positions,
      most_frequent=100 * float(counts.max()) / positions,
    )

  numbers = sorted((number for number in range(len(languages)) if sums.weight[number]), key=languages.__getitem__)
  return {languages[number]: of([number]) for number in numbers}, of(numbers)
