"""Writers of metrics with one interface: JSONL, TensorBoard, Weights & Biases."""

import contextlib
import dataclasses
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from etils import epath

from rembert.command_line import without_modules
from rembert.errors import RunError, UsageError, first_line
from rembert.files import is_remote, write_whole
from rembert.validation import OneOf, check_fields

Metrics = Mapping[str, float]


class Tracker(Protocol):
  """Records scalars by step. Keys of evaluations begin with `eval/`."""

  def log(self, metrics: Metrics, *, step: int) -> None:
    """Records `metrics` at `step`."""

  def close(self) -> None:
    """Flushes and closes."""


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


def read_jsonl(path: epath.PathLike) -> list[dict]:
  """Rows of a metrics file, without a last line that was truncated by a kill."""
  path, rows = epath.Path(path), []
  with contextlib.suppress(json.JSONDecodeError):
    for line in path.read_text().splitlines() if path.exists() else ():
      rows.append(json.loads(line))
  return rows


class JsonlTracker:
  """Writes `metrics.jsonl`: appends one object per line; in a bucket, rewrites the whole file.

  On resume, rows that will be logged again are dropped: those after the restored step, and the evaluation at that step
  if it `is_evaluation_due`.
  """

  def __init__(self, path: epath.PathLike, *, resume_step: int, is_evaluation_due: bool = False):
    self._path = epath.Path(path)
    kept = [row for row in read_jsonl(self._path) if row['step'] <= resume_step]
    if is_evaluation_due:
      kept = [row for row in kept if row['step'] < resume_step or 'eval/loss' not in row]
    self._text = ''.join(json.dumps(row) + '\n' for row in kept)
    write_whole(self._path, self._text)

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    line = json.dumps({'step': step, **metrics}) + '\n'
    if is_remote(self._path):
      self._text += line
      self._path.write_text(self._text)
    else:
      with open(self._path, 'a') as file:
        file.write(line)

  def close(self) -> None:
    """See `Tracker`; no file is held open."""


def _tagged(metrics: Metrics) -> dict[str, float]:
  return {name if '/' in name else f'train/{name}': value for name, value in metrics.items()}


class TensorBoardTracker:
  """Event files for TensorBoard, by tensorboardX; for a bucket, written locally and copied every minute."""

  _COPY_EVERY_SECONDS = 60

  def __init__(self, directory: epath.PathLike, *, resume_step: int):
    # It would import torch, if installed, for the type of an argument: a second at every start.
    with without_modules('torch'):
      import tensorboardX

    self._directory = epath.Path(directory)
    self._local = tempfile.TemporaryDirectory() if is_remote(directory) else None
    self._copied = time.monotonic()
    folder = self._local.name if self._local else os.fspath(directory)
    # TensorBoard drops events of earlier processes after this step.
    self._writer = tensorboardX.SummaryWriter(folder, purge_step=resume_step + 1)

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    for name, value in _tagged(metrics).items():
      self._writer.add_scalar(name, value, step)
    if self._local and time.monotonic() - self._copied > self._COPY_EVERY_SECONDS:
      self._copy(self._local.name)

  def close(self) -> None:
    """See `Tracker`."""
    self._writer.close()
    if self._local:
      self._copy(self._local.name)
      self._local.cleanup()

  def _copy(self, local: str) -> None:
    self._writer.flush()
    self._directory.mkdir(parents=True, exist_ok=True)
    for file in epath.Path(local).iterdir():
      (self._directory / file.name).write_bytes(file.read_bytes())
    self._copied = time.monotonic()


# --- Weights & Biases: --gin.tracking.wandb_project=NAME --------------------------------------------------------------

_MODES = ('online', 'offline', 'disabled')
_FINISH_SECONDS = 20  # a preempted machine may shut down within half a minute


