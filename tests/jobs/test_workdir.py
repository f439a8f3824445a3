"""One process at a time on a workdir, and no lock that outlives its owner."""

import contextlib
import json
import subprocess
import sys
import time

import pytest
from etils import epath

from rembert.errors import UsageError
from rembert.jobs import workdir
from rembert.jobs.workdir import locked

HOLD = """
import sys, time
from etils import epath
from rembert.jobs.workdir import locked
with locked(epath.Path(sys.argv[1]), print):
  print('held', flush=True)
  time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
  """Another process that holds `tmp_path`."""
  process = subprocess.Popen([sys.executable, '-c', HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
  assert process.stdout.readline() == 'held\n'
  yield process
  process.kill()
  process.wait()


def test_a_second_process_is_refused_and_told_who_the_first_is(holder, tmp_path):
  refused = pytest.raises(UsageError, match=f'the workdir is locked by process {holder.pid} on')
  with refused as error, locked(epath.Path(tmp_path), print):
    pass
  assert '--workdir' in error.value.fix[1]


def test_a_killed_owner_leaves_nothing_behind(holder, tmp_path):
  holder.kill()
  holder.wait()
  with locked(epath.Path(tmp_path), print):
    pass


def test_it_can_be_held_again_after_it_was_let_go(tmp_path):
  for _ in range(2):
    with locked(epath.Path(tmp_path), print):
      assert json.loads((tmp_path / '.lock').read_text())['process']


# --- in a bucket: a claim that is renewed ---------------------------------------------------------


@pytest.fixture
def bucket(tmp_path, monkeypatch):
  """A folder that passes for a bucket, and a clock that runs a hundred times as fast."""
  monkeypatch.setattr(workdir, 'is_remote', lambda path: True)
  monkeypatch.setattr(workdir, '_RENEW_SECONDS', 0.2)
  monkeypatch.setattr(workdir, '_EXPIRE_SECONDS', 0.9)
  return epath.Path(tmp_path)


def claim(bucket, **changes):
  (bucket / '.lock').write_text(json.dumps({'host': 'beta', 'process': 7, 'time': time.time()} | changes))


def test_an_owner_that_renews_its_claim_is_respected(bucket):
  claim(bucket)
  said = []

  def say(text):
    said.append(text)
    claim(bucket, time=time.time() + 0.1)  # it is alive

  with pytest.raises(UsageError, match='locked by process 7 on beta'), locked(bucket, say):
    pass
  assert 'beta held' in said[0]


def test_a_claim_that_is_not_renewed_expires_and_is_taken(bucket):
  claim(bucket)
  start = time.monotonic()
  with locked(bucket, lambda _: None):
    assert json.loads((bucket / '.lock').read_text())['host'] != 'beta'
  assert time.monotonic() - start > 0.5


def test_an_old_claim_a_broken_one_and_none_are_not_waited_for(bucket):
  for text in (json.dumps({'host': 'beta', 'process': 7, 'time': 0}), '{', None):
    (bucket / '.lock').write_text(text) if text else (bucket / '.lock').unlink(missing_ok=True)
    said = []
    with locked(bucket, said.append):
      assert not said


def test_it_is_renewed_while_it_is_held_and_gone_afterwards(bucket):
  def held_since():
    """The time of the claim. A file, unlike an object in a bucket, can be read while it is half written."""
    while True:
      with contextlib.suppress(ValueError):
        return json.loads((bucket / '.lock').read_text())['time']

  with locked(bucket, lambda _: None):
    first = held_since()
    while held_since() == first:
      time.sleep(0.05)
  assert not (bucket / '.lock').exists()
