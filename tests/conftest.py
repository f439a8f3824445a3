"""Eight CPU devices for every test, and the few things that many tests share."""

import os
import pathlib

# Nothing that was compiled before: tests compile what they test, and runs are stopped while they compile. To be seen by
# the processes that tests start, too.
os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'

import jax
import pytest

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 8)
# Tests compile for minutes and compute for seconds: LLVM's optimisations cost more than they give. This process alone:
# whole runs (tests/jobs) are compiled as they are for users, and so is the comparison in tests/parity.
jax.config.update('jax_disable_most_optimizations', True)

pytest_plugins = ['random_checkpoints', 'small_store', 'xtreme_samples']  # tests/support

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def root() -> pathlib.Path:
  """The project's folder."""
  return ROOT


@pytest.fixture(scope='session')
def shared_data() -> pathlib.Path:
  """Real dumps and texts beside the project; tests that want them are skipped where there are none."""
  folder = ROOT.parent / 'shared' / 'data'
  if not folder.is_dir():
    pytest.skip(f'no real data at {folder}')
  return folder
