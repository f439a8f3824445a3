"""Numbers to Weights & Biases, for those who ask for it: `--gin.tracking.wandb_project=NAME`.

`WORKDIR/wandb.json` keeps the id of the run and what it has been told, so that a run that is resumed goes on in the
same one, and a step that is made again, with the same numbers, is not there twice. That is decided here and not by the
server, which an offline run does not ask.
"""

import contextlib
import dataclasses
import json
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping

from etils import epath

from rembert.errors import RunError, UsageError, first_line
from rembert.files import is_remote, write_whole
from rembert.tracking.metric_writers import Metrics

MODES = ('online', 'offline', 'disabled')
STEP = 'step'
# The service may be out of reach when a machine has half a minute to live.
_FINISH_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class TrackingConfig:
  """Trackers beside `metrics.jsonl` and TensorBoard. No key is configured: W&B takes it from `wandb login`.

  Attributes:
    wandb_project: of Weights & Biases, where the run is to be shown; None for no W&B.
    wandb_entity: user or team; None for W&B's default.
    wandb_name: of the run; None for the workdir's name.
    wandb_group: of runs that belong together; None for none.
    wandb_mode: `online`; `offline`, into `WORKDIR/wandb`, for `wandb sync` later; or `disabled`.
  """

  wandb_project: str | None = None
  wandb_entity: str | None = None
  wandb_name: str | None = None
  wandb_group: str | None = None
  wandb_mode: str = 'online'

  def __post_init__(self):
    if self.wandb_mode not in MODES:
      raise UsageError(
        f'unknown mode {self.wandb_mode!r}', where='tracking.wandb_mode', fix=f'one of {", ".join(MODES)}'
      )

  @property
  def uses_wandb(self) -> bool:
    """Whether anything is to be sent, or kept to be sent."""
    return self.wandb_project is not None and self.wandb_mode != 'disabled'


class WandbTracker:
  """A run of Weights & Biases. What fails there while training goes on is said once, and costs no training.

  Args:
    config: whose `uses_wandb` holds.
    workdir: of the run.
    facts: JSON, shown as the run's configuration.
    say: told, in one line, of what goes wrong.

  Raises:
    UsageError: the package is not there, or nobody is logged in.
    RunError: the service cannot be reached.
  """

  def __init__(
    self, config: TrackingConfig, workdir: epath.PathLike, facts: Mapping, say: Callable[[str], None] = print
  ):
    wandb = _imported()
    self._say, self._workdir = say, epath.Path(workdir)
    self._file = self._workdir / 'wandb.json'
    self._place = {'project': config.wandb_project, 'entity': config.wandb_entity}
    self._known = self._read() or {**self._place, 'id': uuid.uuid4().hex[:16], 'told': {}}
    self._remember()
    self._local = self._folder(config)
    try:
      self._run = wandb.init(
        project=config.wandb_project,
        entity=config.wandb_entity,
        name=config.wandb_name or self._workdir.name,
        group=config.wandb_group,
        mode=config.wandb_mode,
        id=self._known['id'],
        resume='allow',
        config=dict(facts),
        dir=self._local.name if self._local else os.fspath(self._workdir),
        # Numbers, and nothing that may hold a secret: no command line, no environment, no output, no code.
        settings=wandb.Settings(
          console='off', disable_code=True, disable_git=True, x_disable_meta=True, silent=True, init_timeout=60
        ),
      )
    except Exception as error:  # W&B has a type for each kind of failure, and changes them
      raise _start_error(error, config) from error
    self._run.define_metric(STEP, hidden=True)
    self._run.define_metric('*', step_metric=STEP)

  def log(self, metrics: Metrics, *, step: int) -> None:
    """See `Tracker`."""
    kind = 'eval' if any(name.startswith('eval/') for name in metrics) else 'train'
    if self._run is None or step <= self._known['told'].get(kind, -1):
      return
    try:
      # Not as W&B's own step, of which there can be one row only: an evaluation comes after its training row.
      self._run.log({name if '/' in name else f'train/{name}': value for name, value in metrics.items()} | {STEP: step})
    except Exception as error:
      self._run = None
      self._say(f'Weights & Biases is given up: {first_line(error)}. metrics.jsonl has all numbers.')
      return
    self._known['told'][kind] = step
    with contextlib.suppress(OSError):  # the run's own files will tell when the disk is full
      self._remember()

  def close(self) -> None:
    """Waits a little for what is on its way; the rest stays in `WORKDIR/wandb`, for `wandb sync`."""
    if self._run is not None:
      finishing = threading.Thread(target=self._finish, daemon=True)
      finishing.start()
      finishing.join(_FINISH_SECONDS)
      if finishing.is_alive():
        self._say(f'Weights & Biases does not answer; later: wandb sync {self._workdir}/wandb/*run-*')
        return
    if self._local:
      self._local.cleanup()

  def _finish(self) -> None:
    try:
      self._run.finish()
    except Exception as error:
      self._say(f'Weights & Biases: {first_line(error)}')

  def _folder(self, config: TrackingConfig) -> tempfile.TemporaryDirectory | None:
    if not is_remote(self._workdir):
      return None
    if config.wandb_mode == 'offline':
      raise UsageError(
        'an offline run of W&B is written to a local folder, and the workdir is in a bucket',
        where='tracking.wandb_mode',
        fix='--gin.tracking.wandb_mode=online, or a local --workdir',
      )
    return tempfile.TemporaryDirectory()

  def _read(self) -> dict | None:
    """What is known of the run; None for a new one: there was none, or it was in another project."""
    with contextlib.suppress(OSError, ValueError):
      known = json.loads(self._file.read_text())
      if isinstance(known, dict) and known.items() >= self._place.items() and {'id', 'told'} <= known.keys():
        return known
    return None

  def _remember(self) -> None:
    write_whole(self._file, json.dumps(self._known))


def _imported():
  try:
    import wandb
  except ImportError as error:
    raise UsageError(
      'Weights & Biases is not installed',
      where='tracking.wandb_project',
      fix=['pip install wandb, which is the extra rembert[wandb]', 'or do without: --gin.tracking.wandb_project=None'],
    ) from error
  return wandb


def _start_error(error: Exception, config: TrackingConfig) -> UsageError:
  offline = 'or send the numbers later: --gin.tracking.wandb_mode=offline'
  message = first_line(error)
  if any(word in message.lower() for word in ('api key', 'api_key', 'login', 'permission')):
    return UsageError(
      f'Weights & Biases refuses: {message}',
      where=f'tracking.wandb_project = {config.wandb_project!r}',
      fix=['wandb login', offline],
    )
  return RunError(
    f'Weights & Biases cannot be reached: {message}', where='tracking.wandb_mode', fix=['mend the network', offline]
  )
