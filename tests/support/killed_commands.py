"""Commands that are killed in the middle, and run again."""

import pathlib
import signal
import subprocess
from collections.abc import Sequence

from made_up_dumps import files_of
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


def assert_killed_command_resumes(
  command: Sequence[str], output: pathlib.Path, *, parts: str, marker: str, expected: pathlib.Path
) -> None:
  """Kills a command after its first part of three, and runs it again, which leaves that part as it is.

  Args:
    command: writes `output`.
    output: does not exist yet.
    parts: pattern of the files in it that say that a part is done.
    marker: the file that says that all of it is done.
    expected: a directory with the final files.
  """
  process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  wait_for(lambda: list(output.glob(parts)), process, seconds=300)
  process.send_signal(signal.SIGKILL)
  process.wait()
  assert not (output / marker).exists()
  done = {path: path.stat().st_mtime_ns for path in output.glob(parts)}
  assert 0 < len(done) < 3
  subprocess.run(command, cwd=ROOT, check=True, timeout=300, capture_output=True)
  assert files_of(output) == files_of(expected)
  assert {path: path.stat().st_mtime_ns for path in done} == done
