"""Rows of metrics: written once each, whatever was killed in between; TensorBoard's files read back by hand."""

import json
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event

from rembert.tracking import metric_writers
from rembert.tracking.metric_writers import JsonlTracker, MemoryTracker, TensorBoardTracker, Trackers, read_jsonl


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


@pytest.mark.parametrize(('resume_step', 'kept'), [(40, 6), (39, 4), (30, 4), (29, 3), (20, 3), (10, 1), (0, 0)])
def test_rows_of_what_is_run_again_are_dropped(metrics_file, resume_step, kept):
  tracker = JsonlTracker(metrics_file, resume_step=resume_step)
  assert rows_of(metrics_file) == EARLIER[:kept]
  tracker.log({'loss': 1.0}, step=50)
  tracker.close()
  assert rows_of(metrics_file) == [*EARLIER[:kept], {'step': 50, 'loss': 1.0}]
  assert [path.name for path in metrics_file.parent.iterdir()] == ['metrics.jsonl']


@pytest.mark.parametrize(('resume_step', 'dropped'), [(40, [5]), (20, [2, 3, 4, 5]), (30, [4, 5])])
def test_an_evaluation_that_is_still_due_is_dropped_and_its_training_row_kept(metrics_file, resume_step, dropped):
  JsonlTracker(metrics_file, resume_step=resume_step, is_evaluation_due=True).close()
  assert rows_of(metrics_file) == [row for index, row in enumerate(EARLIER) if index not in dropped]


LAST = json.dumps(EARLIER[-1])


@pytest.mark.parametrize('cut', range(1, len(LAST)))
def test_a_last_line_that_was_cut_off_is_dropped(metrics_file, cut):
  metrics_file.write_text(metrics_file.read_text()[: -1 - cut])
  assert read_jsonl(metrics_file) == EARLIER[:-1]
  tracker = JsonlTracker(metrics_file, resume_step=40)
  tracker.log({'loss': 1.0}, step=50)
  tracker.close()
  assert rows_of(metrics_file) == [*EARLIER[:-1], {'step': 50, 'loss': 1.0}]


def test_a_last_line_that_lacks_only_its_end_of_line_is_kept(metrics_file):
  metrics_file.write_text(metrics_file.read_text()[:-1])
  JsonlTracker(metrics_file, resume_step=40).close()
  assert rows_of(metrics_file) == EARLIER


def test_there_may_be_no_file_yet(tmp_path):
  assert read_jsonl(tmp_path / 'metrics.jsonl') == []


# --- TensorBoard ------------------------------------------------------------------------------------


def masked_crc32c(data):
  """TFRecord's checksum: Castagnoli's polynomial, bit by bit, rotated and shifted."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc ^= byte
    for _ in range(8):
      crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
  crc ^= 0xFFFFFFFF
  return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def events_of(directory):
  """TFRecord: length, its checksum, the event, its checksum; over and over."""
  events = []
  for path in sorted(directory.iterdir()):
    assert path.name.startswith('events.out.tfevents.')
    data, at = path.read_bytes(), 0
    while at < len(data):
      (length,) = struct.unpack('<Q', data[at : at + 8])
      payload = data[at + 12 : at + 12 + length]
      assert struct.unpack('<I', data[at + 8 : at + 12]) == (masked_crc32c(data[at : at + 8]),)
      assert struct.unpack('<I', data[at + 12 + length : at + 16 + length]) == (masked_crc32c(payload),)
      events.append(Event.FromString(payload))
      at += 16 + length
  return events


def test_tensorboard_finds_every_scalar_at_its_step_under_its_tag(tmp_path):
  tracker = TensorBoardTracker(tmp_path / 'tensorboard', resume_step=0)
  tracker.log({'loss': 1.5, 'accuracy': 0.25}, step=10)
  tracker.log({'eval/loss': 2.0, 'eval/loss/sw': 3.0}, step=20)
  tracker.close()
  events = events_of(tmp_path / 'tensorboard')
  assert events[0].file_version == 'brain.Event:2'
  scalars = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
  assert scalars == [
    (10, 'train/loss', 1.5),
    (10, 'train/accuracy', 0.25),
    (20, 'eval/loss', 2.0),
    (20, 'eval/loss/sw', 3.0),
  ]


def test_tensorboard_is_told_to_forget_what_comes_after_the_resumed_step(tmp_path):
  tracker = TensorBoardTracker(tmp_path, resume_step=40)
  tracker.log({'loss': 1.0}, step=50)
  tracker.close()
  starts = [event for event in events_of(tmp_path) if event.session_log.status == event.session_log.START]
  # TensorBoard drops earlier events from the step of a START on.
  assert [event.step for event in starts] == [41]


# --- together -------------------------------------------------------------------------------------


def test_all_trackers_get_every_row_and_are_closed(tmp_path):
  class Closing(MemoryTracker):
    is_closed = False

    def close(self):
      self.is_closed = True

  memories = Closing(), Closing()
  tracker = Trackers(*memories, JsonlTracker(tmp_path / 'metrics.jsonl', resume_step=0))
  tracker.log({'loss': 2.0}, step=1)
  tracker.log({'loss': 1.0}, step=2)
  tracker.close()
  rows = [{'step': 1, 'loss': 2.0}, {'step': 2, 'loss': 1.0}]
  assert memories[0].rows == memories[1].rows == rows_of(tmp_path / 'metrics.jsonl') == rows
  assert memories[0].is_closed
  assert memories[1].is_closed


def test_memory_keeps_what_was_logged_not_what_became_of_it():
  tracker, metrics = MemoryTracker(), {'loss': 1.0}
  tracker.log(metrics, step=3)
  metrics['loss'] = 9.0
  assert tracker.rows == [{'step': 3, 'loss': 1.0}]


# --- buckets --------------------------------------------------------------------------------------


def test_where_nothing_can_be_appended_files_are_written_whole(metrics_file, tmp_path, monkeypatch):
  monkeypatch.setattr(metric_writers, 'is_remote', lambda path: True)
  rows = JsonlTracker(metrics_file, resume_step=20)
  metrics_file.unlink()  # an open file would not come back
  rows.log({'loss': 3.5}, step=30)
  rows.close()
  monkeypatch.undo()
  assert rows_of(metrics_file) == [*EARLIER[:3], {'step': 30, 'loss': 3.5}]


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
