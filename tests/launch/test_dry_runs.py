"""What each launcher would do, compared with text that was looked at; scripts that shells can read."""

import pathlib
import re
import shutil
import subprocess
import sys

import launcher_commands
import pytest
from launcher_commands import CASES, GOLDEN

from launch.tpu_vm import SCRIPT


@pytest.fixture(autouse=True)
def in_the_project_and_without_other_programs(root, monkeypatch, tmp_path):
  """A dry run needs none of them: neither gcloud nor Slurm can be found."""
  monkeypatch.chdir(root)
  monkeypatch.setenv('PATH', str(tmp_path))


@pytest.mark.parametrize('name', CASES)
def test_a_dry_run_prints_what_would_be_run(name):
  # Where it differs on purpose: PYTHONPATH=. .venv/bin/python tests/support/launcher_commands.py, and read the diff.
  assert launcher_commands.dry_run(CASES[name]) == (GOLDEN / f'{name}.txt').read_text()


def test_there_is_no_text_without_a_case():
  assert {file.stem for file in GOLDEN.glob('*.txt')} == set(CASES)


def script_of(tmp_path) -> pathlib.Path:
  lines = (GOLDEN / 'slurm_submit.txt').read_text().splitlines()
  file = tmp_path / 'large.sbatch'
  file.write_text('\n'.join(lines[1 : lines.index('# end of the script')]) + '\n')
  return file


def test_scripts_are_bash_and_shellcheck_finds_nothing(tmp_path, monkeypatch):
  monkeypatch.undo()
  scripts = [script_of(tmp_path), SCRIPT]
  for script in scripts:
    subprocess.run(['bash', '-n', str(script)], check=True)
  next_to_python = pathlib.Path(sys.executable).parent
  shellcheck = shutil.which('shellcheck') or shutil.which('shellcheck', path=next_to_python)
  if shellcheck is None:
    pytest.skip('no shellcheck in PATH: make launchers adds it')
  for script in scripts:
    result = subprocess.run([shellcheck, str(script)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


DOCKERFILES = sorted((pathlib.Path(__file__).parents[2] / 'launch' / 'docker').glob('*.Dockerfile'))


@pytest.mark.parametrize('file', DOCKERFILES, ids=lambda file: file.stem)
def test_containers_run_the_lock_and_not_as_root(file, root):
  text = file.read_text()
  instructions = [line.split(maxsplit=1) for line in text.splitlines() if re.match('[A-Z]+ ', line)]
  assert 'pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement' in text
  assert [value for word, value in instructions if word == 'USER'] == ['rembert']
  for _, value in (each for each in instructions if each[0] == 'COPY'):
    assert (root / value.split()[0]).exists()
    assert f'!{value.split()[0]}' in (root / '.dockerignore').read_text().splitlines()
