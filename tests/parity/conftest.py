"""The table of figures at the end of a comparison with Hugging Face."""

import pytest


class Figures:
  """Also a pytest plugin, for the sake of the table at the end: every comparison enters its worst tensor."""

  def __init__(self):
    self.worst: dict[tuple[str, str], tuple[float, str]] = {}

  def enter(self, case: str, quantity: str, by_tensor: dict[str, float]) -> None:
    """Figures of one quantity of one case."""
    tensor = max(by_tensor, key=by_tensor.get)
    self.worst[case, quantity] = by_tensor[tensor], tensor

  def pytest_terminal_summary(self, terminalreporter):
    """Shows what was entered."""
    if self.worst:
      terminalreporter.section('largest |difference| / largest |reference|, Hugging Face in float32')
    for (case, quantity), (figure, tensor) in self.worst.items():
      terminalreporter.write_line(f'{case:34}{quantity:18}{figure:9.1e}  {tensor}'.rstrip())


@pytest.fixture(scope='session')
def figures(pytestconfig):
  """The table."""
  figures = Figures()
  pytestconfig.pluginmanager.register(figures)
  return figures
