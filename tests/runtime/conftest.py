"""Real processes, joined as hosts are."""

import subprocess
import sys

import pytest

from launch.local_cluster import environments, free_port


class Cluster:
  """The same Python text in several processes of one or more CPU devices each."""

  def __init__(self, folder, text: str, processes: int, devices: int = 1):
    self.logs = [folder / f'host-{index}.log' for index in range(processes)]
    self.processes = []
    for log, environment in zip(self.logs, environments(processes, devices, free_port()), strict=True):
      with open(log, 'w') as file:
        command = [sys.executable, '-c', text]
        self.processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))

  def said(self, index: int) -> str:
    """What a process has printed so far."""
    return self.logs[index].read_text()

  def wait(self, seconds: float = 120) -> list[int]:
    """All exit codes."""
    return [process.wait(timeout=seconds) for process in self.processes]

  def kill(self) -> None:
    """Whatever is left."""
    for process in self.processes:
      process.kill()
      process.wait()


@pytest.fixture
def cluster(tmp_path):
  """Starts a `Cluster`; none of it outlives the test."""
  started = []

  def start(text: str, processes: int, devices: int = 1) -> Cluster:
    started.append(Cluster(tmp_path, text, processes, devices))
    return started[-1]

  yield start
  for one in started:
    one.kill()
