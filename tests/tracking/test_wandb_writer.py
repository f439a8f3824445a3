"""Weights & Biases: one run for a workdir, each step once, no secret, and training never hangs on it.

A stand-in with W&B's interface takes its place; the real package is tried, offline, where it is installed.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import threading
import types

import pytest

from rembert import configuration
from rembert.errors import RunError, UsageError
from rembert.tracking import wandb_writer
from rembert.tracking.wandb_writer import TrackingConfig, WandbTracker

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = TrackingConfig(wandb_project='rembert', wandb_mode='offline')


class StandIn(types.ModuleType):
  """`import wandb`, as far as it is used: `init(...)` → run with `log`, `define_metric` and `finish`."""

  def __init__(self):
    super().__init__('wandb')
    self.inits, self.rows, self.metrics, self.finished = [], [], [], 0
    self.init_error = self.log_error = None
    self.finishing = threading.Event()
    self.finishing.set()
    self.Settings = lambda **settings: settings

  def init(self, **arguments):
    if self.init_error:
      raise self.init_error
    self.inits.append(arguments)
    return self

  def define_metric(self, name, **how):
    self.metrics.append((name, how))

  def log(self, row):
    if self.log_error:
      raise self.log_error
    self.rows.append(dict(row))

  def finish(self):
    self.finishing.wait()
    self.finished += 1


@pytest.fixture
def wandb(monkeypatch) -> StandIn:
  module = StandIn()
  monkeypatch.setitem(sys.modules, 'wandb', module)
  return module


def test_rows_go_under_the_names_of_tensorboard_with_their_step(wandb, tmp_path):
  tracker = WandbTracker(CONFIG, tmp_path / 'large', {'train.seed': 3})
  tracker.log({'loss': 2.0}, step=10)
  tracker.log({'eval/loss': 2.5, 'eval/loss/sw': 3.0}, step=10)
  tracker.close()
  assert wandb.rows == [{'train/loss': 2.0, 'step': 10}, {'eval/loss': 2.5, 'eval/loss/sw': 3.0, 'step': 10}]
  assert ('*', {'step_metric': 'step'}) in wandb.metrics
  [init] = wandb.inits
  assert (init['project'], init['name'], init['mode'], init['resume']) == ('rembert', 'large', 'offline', 'allow')
  assert init['config'] == {'train.seed': 3}
  assert wandb.finished == 1


def test_a_resumed_run_goes_on_in_the_same_one_and_no_step_is_there_twice(wandb, tmp_path):
  def session(*rows):
    tracker = WandbTracker(CONFIG, tmp_path, {})
    for step, name in rows:
      tracker.log({name: step / 10}, step=step)

  session((10, 'loss'), (20, 'loss'), (20, 'eval/loss'), (30, 'loss'))  # killed: never closed
  session((20, 'loss'), (20, 'eval/loss'), (30, 'loss'), (40, 'loss'), (40, 'eval/loss'))
  assert wandb.inits[0]['id'] == wandb.inits[1]['id']
  steps = [(row['step'], next(name for name in row if name != 'step')) for row in wandb.rows]
  assert steps == [
    *((10, 'train/loss'), (20, 'train/loss'), (20, 'eval/loss'), (30, 'train/loss')),
    *((40, 'train/loss'), (40, 'eval/loss')),
  ]


def test_another_project_is_another_run_and_so_is_a_damaged_note(wandb, tmp_path):
  ids = []
  for project in ('one', 'one', 'two'):
    WandbTracker(TrackingConfig(wandb_project=project), tmp_path, {})
    ids.append(wandb.inits[-1]['id'])
  assert ids[0] == ids[1] != ids[2]
  (tmp_path / 'wandb.json').write_text('{"id": ')
  WandbTracker(TrackingConfig(wandb_project='two'), tmp_path, {}).log({'loss': 1.0}, step=1)
  assert wandb.inits[-1]['id'] not in ids


def test_nothing_that_may_hold_a_secret_is_handed_over(wandb, tmp_path, monkeypatch):
  monkeypatch.setenv('WANDB_API_KEY', 'key-of-somebody')
  WandbTracker(CONFIG, tmp_path, {'train.seed': 3}).close()
  [init] = wandb.inits
  assert init['settings']['console'] == 'off'
  assert all(init['settings'][name] for name in ('disable_code', 'disable_git', 'x_disable_meta'))
  assert 'key-of-somebody' not in repr(init)
  assert 'key-of-somebody' not in (tmp_path / 'wandb.json').read_text()


def test_training_goes_on_where_it_fails_and_that_is_said_once(wandb, tmp_path):
  said = []
  tracker = WandbTracker(CONFIG, tmp_path, {}, said.append)
  tracker.log({'loss': 2.0}, step=10)
  wandb.log_error = OSError('the service has died')
  tracker.log({'loss': 2.0}, step=20)
  tracker.log({'loss': 2.0}, step=30)
  tracker.close()
  assert len(said) == 1
  assert 'the service has died' in said[0]


def test_the_end_of_a_run_does_not_wait_for_it_for_ever(wandb, tmp_path, monkeypatch):
  monkeypatch.setattr(wandb_writer, '_FINISH_SECONDS', 0.1)
  wandb.finishing.clear()
  said = []
  WandbTracker(CONFIG, tmp_path, {}, said.append).close()
  wandb.finishing.set()
  assert 'wandb sync' in said[0]


@pytest.mark.parametrize(
  ('error', 'kind', 'fix'),
  [
    (RuntimeError('api_key not configured (no-tty)'), UsageError, 'wandb login'),
    (RuntimeError('Run initialization has timed out'), RunError, 'wandb_mode=offline'),
  ],
)
def test_what_keeps_it_from_starting_is_told_before_training(wandb, tmp_path, error, kind, fix):
  wandb.init_error = error
  with pytest.raises(UsageError) as caught:
    WandbTracker(CONFIG, tmp_path, {})
  assert type(caught.value) is kind
  assert fix in str(caught.value)


def test_where_it_is_not_installed_the_error_says_how_to_install_it(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(UsageError) as error:
    WandbTracker(CONFIG, tmp_path, {})
  assert 'pip install wandb' in str(error.value)
  assert 'rembert[wandb]' in str(error.value)


def test_an_offline_run_needs_a_local_workdir(wandb, tmp_path, monkeypatch):
  monkeypatch.setattr(wandb_writer, 'is_remote', lambda path: True)
  with pytest.raises(UsageError, match='local folder'):
    WandbTracker(CONFIG, tmp_path, {})


def test_it_is_configured_by_gin_and_off_by_default():
  configuration.load([], [])
  assert not configuration.build(TrackingConfig).uses_wandb
  configuration.load([], ['tracking.wandb_project=rembert', 'tracking.wandb_mode=offline'])
  assert configuration.build(TrackingConfig) == CONFIG
  assert CONFIG.uses_wandb
  assert not TrackingConfig(wandb_project='rembert', wandb_mode='disabled').uses_wandb
  with pytest.raises(UsageError, match='unknown mode'):
    TrackingConfig(wandb_mode='sometimes')


# --- the real package -------------------------------------------------------------------------------------------------


def records_of(file):
  """Records of a `.wandb` file: 7 bytes of header, then LevelDB's log format in blocks of 32 KiB."""
  import wandb.proto.wandb_internal_pb2 as proto

  data, at, record = file.read_bytes(), 7, b''
  while at + 7 <= len(data):
    if (left := 32768 - at % 32768) < 7:
      at += left
      continue
    length, kind = struct.unpack('<HB', data[at + 4 : at + 7])
    record += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (1, 4):  # whole, or the last part
      yield proto.Record.FromString(record)
      record = b''


