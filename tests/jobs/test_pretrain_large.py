"""The large configuration on a machine that is anything but: by its own head comment, and without a network."""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
import sentencepiece

ROOT = pathlib.Path(__file__).parent.parent.parent
GIN_FILE = 'gin/pretrain_large.gin'
SAMPLE = ROOT / 'tasks' / 'wikipedia' / 'sample'


def documented_bindings() -> dict[str, str]:
  """The overrides of the head comment's command for a CPU, by name."""
  head = (ROOT / GIN_FILE).read_text().split('\nrun.mode')[0]
  comment = re.sub(r'^#', '', head, flags=re.MULTILINE).replace('\\\n', ' ')
  [command] = [line for line in comment.splitlines() if 'data.source=dumps' in line and GIN_FILE in line]
  flags = [word for word in shlex.split(command) if word.startswith('--gin.')]
  return dict(flag.removeprefix('--gin.').split('=', 1) for flag in flags)


def run(workdir, *prefix, timeout=300, **bindings):
  flags = [f'--gin.{name}={value}' for name, value in bindings.items()]
  return subprocess.run(
    [*prefix, sys.executable, '-m', 'rembert.main', f'--gin_file={GIN_FILE}', f'--workdir={workdir}', *flags],
    cwd=ROOT,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': '1'},
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )


def without_network() -> list[str]:
  """What to put before a command so that it finds no network; the test is skipped where that takes rights."""
  try:
    socket.getaddrinfo('storage.googleapis.com', 443)
  except OSError:
    return []
  prefix = ['unshare', '--map-root-user', '--net']
  if shutil.which('unshare') is None or subprocess.run([*prefix, 'true'], capture_output=True, check=False).returncode:
    pytest.skip('there is a network, and it cannot be taken away here')
  return prefix


def test_the_head_comment_shrinks_the_model_and_reads_local_dumps():
  bindings = documented_bindings()
  assert bindings['data.dumps'] == '/path/to/dumps'
  assert bindings['vocabulary.path'] == 'None'
  assert int(bindings['RemBertConfig.hidden_size']) < 1152
  assert int(bindings['RemBertConfig.vocab_size']) < 250_300


@pytest.mark.slow
def test_the_command_of_the_head_comment_trains_on_local_dumps_to_a_checkpoint(tmp_path):
  bindings = documented_bindings() | {'data.dumps': str(SAMPLE), 'train.steps': '3', 'train.log_every': '1'}
  result = run(tmp_path / 'run', **bindings)
  assert result.returncode == 0, result.stderr
  assert (tmp_path / 'run' / 'checkpoints' / '3').is_dir()
  rows = [json.loads(line) for line in (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()]
  assert [row['step'] for row in rows if 'loss' in row] == [1, 2, 3]
  vocabulary = str(tmp_path / 'run' / 'vocabulary' / 'sentencepiece.model')
  size = sentencepiece.SentencePieceProcessor(model_file=vocabulary).get_piece_size()
  assert size == int(bindings['RemBertConfig.vocab_size'])
  effective = (tmp_path / 'run' / 'operative_config.gin').read_text()
  assert "execution.remat = 'full'" in effective
  assert 'mesh.fsdp = -1' in effective


@pytest.mark.slow  # TensorFlow in a process of its own; test_pretrain_data has the error
def test_without_a_network_the_file_alone_says_what_is_missing_and_what_to_use_instead(tmp_path):
  result = run(tmp_path / 'run', *without_network(), timeout=120)
  assert result.returncode == 2, result.stdout
  error = result.stderr
  assert 'the vocabulary cannot be read' in error
  assert 'gs://gresearch/rembert/sentencepiece.model' in error
  assert re.search(r'TensorFlow Datasets cannot read wikipedia/20230601\.af and \d+ more', error)
  assert '--gin.vocabulary.path=None' in error
  assert '--gin.data.source=dumps --gin.data.dumps=FOLDER' in error
  assert 'Traceback' not in error
  assert not list((tmp_path / 'run' / 'checkpoints').iterdir())
