"""What is installed: everything that a run needs, found from any folder."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def test_gin_is_not_a_package_that_would_hide_gin_config():
  assert not (ROOT / 'gin' / '__init__.py').exists()


def test_the_lock_holds_one_seqio_and_no_nightlies():
  names = [line.split('==')[0] for line in (ROOT / 'requirements.txt').read_text().splitlines() if '==' in line]
  assert names.count('seqio') == 1
  assert not [name for name in names if 'nightly' in name]
  assert not re.search(r'https?://|index-url', (ROOT / 'requirements.txt').read_text())


@pytest.mark.slow
def test_an_installed_copy_runs_from_another_folder(tmp_path):
  target, elsewhere = tmp_path / 'site', tmp_path / 'elsewhere'
  elsewhere.mkdir()
  pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--target', str(target), str(ROOT)]
  subprocess.run(pip, check=True, timeout=300)
  command = ['-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin', '--workdir=run', '--gin.train.steps=3']
  result = subprocess.run(
    [sys.executable, *command, '--gin.train.eval_every=0', '--gin.train.log_every=1'],
    cwd=elsewhere,
    env=os.environ | {'PYTHONPATH': str(target), 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert 'step 3/3' in result.stdout
  assert (elsewhere / 'run' / 'checkpoints' / '3').is_dir()
