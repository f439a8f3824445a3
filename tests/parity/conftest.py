"""The comparison with Hugging Face is of the program that users run, compiled with all optimisations."""

import jax
import pytest


@pytest.fixture(scope='package', autouse=True)
def all_optimizations():
  """Undoes the cheap compilation of the other tests."""
  jax.config.update('jax_disable_most_optimizations', False)
  yield
  jax.config.update('jax_disable_most_optimizations', True)
