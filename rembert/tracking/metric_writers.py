"""Where numbers go: JSONL, TensorBoard, memory. One interface; the console has its own file."""

import json
import os
import tempfile
import time
from collections.abc import Mapping
from typing import Protocol

from etils import epath

from rembert.files import is_remote, write_whole

Metrics = Mapping[str, float]


class Tracker(Protocol):
  """Takes scalars by step. Keys of evaluations begin with `eval/`."""

  def log(self, metrics: Metrics, *, step: int) -> None:
    """Records `metrics` at `step`."""

  def close(self) -> None:
    """Flushes and lets go."""


class MemoryTracker:
  """Keeps everything in a list; for tests."""

  def __init__(self):
    self.rows: list[dict[str, float]] = []

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    self.rows.append({'step': step, **metrics})

  def close(self) -> None:
    """See `Tracker`."""


def read_jsonl(path: epath.PathLike) -> list[dict]:
  """Rows of a metrics file; a last line that was cut off by a kill is left out."""
  path = epath.Path(path)
  if not path.exists():
    return []
  rows = []
  for line in path.read_text().splitlines():
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      break
  return rows


class JsonlTracker:
  """`metrics.jsonl`: one object a line, written as it comes; in a bucket, the whole file anew each time.

  On resume, rows of what is run again are dropped, so that each stands there once: those after the restored step, and
  the evaluation at that step if it `is_evaluation_due` still.
  """

  def __init__(self, path: epath.PathLike, *, resume_step: int, is_evaluation_due: bool = False):
    self._path = epath.Path(path)
    kept = [row for row in read_jsonl(self._path) if row['step'] <= resume_step]
    if is_evaluation_due:
      kept = [row for row in kept if row['step'] < resume_step or 'eval/loss' not in row]
    self._text = ''.join(json.dumps(row) + '\n' for row in kept)
    write_whole(self._path, self._text)
    self._file = None
    if not is_remote(self._path):
      self._file = open(os.fspath(self._path), 'a', buffering=1)  # noqa: SIM115 - lives as long as the run

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    line = json.dumps({'step': step, **metrics}) + '\n'
    if self._file is not None:
      self._file.write(line)
    else:
      self._text += line
      self._path.write_text(self._text)

  def close(self) -> None:
    """See `Tracker`."""
    if self._file is not None:
      self._file.close()


class TensorBoardTracker:
  """Event files for TensorBoard, through tensorboardX: no TensorFlow needed.

  In a bucket they are written to a local folder first and copied now and then.
  """

  _COPY_EVERY_SECONDS = 60

  def __init__(self, directory: epath.PathLike, *, resume_step: int):
    import tensorboardX

    self._directory = epath.Path(directory)
    self._local = tempfile.TemporaryDirectory() if is_remote(directory) else None
    self._copied = time.monotonic()
    # TensorBoard forgets what an earlier process wrote beyond this step.
    self._writer = tensorboardX.SummaryWriter(
      self._local.name if self._local else os.fspath(directory), purge_step=resume_step + 1
    )

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    for name, value in metrics.items():
      self._writer.add_scalar(name if '/' in name else f'train/{name}', value, step)
    if self._local and time.monotonic() - self._copied > self._COPY_EVERY_SECONDS:
      self._copy()

  def close(self) -> None:
    """See `Tracker`."""
    self._writer.close()
    if self._local:
      self._copy()
      self._local.cleanup()

  def _copy(self) -> None:
    if self._local is None:
      return
    self._writer.flush()
    self._directory.mkdir(parents=True, exist_ok=True)
    for file in epath.Path(self._local.name).iterdir():
      (self._directory / file.name).write_bytes(file.read_bytes())
    self._copied = time.monotonic()


class Trackers:
  """Several trackers as one."""

  def __init__(self, *trackers: Tracker):
    self._trackers = trackers

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    for tracker in self._trackers:
      tracker.log(metrics, step=step)

  def close(self) -> None:
    """See `Tracker`."""
    for tracker in self._trackers:
      tracker.close()
