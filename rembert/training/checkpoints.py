"""Checkpoints with Orbax: written in the background, visible only when whole."""

import dataclasses

import orbax.checkpoint as ocp
from etils import epath

from rembert import orbax_chatter
from rembert.storage import is_remote, write_errors
from rembert.training.state import TrainState

_FIX = 'make room or mend the storage, then repeat the command: it goes on from the last whole checkpoint'


@dataclasses.dataclass(frozen=True)
class Restored:
  """A checkpoint in memory.

  Attributes:
    step: updates made when it was saved.
    state: sharded as the target said.
    data: where the batch source stood; JSON.
    meta: what the state is a state of (model, data), and what the loop carries from step to step; JSON.
  """

  step: int
  state: TrainState
  data: dict
  meta: dict


def _fields(state: TrainState) -> dict:
  """A plain dict, so that a checkpoint can be read without this project."""
  return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


class Checkpoints:
  """The checkpoints of one workdir: items `state`, `data` and `meta` per step.

  A save is copied off the device at once and written by threads. Orbax writes to a temporary folder and renames it, so
  a process that is killed meanwhile leaves the checkpoint before it as the latest.
  """

  def __init__(self, directory: epath.PathLike, *, keep: int = 3):
    self.directory = epath.Path(directory)
    if not is_remote(directory):
      self.directory = self.directory.resolve()  # Orbax wants no relative paths, and a bucket has no others
    orbax_chatter.silence()
    options = ocp.CheckpointManagerOptions(
      max_to_keep=keep, enable_async_checkpointing=True, cleanup_tmp_directories=True
    )
    self._manager = ocp.CheckpointManager(self.directory, options=options)

  def latest_step(self) -> int | None:
    """Step of the newest whole checkpoint, or None."""
    return self._manager.latest_step()

  def restore_meta(self, step: int) -> dict:
    """The `meta` item alone: small, and enough to see whether the state would fit."""
    return self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore())).meta

  def restore(self, step: int, target: TrainState) -> Restored:
    """Reads a checkpoint into the shapes and shardings of `target`."""
    items = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(_fields(target)),
        data=ocp.args.JsonRestore(),
        meta=ocp.args.JsonRestore(),
      ),
    )
    return Restored(step=step, state=TrainState(**items.state), data=items.data, meta=items.meta)

  def save(self, step: int, state: TrainState, data: dict, meta: dict) -> None:
    """Begins to save; waits only for a save that is still being written. RunError if that one failed."""
    with write_errors('a checkpoint', self.directory, fix=_FIX):
      self._manager.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(_fields(state)), data=ocp.args.JsonSave(data), meta=ocp.args.JsonSave(meta)
        ),
        force=True,
      )

  def wait(self) -> None:
    """Returns when everything is on disk; RunError if it could not be written."""
    with write_errors('a checkpoint', self.directory, fix=_FIX):
      self._manager.wait_until_finished()

  def close(self) -> None:
    """Waits, then lets go of the threads."""
    self.wait()
    self._manager.close()
