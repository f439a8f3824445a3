"""Rows of metrics: written once each, whatever was killed in between; TensorBoard's files read back by hand."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import threading
import unittest.mock

import pytest
from memory_tracker import MemoryTracker
from tensorboardX.proto.event_pb2 import Event

from rembert.errors import RunError, UsageError
from rembert.tracking import metric_writers
from rembert.tracking.metric_writers import (
  JsonlTracker,
  TensorBoardTracker,
  Trackers,
  TrackingConfig,
  WandbTracker,
  read_jsonl,
)


def rows_of(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


# --- JSONL ----------------------------------------------------------------------------------------

EARLIER = [
  {'step': 10, 'loss': 5.0},
  {'step': 20, 'loss': 4.0},
  {'step': 20, 'eval/loss': 4.5},
  {'step': 30, 'loss': 3.0},
  {'step': 40, 'loss': 2.0},
  {'step': 40, 'eval/loss': 2.5},
]


@pytest.fixture
def metrics_file(tmp_path):
  """A file with `EARLIER` in it."""
  path = tmp_path / 'metrics.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in EARLIER))
  return path


def test_rows_are_there_as_soon_as_they_are_logged(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  tracker = JsonlTracker(path, resume_step=0)
  assert path.read_text() == ''
  tracker.log({'loss': 1.5, 'accuracy': 0.25}, step=10)
  assert path.read_text() == '{"step": 10, "loss": 1.5, "accuracy": 0.25}\n'
  tracker.log({'eval/loss': 2.0}, step=10)
  assert rows_of(path) == [{'step': 10, 'loss': 1.5, 'accuracy': 0.25}, {'step': 10, 'eval/loss': 2.0}]
  tracker.close()


@pytest.mark.parametrize(
  ('resume_step', 'is_evaluation_due', 'dropped'),
  [
    *[(40, False, []), (39, False, [4, 5]), (30, False, [4, 5]), (29, False, [3, 4, 5]), (0, False, range(6))],
    *[(40, True, [5]), (20, True, [2, 3, 4, 5]), (30, True, [4, 5])],
  ],
)
def test_rows_of_what_is_run_again_are_dropped(metrics_file, resume_step, is_evaluation_due, dropped):
  kept = [row for index, row in enumerate(EARLIER) if index not in dropped]
  tracker = JsonlTracker(metrics_file, resume_step=resume_step, is_evaluation_due=is_evaluation_due)
  assert rows_of(metrics_file) == kept
  tracker.log({'loss': 1.0}, step=50)
  tracker.close()
  assert rows_of(metrics_file) == [*kept, {'step': 50, 'loss': 1.0}]
  assert [path.name for path in metrics_file.parent.iterdir()] == ['metrics.jsonl']


LAST = json.dumps(EARLIER[-1])


@pytest.mark.parametrize('cut', [0, 1, len(LAST) // 2, len(LAST) - 1])
def test_a_truncated_last_line_is_dropped_unless_it_lacks_only_its_end(metrics_file, cut):
  metrics_file.write_text(metrics_file.read_text()[: -1 - cut])
  kept = EARLIER[:-1] if cut else EARLIER
  assert read_jsonl(metrics_file) == kept
  JsonlTracker(metrics_file, resume_step=40).log({'loss': 1.0}, step=50)
  assert rows_of(metrics_file) == [*kept, {'step': 50, 'loss': 1.0}]


# --- TensorBoard ------------------------------------------------------------------------------------


def events_of(directory):
  """TFRecord: length (8 bytes), its checksum (4), the event, its checksum (4); over and over."""
  events = []
  for path in sorted(directory.iterdir()):
    assert path.name.startswith('events.out.tfevents.')
    data, at = path.read_bytes(), 0
    while at < len(data):
      (length,) = struct.unpack('<Q', data[at : at + 8])
      payload = data[at + 12 : at + 12 + length]
      events.append(Event.FromString(payload))
      at += 16 + length
  return events


def test_tensorboard_finds_every_scalar_at_its_step_under_its_tag_and_drops_those_after_a_resumed_step(tmp_path):
  tracker = TensorBoardTracker(tmp_path / 'tensorboard', resume_step=40)
  tracker.log({'loss': 1.5, 'accuracy': 0.25}, step=50)
  tracker.log({'eval/loss': 2.0, 'eval/loss/sw': 3.0}, step=60)
  tracker.close()
  events = events_of(tmp_path / 'tensorboard')
  assert events[0].file_version == 'brain.Event:2'
  scalars = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
  of_training = [(50, 'train/loss', 1.5), (50, 'train/accuracy', 0.25)]
  assert scalars == [*of_training, (60, 'eval/loss', 2.0), (60, 'eval/loss/sw', 3.0)]
  # TensorBoard drops earlier events from the step of a START on.
  assert [event.step for event in events if event.session_log.status == event.session_log.START] == [41]


# --- together -------------------------------------------------------------------------------------


def test_all_trackers_get_every_row_and_are_closed(tmp_path):
  memories = MemoryTracker(), MemoryTracker()
  closed = []
  for memory in memories:
    memory.close = lambda memory=memory: closed.append(memory)
  tracker = Trackers(*memories, JsonlTracker(tmp_path / 'metrics.jsonl', resume_step=0))
  tracker.log({'loss': 2.0}, step=1)
  tracker.log({'loss': 1.0}, step=2)
  tracker.close()
  rows = [{'step': 1, 'loss': 2.0}, {'step': 2, 'loss': 1.0}]
  assert memories[0].rows == memories[1].rows == rows_of(tmp_path / 'metrics.jsonl') == rows
  assert closed == [*memories]


# --- buckets --------------------------------------------------------------------------------------


def test_where_nothing_can_be_appended_files_are_written_whole(metrics_file, tmp_path, monkeypatch):
  monkeypatch.setattr(metric_writers, 'is_remote', lambda path: True)
  rows = JsonlTracker(metrics_file, resume_step=20)
  metrics_file.unlink()  # an open file would not come back
  rows.log({'loss': 3.5}, step=30)
  rows.close()
  monkeypatch.undo()
  assert rows_of(metrics_file) == [*EARLIER[:3], {'step': 30, 'loss': 3.5}]


def test_event_files_are_written_without_torch(tmp_path, root):
  (tmp_path / 'torch.py').write_text("raise SystemExit('torch was imported')")
  code = f"""
