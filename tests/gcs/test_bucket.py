"""A run whose workdir is in a bucket, killed and resumed, against an emulator of Google Cloud Storage on this machine.

TensorFlow's client knows one address only, Google's: `EPATH_USE_TF=0` sends etils.epath to gcsfs instead. TensorStore,
which writes the arrays, and gcsfs get the emulator's address by the environment.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

pytestmark = pytest.mark.gcs
ROOT = pathlib.Path(__file__).parent.parent.parent
BUCKET = 'bucket'
SETTINGS = {
  'data.source': 'store',
  'RemBertConfig.vocab_size': 1500,
  'RemBertConfig.num_hidden_layers': 2,
  'RemBertConfig.hidden_size': 32,
  'RemBertConfig.input_embedding_size': 16,
  'RemBertConfig.output_embedding_size': 48,
  'RemBertConfig.intermediate_size': 64,
  'data.languages': None,
  'train.steps': 400,
  'train.batch_size': 4,
  'train.sequence_length': 64,
  'train.log_every': 50,
  'train.eval_every': 0,
  'train.checkpoint_every': 100,
  'train.keep_checkpoints': 2,
  'train.temporary_checkpoint_minutes': 0.1,
  'optimizer.warmup_steps': 20,
}


class Emulator:
  """The server, what its clients get, and what is in the bucket."""

  def __init__(self, url: str):
    self.url = url
    self.environment = {
      'EPATH_USE_TF': '0',
      'TENSORSTORE_GCS_HTTP_URL': url,
      'STORAGE_EMULATOR_HOST': url,
      'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'none',
      'GOOGLE_CLOUD_PROJECT': 'test',
      'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
      'NO_PROXY': '127.0.0.1',
    }

  def names(self, prefix: str) -> list[str]:
    """Objects whose names begin so."""
    query = urllib.parse.urlencode({'prefix': prefix})
    with urllib.request.urlopen(f'{self.url}/storage/v1/b/{BUCKET}/o?{query}') as answer:
      return [item['name'] for item in json.load(answer).get('items', [])]

  def read(self, name: str) -> str:
    """An object."""
    quoted = urllib.parse.quote(name, safe='')
    with urllib.request.urlopen(f'{self.url}/storage/v1/b/{BUCKET}/o/{quoted}?alt=media') as answer:
      return answer.read().decode()


@pytest.fixture(scope='module')
def emulator():
  """Runs as long as the tests of this file."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  command = [sys.executable, str(pathlib.Path(__file__).parent / 'emulator.py'), str(port), BUCKET]
  server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  try:
    for _ in range(300):
      assert server.poll() is None, 'the emulator ended: pip install -r tests/gcs/requirements.txt'
      with socket.socket() as probe:
        if probe.connect_ex(('127.0.0.1', port)) == 0:
          break
      time.sleep(0.1)
    yield Emulator(f'http://127.0.0.1:{port}')
  finally:
    server.terminate()
    server.wait()


@pytest.fixture
def program(emulator, small_store, tmp_path):
  """Starts the program on a workdir; its output goes to the file that comes with the process."""

  def start(workdir, **bindings):
    values = SETTINGS | {'data.store': f"'{small_store.folder}'"} | bindings
    command = [sys.executable, '-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin', f'--workdir={workdir}']
    command += [f'--gin.{name}={value}' for name, value in values.items()]
    environment = os.environ | {'JAX_PLATFORMS': 'cpu'} | emulator.environment
    log = tmp_path / 'log'
    with open(log, 'wb') as file:
      return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file), log

  return start


def rows(text):
  clocked = ('step_seconds', 'tokens_per_second', 'data_wait_share', 'mfu')
  return [
    {name: value for name, value in json.loads(line).items() if name not in clocked} for line in text.splitlines()
  ]


def test_a_run_in_a_bucket_survives_a_kill_and_a_damaged_checkpoint_and_ends_as_one_on_a_disk(
  emulator, program, tmp_path
):
  process, log = program(f'gs://{BUCKET}/run')
  deadline = time.monotonic() + 300
  # Items are marked as whole too, one level below.
  while not any(re.fullmatch(r'run/checkpoints/\d+/commit_success.txt', name) for name in emulator.names('run/')):
    assert process.poll() is None, log.read_text()
    assert time.monotonic() < deadline, log.read_text()
    time.sleep(0.02)
  process.send_signal(signal.SIGKILL)
  process.wait()

  process, log = program(f'gs://{BUCKET}/run')
  assert process.wait(timeout=600) == 0, log.read_text()
  assert 'resuming from step' in log.read_text()
  kept = {int(name.split('/')[2]) for name in emulator.names('run/checkpoints/')}
  assert kept == {300, 400}

  process, log = program(tmp_path / 'run')
  assert process.wait(timeout=600) == 0, log.read_text()
  assert rows(emulator.read('run/metrics.jsonl')) == rows((tmp_path / 'run' / 'metrics.jsonl').read_text())
  meta = 'checkpoints/400/meta/metadata'
  in_bucket, on_disk = json.loads(emulator.read(f'run/{meta}')), json.loads((tmp_path / 'run' / meta).read_text())
  assert in_bucket['checkpoint']['arrays'] == on_disk['checkpoint']['arrays']  # dtypes, shapes, checksums
  assert {'run/config.gin', 'run/operative_config.gin', 'run/loss.png'} <= set(emulator.names('run/'))

  # A damaged checkpoint is renamed, and the run resumes from the one before.
  [meta] = [name for name in emulator.names('run/checkpoints/400/meta/') if name.endswith('metadata')]
  quoted = urllib.parse.quote(meta, safe='')
  request = urllib.request.Request(f'{emulator.url}/storage/v1/b/{BUCKET}/o/{quoted}', method='DELETE')
  urllib.request.urlopen(request).close()
  process, log = program(f'gs://{BUCKET}/run')
  assert process.wait(timeout=600) == 0, log.read_text()
  assert 'checkpoint 400 is corrupt: the item `meta` is missing' in log.read_text()
  assert 'resuming from step 300' in log.read_text()
  assert emulator.names('run/checkpoints/damaged-400/')
  assert emulator.names('run/checkpoints/400/commit_success')
