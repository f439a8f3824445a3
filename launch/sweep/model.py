"""What a sweep trains; by itself, for the command line has to answer before JAX is there."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Model:
  """A configuration that is pre-trained once for every seed.

  Attributes:
    name: of its folders and in tables; unlike all others'.
    rows: of the paper's tables that it stands for: table and row.
    gin_files: how it is pre-trained.
    bindings: that go after them, `NAME=VALUE`.
    settings: what the grid has bound.
    kept_layers: how many layers fine-tuning keeps, from the bottom; None for all.
  """

  name: str
  rows: tuple[tuple[int, str], ...]
  gin_files: tuple[str, ...]
  bindings: tuple[str, ...]
  settings: Mapping[str, str]
  kept_layers: int | None
