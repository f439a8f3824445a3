"""What the tests of launchers share: a mock gcloud, and a small project to send to its machines."""

import functools
import pathlib
import shutil
import subprocess

import pytest
from gcloud_stand_in import GcloudStandIn

from launch import tpu_vm

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='session')
def small_project(tmp_path_factory):
  """The part of the project that `launch.supervise` needs."""
  folder = tmp_path_factory.mktemp('project')
  for part in ('launch', 'rembert'):
    shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns('__pycache__'))
  (folder / 'requirements.txt').write_text('jax==0\n')
  for command in (['init', '--quiet'], ['add', '.']):
    subprocess.run(['git', *command], cwd=folder, check=True)
  return folder


@pytest.fixture
def gcloud(tmp_path, monkeypatch, small_project):
  """Stands in for gcloud, with two workers."""
  monkeypatch.setattr(tpu_vm, 'ARCHIVE', tmp_path / 'rembert_code.tar.gz')
  monkeypatch.setattr(tpu_vm, 'write_archive', functools.partial(tpu_vm.write_archive, root=small_project))
  monkeypatch.chdir(ROOT)
  stand_in = GcloudStandIn.install(tmp_path / 'gcloud', monkeypatch)
  yield stand_in
  stand_in.take_away()