@dataclasses.dataclass(frozen=True)
class TrackingConfig:
  """Weights & Biases, in addition to `metrics.jsonl` and TensorBoard. The key is that of `wandb login`.

  Attributes:
    wandb_project: the project; None for no W&B.
    wandb_entity: user or team; None for W&B's default.
    wandb_name: name of the run; None for the workdir's name.
    wandb_group: a group of runs; None for none.
    wandb_mode: `online`; `offline`, into `WORKDIR/wandb`, for `wandb sync` later; or `disabled`.
  """

  wandb_project: str | None = None
  wandb_entity: str | None = None
  wandb_name: str | None = None
  wandb_group: str | None = None
  wandb_mode: Annotated[str, OneOf(_MODES)] = 'online'

  def __post_init__(self):
    check_fields(self, 'tracking')

  @property
  def uses_wandb(self) -> bool:
    """Whether W&B is used, online or offline."""
    return self.wandb_project is not None and self.wandb_mode != 'disabled'


class WandbTracker:
  """A run of Weights & Biases. A failure during training is logged once, and training continues.

  `WORKDIR/wandb.json` keeps the id of the run and the last steps logged, so that a resumed run continues the same W&B
  run, online or offline, and logs recomputed steps once. `facts` are shown as its configuration.

  Raises:
    UsageError: the package is not installed, or there is no login.
    RunError: the service cannot be reached.
  """

  def __init__(
    self, config: TrackingConfig, workdir: epath.PathLike, facts: Mapping, say: Callable[[str], None] = print
  ):
    try:
      import wandb
    except ImportError as error:
      raise UsageError(
        'Weights & Biases is not installed',
        where='tracking.wandb_project',
        fix=[
          'pip install wandb (the extra rembert[wandb])',
          'or disable it: --gin.tracking.wandb_project=None',
        ],
      ) from error
    self._say, self._workdir = say, epath.Path(workdir)
    if is_remote(workdir) and config.wandb_mode == 'offline':
      raise UsageError(
        'offline runs of W&B require a local workdir',
        where='tracking.wandb_mode',
        fix='--gin.tracking.wandb_mode=online, or a local --workdir',
      )
    self._file, place = self._workdir / 'wandb.json', {'project': config.wandb_project, 'entity': config.wandb_entity}
    self._known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
      self._known = json.loads(self._file.read_text())
    if not place.items() <= self._known.items():
      self._known = {**place, 'id': uuid.uuid4().hex[:16], 'told': {}}
    write_whole(self._file, json.dumps(self._known))
    try:
      self._run = wandb.init(
        **place,
        name=config.wandb_name or self._workdir.name,
        group=config.wandb_group,
        mode=config.wandb_mode,
        id=self._known['id'],
        resume='allow',
        config=dict(facts),
        dir=tempfile.mkdtemp() if is_remote(workdir) else os.fspath(workdir),
        # Nothing that may contain a secret: no command line, environment, output or code.
        settings=wandb.Settings(
          console='off', disable_code=True, disable_git=True, x_disable_meta=True, silent=True, init_timeout=60
        ),
      )
    except Exception as error:  # W&B has many exception types, and changes them
      is_refused = any(word in str(error).lower() for word in ('api key', 'api_key', 'login', 'permission'))
      raise (UsageError if is_refused else RunError)(
        f'Weights & Biases failed to start: {first_line(error)}',
        where=f'tracking.wandb_project = {config.wandb_project!r}',
        fix=['check the network, then wandb login', 'or upload later: --gin.tracking.wandb_mode=offline'],
      ) from error
    self._run.define_metric('step', hidden=True)
    self._run.define_metric('*', step_metric='step')

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    kind = 'eval' if any(name.startswith('eval/') for name in metrics) else 'train'
    if self._run is None or step <= self._known['told'].get(kind, -1):
      return
    try:
      # W&B's own step allows only one row per step; an evaluation comes after its training row.
      self._run.log(_tagged(metrics) | {'step': step})
    except Exception as error:
      self._run = None
      self._say(f'warning: Weights & Biases disabled: {first_line(error)}; metrics.jsonl has all metrics')
      return
    self._known['told'][kind] = step
    with contextlib.suppress(OSError):  # other files of the run report a full disk
      write_whole(self._file, json.dumps(self._known))

  def close(self) -> None:
    """Waits at most 20 s for the upload; the rest stays in `WORKDIR/wandb`, for `wandb sync`."""
    if self._run is None:
      return
    finishing = threading.Thread(target=self._run.finish, daemon=True)
    finishing.start()
    finishing.join(_FINISH_SECONDS)
    if finishing.is_alive():
      self._say(f'warning: Weights & Biases does not answer; upload later: wandb sync {self._workdir}/wandb/*run-*')
