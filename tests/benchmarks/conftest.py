"""Benchmarks run on one CPU device, as `python -m benchmarks.run` does."""

import jax
import pytest

from rembert.runtime import xla
from rembert.train import sharding


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
  """One of the devices of the tests; memory is given back as before."""
  make_mesh = sharding.make_mesh
  monkeypatch.setattr(sharding, 'make_mesh', lambda config: make_mesh(config, jax.devices()[:1]))
  monkeypatch.setattr(xla, 'keep_freed_memory_if_it_fits', lambda size: None)
