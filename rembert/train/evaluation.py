"""Evaluation on held-out text: loss and accuracy, over all languages and for each; what frequency alone would give."""

from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from rembert.train.losses import LossSums


def evaluate(
  eval_step: Callable[..., LossSums],
  params: dict,
  batches: Iterable[dict[str, jax.Array]],
  languages: Sequence[str],
  *,
  is_stopped: Callable[[], bool] = lambda: False,
) -> dict[str, float] | None:
  """Metrics with keys `eval/loss`, `eval/accuracy` and the same with `/LANGUAGE` behind; None if stopped midway."""
  totals = language_sums(eval_step, params, batches, len(languages), is_stopped=is_stopped)
  if totals is None:
    return None
  weight = max(float(totals.weight.sum()), 1.0)
  metrics = {'eval/loss': totals.loss.sum() / weight, 'eval/accuracy': totals.correct.sum() / weight}
  for index, language in enumerate(languages):
    if totals.weight[index]:
      metrics[f'eval/loss/{language}'] = totals.loss[index] / totals.weight[index]
      metrics[f'eval/accuracy/{language}'] = totals.correct[index] / totals.weight[index]
  return {name: float(value) for name, value in metrics.items()}


def language_sums(
  eval_step: Callable[..., LossSums],
  params: dict,
  batches: Iterable[dict[str, jax.Array]],
  num_languages: int,
  *,
  is_stopped: Callable[[], bool] = lambda: False,
) -> LossSums | None:
  """Sums over all batches for each language, float64 [num_languages]; None if stopped midway."""
  totals = LossSums(*(np.zeros(num_languages) for _ in LossSums._fields))
  for batch in batches:
    if is_stopped():
      return None
    totals = jax.tree.map(np.add, totals, jax.device_get(eval_step(params, batch)))
  return totals


def piece_counts(batches: Iterable[dict[str, np.ndarray]], *, vocab_size: int) -> np.ndarray:
  """How often each piece stands in masked batches, as they were before they were masked; int64 [V]."""
  counts = np.zeros(vocab_size, np.int64)
  for batch in batches:
    ids = np.array(batch['input_ids'])
    rows, slots = np.nonzero(batch['weights'])
    ids[rows, batch['masked_positions'][rows, slots]] = batch['targets'][rows, slots]
    counts += np.bincount(ids[batch['segment_ids'] > 0], minlength=vocab_size)
  return counts


def unigram_entropy(counts_V: np.ndarray, *, first_piece: int) -> float:
  """Entropy, in nats, of pieces that occur so often; those before `first_piece` are special, and not text.

  The lowest loss that a model can have on this text if it knows how frequent each piece is, here, and nothing else. The
  frequencies are those of the text itself, so no model trained elsewhere without context can reach it.
  """
  counts = counts_V[first_piece:]
  shares = counts[counts > 0] / max(counts.sum(), 1)
  return float(-(shares * np.log(shares)).sum())
