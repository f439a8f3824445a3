"""The doctor finds what was planted, says what to do about it, and finds nothing where nothing is wrong."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import pytest

from rembert.checkpoint.load import open_saved
from rembert.doctor.__main__ import CHECKS, chosen_checks, main, parse
from rembert.doctor.checks_system import locked_versions
from rembert.doctor.environment import PROJECT, Environment, Level, examine, problem, well
from tasks.xtreme import download

GIB = 2**30
PINNED = locked_versions(PROJECT)


@pytest.fixture
def healthy(tmp_path, saved_with_vocabulary, small_store) -> Environment:
  """A machine with all that a run may want, which a test then spoils."""
  for name in ('dev', 'pci', 'here'):
    (tmp_path / name).mkdir()
  store = tmp_path / 'store'
  shutil.copytree(small_store.folder, store)
  return Environment(
    workdir=str(saved_with_vocabulary),
    store=str(store),
    dumps='tasks/wikipedia/sample',
    gin_files=('gin/pretrain_smoke.gin',),
    folder=tmp_path / 'here',
    path=(str(PROJECT), *sys.path),
    python=(3, 11, 9),
    versions=lambda: PINNED,
    variables={'JAX_PLATFORMS': 'cpu'},
    devices=tmp_path / 'dev',
    pci_devices=tmp_path / 'pci',
    cpuinfo=tmp_path / 'cpuinfo',
    available_bytes=lambda: 16 * GIB,
    free_bytes=lambda folder: 100 * GIB,
    open_files=65536,
  )


def all_checks(environment: Environment) -> Mapping[str, Callable]:
  flags = [f'--{name}={getattr(environment, name)}' for name in ('workdir', 'store', 'dumps', 'data_dir', 'vocabulary')]
  return chosen_checks(parse([flag for flag in flags if not flag.endswith('=None')])[0])


def test_a_healthy_machine_has_nothing_to_complain_of(healthy, monkeypatch):
  monkeypatch.chdir(PROJECT)
  findings = list(examine(all_checks(healthy), healthy))
  assert {finding.check for finding in findings} == set(CHECKS) - {'xtreme'}
  assert [finding for finding in findings if finding.level is not Level.WELL] == []
  assert not any(finding.fix for finding in findings)


def test_a_processor_that_multiplies_bfloat16_is_worth_a_word(healthy, tmp_path):
  devices = {'devices': all_checks(healthy)['devices']}
  said = lambda: ' '.join(finding.text for finding in examine(devices, healthy))
  assert 'bfloat16' not in said()
  (tmp_path / 'cpuinfo').write_text('flags : fpu amx_bf16\n')
  assert '--gin.execution.dtype=bfloat16' in said()


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


def gin_as_a_package(environment, folder):
  (environment.folder / 'gin').mkdir()
  (environment.folder / 'gin' / '__init__.py').touch()
  return environment


def another_package_called_tasks(environment, folder):
  (environment.folder / 'tasks').mkdir()
  (environment.folder / 'tasks' / '__init__.py').touch()
  return environment


def a_graphics_card(environment, folder):
  (folder / 'dev' / 'nvidia0').touch()
  return dataclasses.replace(environment, variables={'CUDA_VISIBLE_DEVICES': ''})


def a_tpu(environment, folder):
  slot = folder / 'pci' / '0000:00:05.0'
  slot.mkdir()
  (slot / 'vendor').write_text('0x1ae0')
  (slot / 'device').write_text('0x0063')
  return environment


def a_vocabulary_with_other_ids(environment, folder):
  import sentencepiece

  text = iter(['der Fluss fließt durch die Stadt und in das Meer'] * 50)
  with open(folder / 'other.model', 'wb') as file:
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=text, model_writer=file, vocab_size=24, minloglevel=2)
  return dataclasses.replace(environment, vocabulary=str(folder / 'other.model'))


def a_vocabulary_that_is_none(environment, folder):
  (folder / 'text.model').write_text('version https://git-lfs.github.com/spec/v1')
  return dataclasses.replace(environment, vocabulary=str(folder / 'text.model'))


def a_short_shard(environment, folder):
  shard = next(pathlib.Path(environment.store).glob('*/train-*.array_record'))
  shard.write_bytes(shard.read_bytes()[:-10])
  return environment


def a_flipped_byte_in_a_shard(environment, folder):
  shard = next(pathlib.Path(environment.store).glob('*/train-*.array_record'))
  content = bytearray(shard.read_bytes())
  content[len(content) // 2] ^= 0xFF
  shard.write_bytes(bytes(content))
  return environment


def a_dump_without_a_page(environment, folder):
  (folder / 'dewiki-pages-articles.xml').write_text('<mediawiki xml:lang="de"></mediawiki>')
  return dataclasses.replace(environment, dumps=str(folder / '*wiki*.xml'))


def another_vocabulary_in_the_store(environment, folder):
  (pathlib.Path(environment.store) / 'vocabulary' / 'sentencepiece.model').write_bytes(b'another')
  return environment


def no_manifest(environment, folder):
  (pathlib.Path(environment.store) / 'manifest.json').unlink()
  return environment


def a_dump_that_is_a_web_page(environment, folder):
  (folder / 'dewiki-pages-articles.xml').write_text('<html>404</html>')
  return dataclasses.replace(environment, dumps=str(folder / '*wiki*.xml'))


def an_altered_checkpoint(environment, folder):
  state = open_saved(environment.workdir).folder / 'state'
  file = max((path for path in pathlib.Path(state).rglob('*') if path.is_file()), key=lambda path: path.stat().st_size)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 0xFF
  file.write_bytes(bytes(content))
  return environment


def a_checkpoint_without_meta(environment, folder):
  shutil.rmtree(open_saved(environment.workdir).folder / 'meta')
  return environment


def a_file_for_a_workdir(environment, folder):
  (folder / 'file').touch()
  return dataclasses.replace(environment, workdir=str(folder / 'file' / 'run'))


def a_file_from_the_future(environment, folder):
  file = pathlib.Path(environment.workdir) / 'metrics.jsonl'
  file.touch()
  os.utime(file, (time.time() + 9000,) * 2)
  return environment


def no_task_of_xtreme(environment, folder):
  return dataclasses.replace(environment, data_dir=str(folder))


def a_broken_file_of_xtreme(environment, folder):
  (folder / 'xtreme' / 'xquad').mkdir(parents=True)
  (folder / 'xtreme' / 'xquad' / 'xquad.de.json').write_text('{"data": ')
  return dataclasses.replace(environment, data_dir=str(folder / 'xtreme'))


def a_large_model(environment, folder):
  return dataclasses.replace(environment, gin_files=('gin/pretrain_large.gin',), available_bytes=lambda: 8 * GIB)


PROXY = 'http://ada:secret@proxy.example:3128'
PLANTED = {
  'an old Python': ('python', with_fields(python=(3, 10, 2)), '3.10.2', 'PYTHON=python3.12'),
  'a package out of bounds': ('packages', with_versions(sentencepiece='0.2.1'), '0.2.1', 'sentencepiece==0.2.2'),
  'a package missing': ('packages', with_versions(optax=None), 'optax is not', f'optax=={PINNED["optax"]}'),
  'nightly SeqIO': ('tensorflow', with_versions(seqio_nightly='0.0.18'), 'both', '--no-deps seqio==0.0.20'),
  'nightly TFDS': ('tensorflow', with_versions(tfds_nightly='4.9'), 'both', '--yes tfds-nightly'),
  'another TensorFlow': ('tensorflow', with_versions(tensorflow_text='2.19.0'), 'made for', 'tensorflow-text=='),
  'jaxlib for another JAX': ('tensorflow', with_versions(jaxlib='0.9.1'), 'made for', f'jaxlib=={PINNED["jaxlib"]}'),
  'gin as a package': ('imports', gin_as_a_package, 'hides gin-config', 'rm '),
  'another tasks': ('imports', another_package_called_tasks, 'hides the package `tasks`', 'rename '),
  'an unused GPU': ('devices', a_graphics_card, 'JAX uses the CPU', 'jax[cuda12]=='),
  'a TPU without libtpu': ('devices', a_tpu, 'libtpu is not installed', 'jax[tpu]=='),
  'no devices': ('devices', with_environment(JAX_PLATFORMS='abacus'), 'finds no devices', 'JAX_PLATFORMS=cpu'),
  'a full disk': ('disk', with_fields(free_bytes=lambda folder: 2e8), '200 MB free', 'make room'),
  'few open files': ('open_files', with_fields(open_files=256), '256', 'ulimit -n 65536'),
  'a clock at its beginning': ('clock', with_fields(now=lambda: 1000.0), '1970', 'set-ntp'),
  'a malformed proxy': ('proxy', with_environment(https_proxy='proxy'), 'https_proxy', 'unset https_proxy'),
  'a model larger than memory': ('memory', a_large_model, '994,591,804', 'gin/pretrain_base.gin'),
  'a misspelt binding': ('memory', with_fields(bindings=('train.stepz=3',)), 'train.stepz', 'train.steps'),
  'other special ids': ('vocabulary', a_vocabulary_with_other_ids, 'other special ids', 'tasks.vocabulary'),
  'no vocabulary': ('vocabulary', a_vocabulary_that_is_none, 'not a SentencePiece model', 'tasks.vocabulary'),
  'no task of XTREME': ('xtreme', no_task_of_xtreme, 'no task', 'tasks.xtreme.download'),
  'a broken file of XTREME': ('xtreme', a_broken_file_of_xtreme, 'xquad.de.json', '--tasks=xquad'),
  'a short shard': ('store', a_short_shard, 'missing or altered', 'fetch them again'),
  'an altered shard': ('store', a_flipped_byte_in_a_shard, 'not what the manifest says', 'fetch them again'),
  'a dump without a page': ('dumps', a_dump_without_a_page, 'holds no page', 'pages-articles'),
  'a workdir that cannot be': ('workdir', with_fields(workdir='/proc/run'), 'cannot be written to', '--workdir=DIR'),
  'an unfinished store': ('store', no_manifest, 'unfinished', 'repeat the command'),
  'another vocabulary in the store': ('store', another_vocabulary_in_the_store, 'not the one', 'make the store anew'),
  'a dump that is none': ('dumps', a_dump_that_is_a_web_page, 'not a MediaWiki export', 'pages-articles'),
  'a file for a workdir': ('workdir', a_file_for_a_workdir, 'is a file', '--workdir=DIR'),
  'an altered checkpoint': ('checkpoints', an_altered_checkpoint, 'damaged', 'none before it'),
  'a checkpoint without its description': ('checkpoints', a_checkpoint_without_meta, '`meta` is missing', 'storage'),
}  # fmt: skip
WARNED = {
  'another version than the lock': ('packages', with_versions(numpy='2.0.9'), 'numpy 2.0.9', 'requirements.txt'),
  'no TensorFlow': ('packages', with_versions(seqio=None, t5=None), 'seqio, t5 not', 'requirements.txt'),
  'a newer Python': ('python', with_fields(python=(3, 14, 0)), '3.14.0', 'python3.12'),
  'libtpu and no TPU': ('devices', with_versions(libtpu='0.0.40'), 'looks for one', 'pip uninstall libtpu'),
  'a file from the future': ('clock', a_file_from_the_future, 'metrics.jsonl is from the future, by 2:', 'touch'),
  'a proxy for everything': ('proxy', with_environment(https_proxy=PROXY), 'localhost', 'export no_proxy=127.0.0.1,'),
}


def found(environment: Environment, check: str) -> list:
  return list(examine({check: ALL[check]}, environment))


ALL = chosen_checks(parse(['--workdir=a', '--store=a', '--dumps=a', '--data_dir=a'])[0])


@pytest.mark.parametrize('name', PLANTED)
def test_a_planted_problem_is_found_with_its_fix(name, healthy, tmp_path, monkeypatch):
  monkeypatch.chdir(PROJECT)
  check, plant, text, fix = PLANTED[name]
  problems = [each for each in found(plant(healthy, tmp_path), check) if each.level is Level.PROBLEM]
  assert any(text in each.text and fix in each.fix + each.text for each in problems), problems
  assert all(each.fix for each in problems)


@pytest.mark.parametrize('name', WARNED)
def test_what_may_go_well_is_warned_of(name, healthy, tmp_path):
  check, plant, text, fix = WARNED[name]
  environment = plant(healthy, tmp_path)
  if name == 'libtpu and no TPU':
    environment = dataclasses.replace(environment, variables={})
  findings = found(environment, check)
  assert any(each.level is Level.WARNING and text in each.text and fix in each.fix for each in findings), findings
  assert not any(each.level is Level.PROBLEM for each in findings)


# --- the workdir, held by somebody ------------------------------------------------------------------------------------


def test_whoever_holds_the_workdir_is_named(healthy):
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
  assert finding.level is Level.PROBLEM
  assert f'number {process.pid}' in finding.text
  assert 'kill -TERM' in finding.fix
  assert [each.level for each in found(healthy, 'workdir')] == [Level.WELL]


# --- how it is told ---------------------------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding_and_not_the_end(healthy):
  def failing(environment):
    yield well('the first half')
    raise ZeroDivisionError('by nought')

  first, second, third = examine({'one': failing, 'two': lambda environment: [problem('p', 'f')]}, healthy)
  assert (first.check, first.level) == ('one', Level.WELL)
  assert (second.check, second.level) == ('one', Level.PROBLEM)
  assert 'ZeroDivisionError: by nought' in second.text
  assert third == problem('p', 'f').__class__(Level.PROBLEM, 'p', 'f', 'two')


def test_a_password_of_a_proxy_is_never_shown(healthy):
  for no_proxy in ('', 'localhost,metadata.google.internal'):
    environment = dataclasses.replace(healthy, variables={'https_proxy': PROXY, 'no_proxy': no_proxy})
    assert 'secret' not in str(found(environment, 'proxy'))


def test_complete_tasks_of_xtreme_are_well_and_absent_ones_a_warning(healthy, tmp_path, monkeypatch):
  monkeypatch.setattr(download, 'LANGUAGES', dict.fromkeys(download.LANGUAGES, ('en',)))
  monkeypatch.setattr(download, 'expected_count', lambda task, split, language: None)
  shutil.copytree(PROJECT / 'tests' / 'data' / 'xtreme' / 'xnli', tmp_path / 'xtreme' / 'xnli')
  labels = PROJECT / 'tests' / 'data' / 'xtreme' / 'labels' / 'xnli'
  shutil.copytree(labels, tmp_path / 'xtreme' / 'labels' / 'xnli')
  absent, complete = found(dataclasses.replace(healthy, data_dir=str(tmp_path / 'xtreme')), 'xtreme')
  assert (absent.level, complete.level) == (Level.WARNING, Level.WELL)
  assert 'pawsx' in absent.text
  assert complete.text == 'complete: xnli'


def test_a_proxy_that_spares_whom_it_should_is_well(healthy):
  environment = {'https_proxy': 'http://proxy.example:3128', 'NO_PROXY': 'localhost,metadata.google.internal'}
  [finding] = found(dataclasses.replace(healthy, variables=environment), 'proxy')
  assert (finding.level, finding.text) == (Level.WELL, 'by way of proxy.example')


def test_the_command_ends_with_1_for_a_problem_and_with_0_for_warnings(tmp_path, capsys, monkeypatch):
  monkeypatch.setitem(os.environ, 'JAX_PLATFORMS', 'cpu')
  assert main([f'--store={tmp_path}', '--only=store']) == 1
  output = capsys.readouterr().out
  assert 'problem' in output
  assert 'python -m tasks.token_store --help' in output
  monkeypatch.setitem(os.environ, 'https_proxy', PROXY)
  assert main(['--only=proxy']) == 0
  assert '1 warning(s)' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--only=stars'], 'there is no such check'),
    (['--only=store'], 'needs --store'),
    (['--stor=a'], 'unknown argument --stor=a'),
    (['--gin.train.steps=3'], 'without --gin_file'),
  ],
)
def test_wrong_usage_exits_with_2(arguments, message, capsys):
  with pytest.raises(SystemExit) as end:
    main(arguments)
  assert end.value.code == 2
  assert message in capsys.readouterr().err


def test_neither_tensorflow_nor_the_accelerator_is_touched(tmp_path):
  code = (
    'import sys; from rembert.doctor.__main__ import main\n'
    'main(["--gin_file=gin/pretrain_smoke.gin", "--only=python,packages,tensorflow,imports,proxy,memory"])\n'
    'assert not {"tensorflow", "seqio", "t5"} & set(sys.modules)\n'
    'import jax; assert not jax._src.xla_bridge._backends'
  )
  done = subprocess.run([sys.executable, '-c', code], cwd=PROJECT, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
