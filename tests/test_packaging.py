"""What is installed: everything that a run needs, found from any folder."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from rembert import __version__ as VERSION

ROOT = pathlib.Path(__file__).parent.parent


def test_gin_is_not_a_package_that_would_hide_gin_config():
  assert not (ROOT / 'gin' / '__init__.py').exists()


def test_the_lock_holds_one_seqio_and_no_nightlies():
  names = [line.split('==')[0] for line in (ROOT / 'requirements.txt').read_text().splitlines() if '==' in line]
  assert names.count('seqio') == 1
  assert not [name for name in names if 'nightly' in name]
  assert not re.search(r'https?://|index-url', (ROOT / 'requirements.txt').read_text())


@pytest.fixture(scope='module')
def installed(tmp_path_factory) -> pathlib.Path:
  """A folder that the project has been installed into, as pip does it."""
  target = tmp_path_factory.mktemp('site')
  pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--target', str(target), str(ROOT)]
  subprocess.run(pip, check=True, timeout=300)
  return target


def run(installed, folder, *arguments):
  return subprocess.run(
    [sys.executable, '-m', 'rembert.main', *arguments],
    cwd=folder,
    env=os.environ | {'PYTHONPATH': str(installed), 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.mark.slow
def test_an_installed_copy_runs_from_another_folder(installed, tmp_path):
  flags = ['--gin.train.steps=3', '--gin.train.eval_every=0', '--gin.train.log_every=1']
  result = run(installed, tmp_path, '--gin_file=gin/pretrain_smoke.gin', '--workdir=run', *flags)
  assert result.returncode == 0, result.stderr
  assert 'step 3/3' in result.stdout
  assert (tmp_path / 'run' / 'checkpoints' / '3').is_dir()


@pytest.mark.slow
def test_an_installed_copy_carries_every_gin_file_and_finds_their_includes(installed, tmp_path):
  names = {str(path.relative_to(ROOT)) for path in ROOT.glob('gin/**/*.gin')}
  assert names <= {str(path.relative_to(installed / 'rembert' / 'gin_files')) for path in installed.rglob('*.gin')}
  result = run(installed, tmp_path, '--gin_file=gin/pretrain_large.gin', '--dry_run')
  assert result.returncode == 0, result.stderr
  assert '994,591,804' in result.stdout


def test_the_version_stands_in_one_place():
  assert re.fullmatch(r'\d+\.\d+\.\d+', VERSION)
  assert VERSION not in (ROOT / 'setup.py').read_text()


@pytest.fixture(scope='module')
def distributions(tmp_path_factory) -> dict[str, pathlib.Path]:
  """A wheel of the project, and one made from its sdist alone."""
  folder = tmp_path_factory.mktemp('dist')
  source = folder / 'source'
  left_out = shutil.ignore_patterns('.*', 'runs', 'build', '*.egg-info', '__pycache__')
  shutil.copytree(ROOT, source, ignore=left_out)  # building leaves folders behind
  build_sdist = f'from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})'
  pip = [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps']
  subprocess.run([*pip, '--wheel-dir', str(folder / 'wheel'), str(source)], check=True, timeout=300)
  subprocess.run([sys.executable, '-c', build_sdist], cwd=source, check=True, timeout=300, stdout=subprocess.DEVNULL)
  [sdist] = folder.glob('*.tar.gz')
  subprocess.run([*pip, '--wheel-dir', str(folder / 'from_sdist'), str(sdist)], check=True, timeout=300)
  return {name: next((folder / name).glob('*.whl')) for name in ('wheel', 'from_sdist')}


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_same(distributions):
  assert distributions['wheel'].name == f'rembert-{VERSION}-py3-none-any.whl'
  contents = [sorted(zipfile.ZipFile(file).namelist()) for file in distributions.values()]
  assert contents[0] == contents[1]
  assert not [name for name in contents[0] if name.startswith(('tests/', 'benchmarks/', 'docs/', 'examples/', 'gin/'))]
  tables = {str(path.relative_to(ROOT)) for path in (ROOT / 'tasks').rglob('*.json')}
  assert tables <= set(contents[0])


@pytest.mark.slow
@pytest.mark.parametrize('python', ['3.11', '3.12'])
@pytest.mark.parametrize('kind', ['wheel', 'from_sdist'])
def test_it_installs_into_an_empty_environment(distributions, kind, python, tmp_path):
  program = shutil.which(f'python{python}')
  if not program or subprocess.run([program, '-c', 'import venv, ensurepip'], capture_output=True).returncode:
    pytest.skip(f'no Python {python} here')
  subprocess.run([program, '-m', 'venv', tmp_path / 'venv'], check=True, timeout=300)
  installed = tmp_path / 'venv' / 'bin' / 'python'
  pip = [installed, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index', distributions[kind]]
  subprocess.run(pip, check=True, timeout=300)
  code = (
    'import importlib.metadata, rembert\n'
    'assert importlib.metadata.version("rembert") == rembert.__version__\n'
    'print(rembert.__version__, rembert.__file__)'
  )
  environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
  run = lambda *arguments: subprocess.run(
    [installed, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
  )
  assert run('-c', code).stdout.startswith(f'{VERSION} {tmp_path}')
  assert 'examples' in run('-m', 'rembert.main', '--help').stdout  # with nothing else installed


def test_the_compiler_of_tpus_is_the_one_that_jax_asks_for():
  [pinned] = [line for line in (ROOT / 'tests/tpu/requirements.txt').read_text().splitlines() if line[0] != '#']
  [wanted] = [line for line in importlib.metadata.requires('jax') if line.startswith('libtpu')]
  version = re.fullmatch(r'libtpu==([\d.]+)\.\*; extra == "tpu"', wanted)[1]
  assert re.fullmatch(rf'libtpu=={re.escape(version)}\.\d+', pinned)
