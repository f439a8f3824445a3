"""What each launcher would do, compared with text that was looked at; scripts and manifests that others can read."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import launcher_commands
import pytest
import yaml
from launcher_commands import CASES, GOLDEN

from launch.cloud.workers import SCRIPT


@pytest.fixture(autouse=True)
def in_the_project_and_without_other_programs(root, monkeypatch, tmp_path):
  """A dry run needs none of them: neither gcloud nor kubectl, xpk or Slurm can be found."""
  monkeypatch.chdir(root)
  monkeypatch.setenv('PATH', str(tmp_path))


@pytest.mark.parametrize('name', CASES)
def test_a_dry_run_prints_what_would_be_run(name):
  # Where it differs on purpose: PYTHONPATH=. .venv/bin/python tests/support/launcher_commands.py, and read the diff.
  assert launcher_commands.dry_run(CASES[name]) == (GOLDEN / f'{name}.txt').read_text()


def test_there_is_no_text_without_a_case():
  assert {file.stem for file in GOLDEN.glob('*.txt')} == set(CASES)


@pytest.mark.parametrize('name', CASES)
def test_each_printed_line_is_one_command_for_a_shell(name):
  for line in (GOLDEN / f'{name}.txt').read_text().splitlines():
    if line.startswith(('gcloud', 'kubectl', 'xpk', 'sbatch')):
      assert shlex.join(shlex.split(line)) == line


def script_of(tmp_path) -> pathlib.Path:
  lines = (GOLDEN / 'slurm_submit.txt').read_text().splitlines()
  file = tmp_path / 'large.sbatch'
  file.write_text('\n'.join(lines[1 : lines.index('# end of the script')]) + '\n')
  return file


def scripts(tmp_path):
  return [script_of(tmp_path), SCRIPT]


def test_scripts_are_bash(tmp_path, monkeypatch):
  monkeypatch.undo()
  for script in scripts(tmp_path):
    subprocess.run(['bash', '-n', str(script)], check=True)


def test_shellcheck_finds_nothing(tmp_path, monkeypatch):
  monkeypatch.undo()
  beside_python = pathlib.Path(sys.executable).parent
  shellcheck = shutil.which('shellcheck') or shutil.which('shellcheck', path=beside_python)
  if shellcheck is None:
    pytest.skip('no shellcheck in PATH: make launchers adds it')
  for script in scripts(tmp_path):
    result = subprocess.run([shellcheck, str(script)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def manifest_of(name) -> dict:
  lines = (GOLDEN / f'{name}.txt').read_text().splitlines()
  return yaml.safe_load('\n'.join(line for line in lines if not line.startswith(('#', 'kubectl'))))


MANIFESTS = [name for name in CASES if name.startswith('gke_create')]


@pytest.mark.parametrize('name', MANIFESTS)
def test_manifests_fit_the_schema(name, root):
  jsonschema = pytest.importorskip('jsonschema', reason='make launchers adds jsonschema')
  schema = yaml.safe_load((root / 'tests/data/schemas/jobset.yaml').read_text())
  jsonschema.Draft202012Validator.check_schema(schema)
  jsonschema.Draft202012Validator(schema).validate(manifest_of(name))
  broken = manifest_of(name)
  broken['spec']['replicatedJobs'][0]['template']['spec']['podFailurPolicy'] = {}
  with pytest.raises(jsonschema.ValidationError, match='podFailurPolicy'):
    jsonschema.Draft202012Validator(schema).validate(broken)


@pytest.mark.parametrize('name', MANIFESTS)
def test_an_error_ends_a_jobset_and_what_can_be_resumed_does_not(name):
  spec = manifest_of(name)['spec']
  [rule] = spec['failurePolicy']['rules']
  assert rule['action'] == 'FailJobSet'
  assert rule['onJobFailureReasons'] == ['PodFailurePolicy']
  job = spec['replicatedJobs'][0]['template']['spec']
  assert job['backoffLimit'] == 0
  assert job['template']['spec']['restartPolicy'] == 'Never'
  lost_node, error = job['podFailurePolicy']['rules']  # the first that fits counts
  assert lost_node['onPodConditions'][0]['type'] == 'DisruptionTarget'
  assert error['action'] == 'FailJob'
  assert error['onExitCodes']['operator'] == 'NotIn'
  assert error['onExitCodes']['containerName'] == job['template']['spec']['containers'][0]['name']
  repeated = error['onExitCodes']['values']
  assert {75, 134, 137, 143} <= set(repeated)
  assert not {0, 1, 2} & set(repeated)
  assert repeated == sorted(repeated)  # Kubernetes wants them so


def test_a_slice_has_as_many_pods_as_machines():
  found = {}
  for name in MANIFESTS:
    [job] = manifest_of(name)['spec']['replicatedJobs']
    found[name] = job['replicas'], job['template']['spec']['completions'], job['template']['spec']['parallelism']
  assert found == {
    'gke_create': (1, 16, 16),
    'gke_create_slices': (2, 16, 16),
    'gke_create_one_machine': (1, 1, 1),
  }


def test_variables_of_kubernetes_are_not_put_into_arguments():
  [job] = manifest_of('gke_create')['spec']['replicatedJobs']
  arguments = job['template']['spec']['template']['spec']['containers'][0]['args']
  [hostile] = [argument for argument in arguments if 'dumps' in argument]
  assert re.search(r'\$\$\(reboot\)', hostile)


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
