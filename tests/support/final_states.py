"""What a run has come to, to be compared with another."""

import pathlib

import jax
import numpy as np
import orbax.checkpoint as ocp


def final_state(workdir: pathlib.Path, step: int) -> dict:
  """The state in a checkpoint, as NumPy arrays, whatever mesh it was saved on."""
  folder, reader = workdir / 'checkpoints' / str(step) / 'state', ocp.PyTreeCheckpointer()
  as_numpy = jax.tree.map(
    lambda _: ocp.RestoreArgs(restore_type=np.ndarray), reader.metadata(folder).item_metadata.tree
  )
  return reader.restore(folder, args=ocp.args.PyTreeRestore(restore_args=as_numpy))


def assert_bitwise_equal(left: dict, right: dict) -> None:
  """Every array of two states."""
  jax.tree.map(np.testing.assert_array_equal, left, right)


def assert_same_run(run, reference, step: int) -> None:
  """Two runs of `rembert.main` logged the same, and are in the same state after `step` updates."""
  assert run.metrics() == reference.metrics()
  assert_bitwise_equal(final_state(run.workdir, step), final_state(reference.workdir, step))
