"""Files of XTREME's layout, written by hand and read as tasks read them."""

import pytest
from etils import epath

from tasks.xtreme.files import XtremeFolder


@pytest.fixture
def write(tmp_path):
  """Function (name, content) → the file below `tmp_path`."""

  def written(name: str, content: bytes | str) -> epath.Path:
    path = epath.Path(tmp_path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path

  return written


@pytest.fixture
def read(tmp_path):
  """Function (task, split, language='de', needs_labels=True) → its examples in `tmp_path`."""
  return lambda task, split, language='de', *, needs_labels=True: task.examples(
    XtremeFolder(tmp_path), split, language, needs_labels=needs_labels
  )
