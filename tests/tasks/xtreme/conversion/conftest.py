"""Published archives, changed at will, and what becomes of them."""

import pytest
import xtreme_archives

from tasks.xtreme.conversion import CONVERSIONS


@pytest.fixture
def convert(tmp_path):
  """Function (task, **archives that are otherwise) → {path: content}."""

  def run(task: str, changed: dict[str, bytes] | None = None) -> dict[str, str]:
    archives = {}
    for name, content in (xtreme_archives.published(task) | (changed or {})).items():
      archives[name] = tmp_path / name
      archives[name].write_bytes(content)
    files = list(CONVERSIONS[task](archives))
    assert len({file.path for file in files}) == len(files)
    return {file.path: file.content for file in files}

  return run
