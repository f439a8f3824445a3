"""Which runs may resume from which checkpoints, and what they resume with."""

import types

import pytest
from etils import epath

from rembert import configuration
from rembert.errors import UsageError
from rembert.jobs.pretrain import configured
from rembert.jobs.training_run import refuse_other_run, restore_or_init
from rembert.tracking.console import Console
from rembert.train.anomaly_detection import GuardsConfig, LossGuard
from rembert.train.metrics import Meter

WORKDIR = epath.Path('runs/some')
BINDINGS = ['RemBertConfig.num_hidden_layers = 2', 'masking.rate = 0.2']


def identity(*bindings):
  configuration.load([], [*BINDINGS, *bindings])
  return configured().identity()


@pytest.mark.parametrize(
  ('binding', 'difference'),
  [
    ('masking.rate = 0.3', 'masking.rate'),
    ('masking.mask_share = 0.7', 'masking.mask_share'),
    ('masking.random_share = 0.2', 'masking.random_share'),
    ('train.seed = 1', 'train.seed'),
    ('train.batch_size = 1024', 'train.batch_size'),
    ('train.ema_decay = 0.9', 'train.ema_decay'),
    ('data.alpha = 0.3', 'data.alpha'),
    ('optimizer.freeze_layers = 1', 'optimizer.freeze_layers'),
  ],
)
def test_other_numbers_are_those_of_another_run(binding, difference):
  with pytest.raises(UsageError, match='a run with different settings') as error:
    refuse_other_run(identity(), identity(binding), WORKDIR)
  assert difference in error.value.where
  refuse_other_run(identity(binding), identity(binding), WORKDIR)


def test_a_checkpoint_from_before_a_field_had_its_default():
  later = ('packing.short_rows', 'train.ema_decay')
  before = {name: value for name, value in identity().items() if name not in later}
  refuse_other_run(before, identity(), WORKDIR)
  with pytest.raises(UsageError, match='a run with different settings'):
    refuse_other_run(before, identity('packing.short_rows = 0.1'), WORKDIR)


def test_the_error_names_the_fields_that_differ_and_no_others():
  with pytest.raises(UsageError) as error:
    refuse_other_run({'a': 1, 'b': [1, 2], 'c': 3}, {'a': 2, 'b': (1, 2)}, WORKDIR)
  assert error.value.where == 'runs/some; a: 1 → 2'


def test_a_restored_run_continues_its_interval_and_its_guard_and_makes_the_evaluation_that_is_due():
  meta = {
    'interval': Meter().saved() | {'steps': 3.0, 'loss': 7.5},
    'guard': LossGuard(GuardsConfig()).saved() | {'skipped': 2, 'lowest_mean': 1.5},
    'is_evaluation_due': True,
  }
  restored = types.SimpleNamespace(step=20, state=None, data={'el': 3}, meta=meta)
  position = restore_or_init(
    types.SimpleNamespace(guards=GuardsConfig()),
    types.SimpleNamespace(console=Console(is_quiet=True)),
    types.SimpleNamespace(restore_newest=lambda target: restored),
    types.SimpleNamespace(restore_target=lambda: None),
    initial=None,
    is_begun=True,
  )
  assert (position.step, position.data) == (20, {'el': 3})
  assert position.meter.saved() == meta['interval']
  assert position.guard.saved() == meta['guard']
  assert position.is_evaluation_due