def test_the_real_package_keeps_every_step_once_over_a_resumption(tmp_path):
  pytest.importorskip('wandb', reason='wandb is not installed: pip install wandb')
  code = (
    'import sys\n'
    'from rembert.tracking.wandb_writer import TrackingConfig, WandbTracker\n'
    'config = TrackingConfig(wandb_project="rembert", wandb_mode="offline")\n'
    'tracker = WandbTracker(config, sys.argv[1], {"train.seed": 3})\n'
    'for step in map(int, sys.argv[2:]):\n'
    '  tracker.log({"loss": step / 10}, step=step)\n'
    '  tracker.log({"eval/loss": step / 5}, step=step)\n'
    'tracker.close()\n'
  )
  secret = 'a1b2' * 10
  environment = os.environ | {'WANDB_API_KEY': secret, 'JAX_PLATFORMS': 'cpu'}
  for steps in (('10', '20', '30'), ('20', '30', '40')):
    command = [sys.executable, '-c', code, str(tmp_path / 'run'), *steps]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=120)
  files = sorted((tmp_path / 'run' / 'wandb').glob('offline-run-*/*.wandb'))
  assert len(files) == 2
  records = [record for file in files for record in records_of(file)]
  rows = [
    {item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
    for record in records
    if record.WhichOneof('record_type') == 'history'
  ]
  assert [(row['step'], row.get('train/loss'), row.get('eval/loss')) for row in rows] == [
    each for step in (10, 20, 30, 40) for each in ((step, step / 10, None), (step, None, step / 5))
  ]
  assert {record.run.run_id for record in records if record.WhichOneof('record_type') == 'run'} == {
    json.loads((tmp_path / 'run' / 'wandb.json').read_text())['id']
  }
  everything = b''.join(path.read_bytes() for path in (tmp_path / 'run').rglob('*') if path.is_file())
  assert secret.encode() not in everything
