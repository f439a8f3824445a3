"""The average of several checkpoints' parameters, as one model.

Averaging the checkpoints of a constant learning rate does what a decay would (Hägele et al., 2024, arXiv:2405.18392);
averaging the ends of several decays is called merging (ModernBERT, arXiv:2412.13663, section 2.1.2).
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from etils import epath

from rembert.convert.tensor_names import Source, Tensor
from rembert.errors import UsageError


def average(sources: Sequence[Source], weights: Sequence[float] | None = None) -> Source:
  """A model whose tensors are the means of those of the sources, by default with equal weights; read when it is.

  It has the path, labels and vocabulary of the first, the facts of `meta` in which all agree, and `averaged_from` and
  `averaged_weights`. UsageError if the models are not of one architecture, head, vocabulary and format.
  """
  first = sources[0]
  weights = [1.0] * len(sources) if weights is None else weights
  if len(weights) != len(sources):
    raise UsageError(
      f'{len(weights)} weights for {len(sources)} checkpoints', where='--weights', fix='give one weight per checkpoint'
    )
  if not sum(weights) > 0:
    raise UsageError('the weights are all 0', where='--weights', fix='leave --weights out for a plain mean')
  for other in sources[1:]:
    _check_fits(first, other)
  shares = [weight / sum(weights) for weight in weights]
  tensors = {
    name: Tensor(tensor.shape, functools.partial(_mean, [source.tensors[name] for source in sources], shares))
    for name, tensor in first.tensors.items()
  }
  own = {'head', 'labels'}  # are in the source itself
  agreed = {
    key: value for key, value in first.meta.items() if key not in own and all(s.meta.get(key) == value for s in sources)
  }
  names = [f'{source.workdir.name}, step {source.step:,}' for source in sources]
  meta = {**agreed, 'averaged_from': names, 'averaged_weights': shares}
  return dataclasses.replace(first, tensors=tensors, meta=meta)


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> np.ndarray:
  """Summed in float64, rounded to float32 once; the sum and one tensor are in memory."""
  total = np.zeros(tensors[0].shape, np.float64)
  for tensor, share in zip(tensors, shares, strict=True):
    total += share * tensor.read().astype(np.float64)
  return total.astype(np.float32)


def _check_fits(first: Source, other: Source) -> None:
  shapes = lambda source: {name: tensor.shape for name, tensor in source.tensors.items()}
  content = lambda source: source.vocabulary and epath.Path(source.vocabulary).read_bytes()
  differing = {
    'format': first.form != other.form,
    'architecture': first.config != other.config,
    'head': (first.head, first.labels) != (other.head, other.labels),
    'tensors': shapes(first) != shapes(other),
    'vocabulary': content(first) != content(other),
  }
  if found := [what for what, differs in differing.items() if differs]:
    raise UsageError(
      f'checkpoints to average have to be of one model; these have different {" and ".join(found)}',
      where=f'{first.path}, {other.path}',
      fix='average checkpoints of one run, or of runs that began with the same configuration and vocabulary',
    )
