"""The doctor finds what was planted, says what to do about it, and finds nothing where nothing is wrong."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from rembert.checkpoint.load import find_checkpoint
from rembert.doctor import checks
from rembert.doctor.__main__ import CHECKS, chosen_checks, main, parse
from rembert.doctor.checks import PROJECT, Environment, Finding, examine, locked_versions, problem

GIB = 2**30
PINNED = locked_versions(PROJECT)


@pytest.fixture
def healthy(tmp_path, saved_with_vocabulary) -> Environment:
  """A machine with all that a run may want, which a test then spoils."""
  for name in ('dev', 'pci', 'here'):
    (tmp_path / name).mkdir()
  return Environment(
    workdir=str(saved_with_vocabulary),
    gin_files=('gin/pretrain_smoke.gin',),
    folder=tmp_path / 'here',
    path=(str(PROJECT), *sys.path),
    versions=lambda: PINNED,
    variables={'JAX_PLATFORMS': 'cpu'},
    devices=tmp_path / 'dev',
    pci_devices=tmp_path / 'pci',
    cpuinfo=tmp_path / 'cpuinfo',
    available_bytes=lambda: 16 * GIB,
    free_bytes=lambda folder: 100 * GIB,
  )


def all_checks(environment: Environment) -> Mapping[str, Callable]:
  return chosen_checks(parse([f'--workdir={environment.workdir}'])[0])


def test_a_healthy_machine_has_nothing_to_complain_of(healthy, monkeypatch):
  monkeypatch.chdir(PROJECT)
  findings = list(examine(all_checks(healthy), healthy))
  assert {finding.check for finding in findings} == set(CHECKS)
  assert [finding for finding in findings if finding.level != 'ok'] == []
  assert not any(finding.fix or 'bfloat16' in finding.text for finding in findings)


def test_devices_are_looked_for_with_the_variables_of_the_user(healthy, monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'abacus')  # as the command hides the accelerator from itself
  healthy.cpuinfo.write_text('flags : fpu amx_bf16\n')
  [finding] = found(healthy, 'devices')
  assert finding.level == 'ok'
  assert '--gin.execution.dtype=auto' in finding.text


# --- planted ----------------------------------------------------------------------------------------------------------


def with_versions(**changes: str | None) -> Callable:
  def plant(environment: Environment, folder: pathlib.Path) -> Environment:
    versions = PINNED | {name.replace('_', '-'): version for name, version in changes.items()}
    return dataclasses.replace(environment, versions=lambda: {name: v for name, v in versions.items() if v})

  return plant


def with_environment(**variables: str) -> Callable:
  return lambda environment, folder: dataclasses.replace(environment, variables=variables)


def with_fields(**fields) -> Callable:
  return lambda environment, folder: dataclasses.replace(environment, **fields)


def a_package(name: str) -> Callable:
  def plant(environment, folder):
    (environment.folder / name).mkdir()
    (environment.folder / name / '__init__.py').touch()
    return environment

  return plant


def a_graphics_card(environment, folder):
  (folder / 'dev' / 'nvidia0').touch()
  return dataclasses.replace(environment, variables={'CUDA_VISIBLE_DEVICES': ''})


def a_tpu(environment, folder):
  slot = folder / 'pci' / '0000:00:05.0'
  slot.mkdir()
  (slot / 'vendor').write_text('0x1ae0')
  (slot / 'device').write_text('0x0063')
  return environment


def flip_a_byte(file: pathlib.Path) -> None:
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 0xFF
  file.write_bytes(bytes(content))


def an_altered_checkpoint(environment, folder):
  state = pathlib.Path(find_checkpoint(environment.workdir)) / 'state'
  flip_a_byte(max(filter(pathlib.Path.is_file, state.rglob('*')), key=lambda path: path.stat().st_size))
  return environment


def a_checkpoint_without_meta(environment, folder):
  shutil.rmtree(find_checkpoint(environment.workdir) / 'meta')
  return environment


def a_large_model(environment, folder):
  return dataclasses.replace(environment, gin_files=('gin/pretrain_large.gin',), available_bytes=lambda: 8 * GIB)


PLANTED = {
  'a package out of bounds': ('packages', with_versions(sentencepiece='0.2.1'), '0.2.1', 'sentencepiece==0.2.2'),
  'a package missing': ('packages', with_versions(optax=None), 'optax is not', f'optax=={PINNED["optax"]}'),
  'nightly SeqIO': ('tensorflow', with_versions(seqio_nightly='0.0.18'), 'both', '--no-deps seqio==0.0.20'),
  'another TensorFlow': ('tensorflow', with_versions(tensorflow_text='2.19.0'), 'do not match', 'tensorflow-text=='),
  'gin as a package': ('imports', a_package('gin'), 'shadows gin-config', 'rm '),
  'another tasks': ('imports', a_package('tasks'), 'shadows the package `tasks`', 'rename '),
  'an unused GPU': ('devices', a_graphics_card, 'JAX uses the CPU', 'jax[cuda12]=='),
  'a TPU without libtpu': ('devices', a_tpu, 'libtpu is not installed', 'jax[tpu]=='),
  'no devices': ('devices', with_environment(JAX_PLATFORMS='abacus'), 'finds no devices', 'JAX_PLATFORMS=cpu'),
  'a full disk': ('disk', with_fields(free_bytes=lambda folder: 2e8), '200 MB free', 'free some space'),
  'a model larger than memory': ('memory', a_large_model, '994,591,804', 'gin/pretrain_base.gin'),
  'a misspelt binding': ('memory', with_fields(bindings=('train.stepz=3',)), 'train.stepz', 'train.steps'),
  'a workdir that cannot be': ('workdir', with_fields(workdir='/proc/run'), 'cannot be written to', '--workdir=DIR'),
  'an altered checkpoint': ('checkpoints', an_altered_checkpoint, 'corrupt', 'no earlier one'),
  'a checkpoint without its description': ('checkpoints', a_checkpoint_without_meta, '`meta` is missing', 'storage'),
}  # fmt: skip
WARNED = {
  'another version than the lock': ('packages', with_versions(numpy='2.0.9'), 'numpy 2.0.9', 'requirements.txt'),
  'no TensorFlow': ('packages', with_versions(seqio=None, t5=None), 'seqio, t5 not', 'requirements.txt'),
  'libtpu and no TPU': ('devices', with_versions(libtpu='0.0.40'), 'searches for one', 'pip uninstall libtpu'),
}


def found(environment: Environment, check: str) -> list:
  return list(examine({check: ALL[check]}, environment))


ALL = chosen_checks(parse(['--workdir=a'])[0])


@pytest.fixture
def only_a_cpu(monkeypatch):
  """JAX finds a CPU, without the seconds that it takes to start."""
  monkeypatch.setattr(checks, 'run_python', lambda *_, **__: ('{"platform": "cpu", "kind": "cpu", "count": 1}', ''))


@pytest.mark.parametrize('name', PLANTED)
def test_a_planted_problem_is_found_with_its_fix(name, healthy, tmp_path, monkeypatch, request):
  if name != 'no devices':
    request.getfixturevalue('only_a_cpu')
  monkeypatch.chdir(PROJECT)
  check, plant, text, fix = PLANTED[name]
  problems = [each for each in found(plant(healthy, tmp_path), check) if each.level == 'problem']
  assert any(text in each.text and fix in each.fix + each.text for each in problems), problems
  assert all(each.fix for each in problems)


@pytest.mark.parametrize('name', WARNED)
def test_what_may_go_well_is_warned_of(name, healthy, tmp_path, only_a_cpu):
  check, plant, text, fix = WARNED[name]
  environment = plant(healthy, tmp_path)
  if name == 'libtpu and no TPU':
    environment = dataclasses.replace(environment, variables={})
  findings = found(environment, check)
  assert any(each.level == 'warning' and text in each.text and fix in each.fix for each in findings), findings
  assert not any(each.level == 'problem' for each in findings)


# --- the workdir, held by a user ------------------------------------------------------------------------------------


def test_the_owner_of_the_lock_is_named(healthy):
  code = (
    'import sys; from etils import epath; from rembert.jobs.workdir import locked\n'
    'with locked(epath.Path(sys.argv[1]), print): print("held", flush=True); sys.stdin.read()'
  )
  command = [sys.executable, '-c', code, healthy.workdir]
  pipe = subprocess.PIPE
  with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=PROJECT) as process:
    assert process.stdout.readline() == 'held\n'
    [finding] = found(healthy, 'workdir')
    process.stdin.close()
  assert finding.level == 'problem'
  assert f'by process {process.pid} on' in finding.text
  assert 'kill -TERM' in finding.fix
  assert [each.level for each in found(healthy, 'workdir')] == ['ok']


# --- how it is shown -------------------------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding_and_not_the_end(healthy):
  def failing(environment):
    yield Finding('ok', 'the first half')
    raise ZeroDivisionError('by nought')

  first, second, third = examine({'one': failing, 'two': lambda environment: iter([problem('p', 'f')])}, healthy)
  assert (first.check, first.level) == ('one', 'ok')
  assert (second.check, second.level) == ('one', 'problem')
  assert 'ZeroDivisionError: by nought' in second.text
  assert third == problem('p', 'f').__class__('problem', 'p', 'f', 'two')


def test_the_command_ends_with_1_for_a_problem_and_with_0_otherwise(tmp_path, capsys, monkeypatch):
  monkeypatch.setitem(os.environ, 'JAX_PLATFORMS', 'cpu')
  assert main([f'--workdir={tmp_path}', '--only=workdir']) == 0
  assert '1 ok' in capsys.readouterr().out
  assert main(['--workdir=/proc/run', '--only=workdir']) == 1
  output = capsys.readouterr().out
  assert '1 problem(s)' in output
  assert '--workdir=DIR' in output


def test_wrong_usage_exits_with_2(capsys):
  usages = {
    '--only=stars': 'no such check',
    '--only=workdir': 'requires --workdir',
    '--workdi=a': 'unknown argument',
  }
  for argument, message in (usages | {'--gin.train.steps=3': 'require --gin_file'}).items():
    with pytest.raises(SystemExit) as end:
      main([argument])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_neither_tensorflow_nor_the_accelerator_is_touched(tmp_path):
  code = (
    'import sys; from rembert.doctor.__main__ import main\n'
    'main(["--gin_file=gin/pretrain_smoke.gin", "--only=packages,tensorflow,imports,memory"])\n'
    'assert not {"tensorflow", "seqio", "t5"} & set(sys.modules)\n'
    'import jax; assert not jax._src.xla_bridge._backends'
  )
  done = subprocess.run([sys.executable, '-c', code], cwd=PROJECT, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
