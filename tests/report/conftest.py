"""A made-up sweep and a made-up run, read once for all tests of the report."""

import made_up_sweep
import pytest

from rembert.report import load
from rembert.report.html import Picture, Table
from rembert.report.scores import Results


@pytest.fixture(scope='session')
def sweep(tmp_path_factory) -> Results:
  """Five models, two seeds of fine-tuning."""
  folder = tmp_path_factory.mktemp('report') / 'sweep'
  models = ['coupled768', 'in768_out768', 'in128_out128', 'in128_out768', 'layers23to12']
  return Results(load.read([made_up_sweep.write_sweep(folder, models, seeds=2)]))


@pytest.fixture(scope='session')
def run(tmp_path_factory) -> Results:
  """A pre-training run."""
  return Results(load.read([made_up_sweep.write_pretraining(tmp_path_factory.mktemp('report') / 'run')]))


@pytest.fixture(scope='session')
def tables():
  """Function (section) → caption to table."""
  return lambda section: {block.caption: block for block in section.blocks if isinstance(block, Table)}


@pytest.fixture(scope='session')
def pictures():
  """Function (section) → name to picture."""
  return lambda section: {block.name: block for block in section.blocks if isinstance(block, Picture)}
