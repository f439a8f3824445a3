"""Batches of masked rows: compared bit by bit, and with their masks undone."""

import numpy as np


def assert_same(ours, theirs):
  """Both have the same arrays, of the same types."""
  assert ours.keys() == theirs.keys()
  for name in ours:
    assert (ours[name].dtype, ours[name].shape) == (theirs[name].dtype, theirs[name].shape), name
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def unmasked(batch) -> np.ndarray:
  """The rows as they were packed, int32 [B, S]."""
  ids = batch['input_ids'].copy()
  rows, slots = np.nonzero(batch['weights'])
  ids[rows, batch['masked_positions'][rows, slots]] = batch['targets'][rows, slots]
  return ids
