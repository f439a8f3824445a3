"""Orbax checkpoints of a run: their schedule, asynchronous atomic saves, and verified restores."""

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint import checkpoint_managers as policies

from rembert.checkpoint import integrity
from rembert.checkpoint.integrity import Corrupt, Description, describe
from rembert.errors import RunError, UsageError
from rembert.files import absolute, write_errors
from rembert.train.state import TrainState

_FIX = (
  'check that the storage has room and can be written to, then run the command again: '
  'it resumes from the last valid checkpoint'
)
_DAMAGED = 'damaged-'

Read = TypeVar('Read')


@dataclasses.dataclass(frozen=True)
class Restored(Description):
  """A restored checkpoint; `state` is sharded like the target."""

  state: TrainState


class SaveSchedule:
  """Schedule of checkpoints: permanent ones by steps, temporary ones by time. Performs no I/O and reads no clock.

  All hosts know which steps are permanent. Process 0 alone decides on temporary ones and sends its decision to the
  others: clocks differ between hosts, and a save that only some hosts begin never ends. `now` is the time of a
  monotonic clock; after `temporary_seconds` without a checkpoint (0: never) a temporary one is due.
  """

  def __init__(self, *, steps: int, every: int, temporary_seconds: float, now: float):
    self._steps, self._every, self._temporary_seconds = steps, every, temporary_seconds
    self._last = now

  def is_permanent(self, step: int) -> bool:
    """Whether the checkpoint of this step is permanent; all others are temporary."""
    return step == self._steps or step % self._every == 0

  def is_due(self, step: int, now: float) -> bool:
    """Whether to save after this step."""
    return self.is_permanent(step) or 0 < self._temporary_seconds <= now - self._last

  def saved(self, now: float) -> None:
    """Records that a save has started, which restarts the time to the next temporary one."""
    self._last = now


@dataclasses.dataclass
class _Preservation(policies.PreservationPolicy):
  """Keeps the newest checkpoint, the newest `keep` permanent ones, and those at multiples of `keep_every`."""

  keep: int
  keep_every: int
  temporary: set[int]

  def should_preserve(self, checkpoints: Sequence, *, context) -> list[bool]:
    """Implements Orbax's `PreservationPolicy`."""
    permanent = [checkpoint for checkpoint in checkpoints if checkpoint.step not in self.temporary]
    rules = [policies.LatestN(self.keep)] + ([policies.EveryNSteps(self.keep_every)] if self.keep_every else [])
    is_kept = policies.AnyPreservationPolicy(rules).should_preserve(permanent, context=context)
    kept = {checkpoint.step for checkpoint, keep in zip(permanent, is_kept, strict=True) if keep}
    return [checkpoint.step in kept or checkpoint is checkpoints[-1] for checkpoint in checkpoints]


