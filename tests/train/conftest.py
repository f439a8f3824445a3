"""The tiny model and its steps."""

import pytest
from tiny_training import by_name, packed_batch, step, tiny, trainable

__all__ = ['by_name', 'packed_batch', 'step', 'tiny', 'trainable']


@pytest.fixture(scope='session')
def eight(step):
  """The step on a mesh of 2 × 2 × 2 devices, with a moving average."""
  return step((2, 2, 2), ema_decay=0.2)
