"""What a run has come to, to be compared with another."""

import pathlib

import jax
import numpy as np
import orbax.checkpoint as ocp


def final_state(workdir: pathlib.Path, step: int) -> dict:
  """The state in a checkpoint, as NumPy arrays."""
  with ocp.CheckpointManager(workdir / 'checkpoints') as manager:
    return jax.tree.map(
      np.asarray, manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore())).state
    )


def assert_bitwise_equal(left: dict, right: dict) -> None:
  """Every array of two states."""
  jax.tree.map(np.testing.assert_array_equal, left, right)