class Checkpoints:
  """The checkpoints of one workdir: items `state`, `data` and `meta` per step.

  A save copies the state off the device at once, and threads write it. Orbax writes to a temporary directory and
  renames it, so if the process is killed meanwhile, the previous checkpoint stays the latest. Older checkpoints are
  deleted only after that, but not the newest `keep` permanent ones and those at multiples of `keep_every` steps (0:
  none). `say` gets a line about each corrupt checkpoint. All processes must call every method.
  """

  def __init__(
    self, directory: epath.PathLike, *, keep: int = 3, keep_every: int = 0, say: Callable[[str], None] = print
  ):
    self.directory = absolute(directory)
    self._say = say
    silence_orbax()
    self._temporary: set[int] = set()
    options = ocp.CheckpointManagerOptions(
      preservation_policy=_Preservation(keep, keep_every, self._temporary),
      enable_async_checkpointing=True,
      cleanup_tmp_directories=True,
      # Created here: if Orbax fails to create it in the background, its threads, and with them the process, hang for
      # five minutes.
      async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
    )
    self._manager = ocp.CheckpointManager(self.directory, options=options)
    self._temporary |= {step for step in self._manager.all_steps() if self._is_temporary(step)}

  # --- listing ---------------------------------------------------------------

  def latest_step(self) -> int | None:
    """Step of the newest checkpoint, corrupt or not, or None."""
    return self._manager.latest_step()

  def newest(self) -> Description | None:
    """Description of the newest checkpoint, or None if there never was one; quarantines corrupt ones.

    RunError if there were checkpoints, but none is valid, or if they cannot be reached.
    """
    return self._first_whole(lambda step: describe(self.directory / str(step)), lambda found: '')

  def newest_whole(self, altered_arrays: Callable[[epath.Path], list[str]]) -> Description | None:
    """As `newest`, but also verifies checksums of arrays, with `rembert.checkpoint.load.altered_arrays`."""

    def read(step: int) -> tuple[Description, str]:
      folder = self.directory / str(step)
      return describe(folder), integrity.format_altered(altered_arrays(folder))

    found = self._first_whole(read, lambda found: found[1])
    return found and found[0]

  def _first_whole(self, read: Callable[[int], Read], check: Callable[[Read], str]) -> Read | None:
    corrupt = []
    while (step := self.latest_step()) is not None:
      try:
        return self._agreed(step, read, check)
      except Corrupt as error:
        corrupt.append(f'{step} ({error})')
        self._quarantine(step, str(error))
    try:
      left = sorted(path.name for path in self.directory.iterdir() if path.name.startswith(_DAMAGED))
    except FileNotFoundError:  # buckets have no empty directories
      left = []
    if left:  # never start from scratch silently, not even when the command is run again
      raise RunError(
        'there is no valid checkpoint',
        where=f'{self.directory}: ' + ', '.join(corrupt or left),
        fix=[
          f'repair one of {", ".join(left)} and rename it back to its step',
          'or start a new run in another directory: --workdir=DIR',
        ],
      )
    return None

  def _agreed(self, step: int, read: Callable[[int], Read], check: Callable[[Read], str]) -> Read:
    """Reads a checkpoint; raises `Corrupt` on all hosts if it is corrupt for one of them.

    Hosts read independently and exchange the outcome; then all call `check`, which returns what is wrong. Both are
    tried twice, since a transient storage error is not corruption.
    """
    for _ in range(2):
      error: Exception | None = None
      try:
        found = read(step)
      except Exception as caught:
        error = caught
      verdict = _of_all_processes(_severity(error))
      if error is not None:
        reason = integrity.in_one_line(error)
      elif verdict:
        reason = 'as reported by another process'
      elif not (reason := check(found)):
        return found
      if verdict == _MISUSED:
        break
    if verdict == _MISUSED and isinstance(error, UsageError):
      raise error
    if verdict >= _UNREACHABLE:
      raise RunError(
        f'checkpoint {step} cannot be read: {reason}',
        where=str(self.directory),
        fix='restore access to the storage, then run the command again',
      )
    raise Corrupt(reason)

  def _quarantine(self, step: int, reason: str) -> None:
    names = (f'{_DAMAGED}{step}', *(f'{_DAMAGED}{step}-{number}' for number in range(2, 1000)))
    name = next(name for name in names if not (self.directory / name).exists())
    _of_all_processes(0)  # all processes have chosen the same name
    if jax.process_index() == 0:
      with write_errors(
        'the quarantined checkpoint', self.directory, fix='restore access to the storage, then run the command again'
      ):
        (self.directory / str(step)).rename(self.directory / name)
    _of_all_processes(0)
    self._manager.reload()
    before = self.latest_step()
    instead = 'there is no earlier one' if before is None else f'falling back to {before}'
    self._say(f'warning: checkpoint {step} is corrupt: {reason}; renamed to {self.directory.name}/{name}; {instead}')

  def _is_temporary(self, step: int) -> bool:
    with contextlib.suppress(Exception):  # corrupt: reported when restored, not here
      return describe(self.directory / str(step)).is_temporary
    return False

  # --- restoring -------------------------------------------------------------

  def restore_newest(self, target: TrainState) -> Restored | None:
    """Restores the newest valid checkpoint with the shapes, dtypes and shardings of `target`, from any mesh.

    Corrupt ones are renamed, with a warning, and the previous one is restored.

    Raises:
      RunError: there were checkpoints, but none is valid; or they cannot be reached.
      UsageError: the checkpoint has the state of another model or optimizer.
    """
    if (found := self._first_whole(lambda step: self._read(step, target), _what_differs)) is None:
      return None
    description, state = found
    cast = lambda leaf, wanted: leaf if leaf.dtype == wanted.dtype else leaf.astype(wanted.dtype)
    return Restored(**vars(description), state=TrainState(**jax.tree.map(cast, state, _fields(target))))

  def _read(self, step: int, target: TrainState) -> tuple[Description, dict]:
    """Reads the state with the dtypes that it was saved in, of whose bits the checksums are."""
    folder, fields = self.directory / str(step), _fields(target)
    description = describe(folder)
    arrays = description.arrays
    if arrays is not None:
      integrity.refuse_other_state(arrays, integrity.shapes(fields), folder)
    dtype_of = lambda path, leaf: leaf.dtype if arrays is None else np.dtype(arrays[integrity.leaf_path(path)][0])
    as_saved = jax.tree_util.tree_map_with_path(
      lambda path, leaf: jax.ShapeDtypeStruct(leaf.shape, dtype_of(path, leaf), sharding=leaf.sharding), fields
    )
    # Not with the manager, which ends with a barrier that a host with a corrupt file would never reach.
    handler = ocp.StandardCheckpointHandler()
    state = handler.restore(folder / 'state', args=ocp.args.StandardRestore(as_saved))
    handler.close()
    return description, state

  # --- saving ----------------------------------------------------------------

  def save(self, step: int, state: TrainState, data: dict, meta: dict, *, is_temporary: bool = False) -> None:
    """Starts a save; waits only for a previous one that is still being written, with RunError if that failed."""
    fields = _fields(state)
    narrow = [name for name, (dtype, _) in integrity.shapes(fields['params']).items() if dtype != 'float32']
    if narrow:
      raise TypeError(f'master weights must be float32; {narrow[0]} is not')
    (self._temporary.add if is_temporary else self._temporary.discard)(step)
    with write_errors('a checkpoint', self.directory, fix=_FIX):
      self._manager.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(fields),
          data=ocp.args.JsonSave(data),
          meta=ocp.args.JsonSave(integrity.with_description(meta, fields, data=data, is_temporary=is_temporary)),
        ),
        force=True,
      )

  def is_saving(self) -> bool:
    """Whether the last save is still being written."""
    return self._manager.is_saving_in_progress()

  def wait(self) -> None:
    """Returns when everything is on disk; RunError if it could not be written."""
    with write_errors('a checkpoint', self.directory, fix=_FIX):
      self._manager.wait_until_finished()

  def close(self) -> None:
    """Waits, then ends the threads."""
    with contextlib.closing(self._manager):
      self.wait()