from rembert.tracking.metric_writers import TensorBoardTracker
TensorBoardTracker({str(tmp_path / 'events')!r}, resume_step=0).close()
import sys; assert 'torch' not in sys.modules
import torch
"""
  paths = {'PYTHONPATH': os.pathsep.join(map(str, (tmp_path, root)))}
  done = subprocess.run([sys.executable, '-c', code], env={**os.environ, **paths}, capture_output=True, text=True)
  assert 'torch was imported' in done.stderr  # by the last line alone
  assert list((tmp_path / 'events').iterdir())


def test_event_files_are_copied_now_and_then_and_at_the_end(tmp_path, monkeypatch):
  monkeypatch.setattr(metric_writers, 'is_remote', lambda path: True)
  folder = tmp_path / 'tensorboard'
  tracker = TensorBoardTracker(folder, resume_step=0)
  tracker.log({'loss': 2.0}, step=10)
  assert not folder.exists()
  monkeypatch.setattr(TensorBoardTracker, '_COPY_EVERY_SECONDS', 0)
  tracker.log({'loss': 1.5}, step=20)
  assert len(list(folder.iterdir())) == 1
  tracker.log({'loss': 1.0}, step=30)
  tracker.close()
  scalars = [value.simple_value for event in events_of(folder) for value in event.summary.value]
  assert scalars == [2.0, 1.5, 1.0]


# --- Weights & Biases: one run for a workdir, each step once, no secret, and training never hangs on it ---------------
# A stand-in with W&B's interface takes its place; the real package is tried, offline, where it is installed.

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = TrackingConfig(wandb_project='rembert', wandb_mode='offline')


@pytest.fixture
def wandb(monkeypatch):
  """The stand-in; `wandb.run` is what `init` returns, `wandb.rows()` what was logged to it."""
  module = unittest.mock.MagicMock()
  module.run = module.init.return_value
  module.rows = lambda: [call.args[0] for call in module.run.log.call_args_list]
  monkeypatch.setitem(sys.modules, 'wandb', module)
  return module


def test_rows_go_under_the_names_of_tensorboard_with_their_step(wandb, tmp_path):
  tracker = WandbTracker(CONFIG, tmp_path / 'large', {'train.seed': 3})
  tracker.log({'loss': 2.0}, step=10)
  tracker.log({'eval/loss': 2.5, 'eval/loss/sw': 3.0}, step=10)
  tracker.close()
  assert wandb.rows() == [{'train/loss': 2.0, 'step': 10}, {'eval/loss': 2.5, 'eval/loss/sw': 3.0, 'step': 10}]
  wandb.run.define_metric.assert_called_with('*', step_metric='step')
  init = wandb.init.call_args.kwargs
  assert (init['project'], init['name'], init['mode'], init['resume']) == ('rembert', 'large', 'offline', 'allow')
  assert init['config'] == {'train.seed': 3}
  wandb.run.finish.assert_called_once_with()


def test_a_resumed_run_continues_the_same_one_without_repeated_steps(wandb, tmp_path):
  def session(*rows):
    tracker = WandbTracker(CONFIG, tmp_path, {})
    for step, name in rows:
      tracker.log({name: step / 10}, step=step)
    return wandb.init.call_args.kwargs['id']

  first = session((10, 'loss'), (20, 'loss'), (20, 'eval/loss'), (30, 'loss'))  # killed: never closed
  assert first == session((20, 'loss'), (20, 'eval/loss'), (30, 'loss'), (40, 'loss'), (40, 'eval/loss'))
  assert [(row['step'], next(iter(row))) for row in wandb.rows()] == [
    *((10, 'train/loss'), (20, 'train/loss'), (20, 'eval/loss'), (30, 'train/loss')),
    *((40, 'train/loss'), (40, 'eval/loss')),
  ]


def test_another_project_is_another_run_and_so_is_a_damaged_note(wandb, tmp_path):
  def run_id(project):
    WandbTracker(TrackingConfig(wandb_project=project), tmp_path, {}).log({'loss': 1.0}, step=1)
    return wandb.init.call_args.kwargs['id']

  ids = [run_id(project) for project in ('one', 'one', 'two')]
  assert ids[0] == ids[1] != ids[2]
  (tmp_path / 'wandb.json').write_text('{"id": ')
  assert run_id('two') not in ids


def test_nothing_that_may_hold_a_secret_is_handed_over(wandb, tmp_path, monkeypatch):
  monkeypatch.setenv('WANDB_API_KEY', 'key-of-a-user')
  WandbTracker(CONFIG, tmp_path, {'train.seed': 3}).close()
  settings = wandb.Settings.call_args.kwargs
  assert settings['console'] == 'off'
  assert all(settings[name] for name in ('disable_code', 'disable_git', 'x_disable_meta'))
  assert 'key-of-a-user' not in repr(wandb.mock_calls) + (tmp_path / 'wandb.json').read_text()


def test_training_continues_if_it_fails_with_one_warning_and_ends_if_it_does_not_answer(wandb, tmp_path, monkeypatch):
  said, finishing = [], threading.Event()
  tracker = WandbTracker(CONFIG, tmp_path / 'one', {}, said.append)
  wandb.run.log.side_effect = [None, OSError('the service has died')]
  for step in (10, 20, 30):
    tracker.log({'loss': 2.0}, step=step)
  tracker.close()
  monkeypatch.setattr(metric_writers, '_FINISH_SECONDS', 0.1)
  wandb.run.finish.side_effect = finishing.wait
  WandbTracker(CONFIG, tmp_path / 'two', {}, said.append).close()
  finishing.set()
  failed, unanswered = said
  assert 'the service has died' in failed
  assert 'wandb sync' in unanswered


@pytest.mark.parametrize(
  ('error', 'kind', 'fix'),
  [
    (RuntimeError('api_key not configured (no-tty)'), UsageError, 'wandb login'),
    (RuntimeError('Run initialization has timed out'), RunError, 'wandb_mode=offline'),
  ],
)
def test_a_failure_to_start_is_an_error_before_training(wandb, tmp_path, error, kind, fix):
  wandb.init.side_effect = error
  with pytest.raises(UsageError) as caught:
    WandbTracker(CONFIG, tmp_path, {})
  assert type(caught.value) is kind
  assert fix in str(caught.value)


def test_a_missing_package_and_a_bucket_without_network_are_usage_errors(wandb, tmp_path, monkeypatch):
  with monkeypatch.context() as remote:
    remote.setattr(metric_writers, 'is_remote', lambda path: True)
    with pytest.raises(UsageError, match='require a local workdir'):
      WandbTracker(CONFIG, tmp_path, {})
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(UsageError, match=r'(?s)pip install wandb.*rembert\[wandb\]'):
    WandbTracker(CONFIG, tmp_path, {})


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
    'from rembert.tracking.metric_writers import TrackingConfig, WandbTracker\n'
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
