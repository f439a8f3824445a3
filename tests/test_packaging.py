"""What is installed: everything that a run needs, found from any folder."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from packaging.requirements import Requirement
from parsed_commands import PROGRAMS

from rembert import __version__ as VERSION

ROOT = pathlib.Path(__file__).parent.parent
LOCK = (ROOT / 'requirements.txt').read_text()
PYTHONS = re.findall(r"'(3\.\d+)'", re.search(r'classifiers=.*', (ROOT / 'setup.py').read_text())[0])
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'} | {'JAX_PLATFORMS': 'cpu'}


def test_gin_is_not_a_package_that_would_hide_gin_config():
  assert not (ROOT / 'gin' / '__init__.py').exists()


def test_the_lock_holds_one_seqio_and_no_nightlies():
  names = [line.split('==')[0] for line in LOCK.splitlines() if '==' in line]
  assert names.count('seqio') == 1
  assert not [name for name in names if 'nightly' in name]
  assert not re.search(r'https?://|index-url', LOCK)


def test_the_version_stands_in_one_place():
  assert re.fullmatch(r'\d+\.\d+\.\d+', VERSION)
  assert VERSION not in (ROOT / 'setup.py').read_text()


def test_each_dependency_is_named_once():
  block = re.search(r'^REQUIREMENTS = \[\n(.*?)^\]', (ROOT / 'setup.py').read_text(), re.MULTILINE | re.DOTALL)[1]
  names = re.findall(r"^  '([\w-]+)", block, re.MULTILINE)
  assert len(names) == len(set(names)) > 20


def test_the_compiler_of_tpus_is_the_one_that_jax_asks_for():
  lines = (ROOT / 'tests/tpu/requirements.txt').read_text().splitlines()
  [pinned] = [line for line in lines if line[0] != '#' and Requirement(line).marker.evaluate()]  # for this Python
  [wanted] = [line for line in importlib.metadata.requires('jax') if line.startswith('libtpu')]
  version = re.fullmatch(r'libtpu==([\d.]+)\.\*; extra == "tpu"', wanted)[1]
  assert re.fullmatch(rf'libtpu=={re.escape(version)}\.\d+ ; .*', pinned)


# --- built and installed ----------------------------------------------------------------------------------------------


def run(*command, **options) -> str:
  return subprocess.run(
    [*command], env=ENVIRONMENT, timeout=300, check=True, stdout=subprocess.PIPE, text=True, **options
  ).stdout


def pip(*arguments) -> None:
  run(sys.executable, '-m', 'pip', '--disable-pip-version-check', *map(str, arguments))


@pytest.fixture(scope='module')
def distributions(tmp_path_factory) -> dict[str, pathlib.Path]:
  """A wheel of the project, and one made from its sdist alone."""
  folder = tmp_path_factory.mktemp('dist')
  source = folder / 'source'
  left_out = shutil.ignore_patterns('.*', 'runs', 'build', '*.egg-info', '__pycache__')
  shutil.copytree(ROOT, source, ignore=left_out)  # building leaves folders behind
  wheel = ['wheel', '--quiet', '--no-deps', '--no-build-isolation', '--wheel-dir']
  pip(*wheel, folder / 'wheel', source)
  run(sys.executable, '-c', f'from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})', cwd=source)
  [sdist] = folder.glob('*.tar.gz')
  pip(*wheel, folder / 'from_sdist', sdist)
  return {name: next((folder / name).glob('*.whl')) for name in ('wheel', 'from_sdist')}


def install(wheel: pathlib.Path, python: str, folder: pathlib.Path) -> pathlib.Path:
  """The interpreter of a new environment with the wheel and nothing else."""
  subprocess.run([python, '-m', 'venv', '--without-pip', folder], check=True, timeout=300)
  installed = folder / 'bin' / 'python'
  pip('--python', installed, 'install', '--quiet', '--no-deps', '--no-index', wheel)
  return installed


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_same_and_all_files_that_are_read(distributions):
  assert distributions['wheel'].name == f'rembert-{VERSION}-py3-none-any.whl'
  contents, again = (sorted(zipfile.ZipFile(file).namelist()) for file in distributions.values())
  assert contents == again
  assert not [name for name in contents if name.startswith(('tests/', 'benchmarks/', 'docs/', 'examples/', 'gin/'))]
  paths = lambda pattern: {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
  assert {f'rembert/gin_files/{name}' for name in paths('gin/**/*.gin')} <= set(contents)
  assert paths('rembert/**/*.json') | paths('tasks/**/*.json') | paths('launch/*.sh') <= set(contents)


@pytest.mark.slow
@pytest.mark.parametrize('version', PYTHONS)
def test_the_wheel_installs_into_an_empty_environment(distributions, version, tmp_path):
  python = shutil.which(f'python{version}')
  if not python or subprocess.run([python, '-c', 'import venv'], capture_output=True).returncode:
    pytest.skip(f'no Python {version} here')
  installed = install(distributions['wheel'], python, tmp_path / 'venv')
  code = (
    'import importlib.metadata, rembert\n'
    'assert importlib.metadata.version("rembert") == rembert.__version__\n'
    'print(rembert.__version__, rembert.__file__)'
  )
  assert run(installed, '-c', code, cwd=tmp_path).startswith(f'{VERSION} {tmp_path}')
  assert 'examples' in run(installed, '-m', 'rembert.main', '--help', cwd=tmp_path)


@pytest.mark.slow
def test_installed_programs_run_from_an_empty_folder(distributions, tmp_path):
  installed = install(distributions['wheel'], sys.executable, tmp_path / 'venv')
  [site] = (tmp_path / 'venv').glob('lib/python*/site-packages')
  (site / 'lock.pth').write_text(sysconfig.get_path('purelib') + '\n')  # the packages of the lock
  empty = tmp_path / 'empty'
  empty.mkdir()
  program = lambda module, *arguments: run(installed, '-m', module, *arguments, cwd=empty)
  for module in PROGRAMS:
    if not module.startswith('benchmarks'):
      assert 'usage' in program(module, '--help'), module
  smoke = '--gin_file=gin/pretrain_smoke.gin'
  assert 'padded to 5,120' in program('rembert.main', smoke, '--dry_run')
  assert '994,591,804' in program('rembert.main', '--gin_file=gin/pretrain_large.gin', '--dry_run')
  assert not list(empty.iterdir())
  flags = ['--gin.train.steps=3', '--gin.train.eval_every=0', '--gin.train.log_every=1']
  assert 'step 3/3' in program('rembert.main', smoke, '--workdir=run', *flags)
  assert (empty / 'run' / 'checkpoints' / '3').is_dir()