def _what_differs(found: tuple[Description, dict]) -> str:
  """Message about arrays that differ from their checksums; a collective: all processes get the same."""
  description, state = found
  if description.arrays is None:
    return ''
  sums = integrity.tree_checksums(state)
  return integrity.format_altered([name for name, number in sums.items() if description.arrays[name][2] != number])


def _fields(state: TrainState) -> dict:
  """The state as a plain dict, so that a checkpoint can be read without this project."""
  return {name: value for name, value in vars(state).items() if value is not None}


_WELL, _CORRUPT, _UNREACHABLE, _MISUSED = range(4)


def _severity(error: Exception | None) -> int:
  if error is None:
    return _WELL
  if isinstance(error, UsageError):
    return _MISUSED
  return _CORRUPT if integrity.is_corruption(error) else _UNREACHABLE


def _of_all_processes(verdict: int) -> int:
  """The worst verdict of all processes; a barrier."""
  if jax.process_count() == 1:
    return verdict
  return int(np.max(multihost_utils.process_allgather(np.int32(verdict))))


# If reading or writing one array fails, all others in progress log an exception that is never retrieved.
_REPEATED = ('Event loop is closed', 'Encountered error while reading array index')


def silence_orbax() -> None:
  """Silences logs of Orbax and TensorStore, which report every file, and repeat an error for each array."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).setLevel(logging.CRITICAL)
  sys.unraisablehook = lambda unraisable: (
    None if str(unraisable.exc_value).startswith(_REPEATED) else sys.__unraisablehook__(unraisable)
  )
