"""A SeqIO task from a module outside the package, as docs/guides/seqio.md has it, is pre-trained on."""

import re
import shutil
import sys

import pytest
from final_states import assert_same_run
from own_tasks import MODULE, write_own_tasks

from tasks.token_store.__main__ import main as make_store

# isort: split
import seqio

SHORT = {
  'data__languages': None,
  'data__mixture': 'law',
  'RemBertConfig__vocab_size': 1500,
  'train__steps': 20,
  'train__eval_every': 10,
  'train__checkpoint_every': 8,
  'train__log_every': 1,
}


@pytest.fixture(scope='module')
def own_tasks(tmp_path_factory):
  """A directory with the module, its texts and its vocabulary."""
  folder = tmp_path_factory.mktemp('own')
  write_own_tasks(folder)
  return folder


def forget_module():
  sys.modules.pop(MODULE, None)
  for registry in seqio.MixtureRegistry, seqio.TaskRegistry:
    for name in [name for name in registry.names() if name.startswith('law')]:
      registry.remove(name)


@pytest.fixture(scope='module')
def law(own_tasks, program):
  """Function (workdir, directory, bindings) → a run of the module's mixture, to be started in that directory."""

  def law(workdir, directory=own_tasks, **bindings):
    run = program(workdir, **SHORT | bindings)
    run.arguments.insert(0, f'--module={MODULE}')
    run.directory = directory
    sys.path.insert(0, str(directory))
    forget_module()
    return run

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, 'path', list(sys.path))
    yield law
  forget_module()


@pytest.fixture(scope='module')
def complete(law, succeed, tmp_path_factory):
  """A complete run; `copy` is its workdir as it was at step 11."""
  run = law(tmp_path_factory.mktemp('law') / 'run')
  run.copy = run.workdir.parent / 'copy'
  run.output = succeed(run, on_log=lambda step, _: step == 11 and run.copy_workdir(run.copy, 8)).stdout
  return run


def test_a_mixture_of_ones_own_tasks_is_pre_trained_on_with_its_rates_and_its_vocabulary(complete, own_tasks):
  assert 'preprocesses earlier text again' not in complete.output
  assert re.search(r'law\.high +75\.00%', complete.output)
  assert re.search(r'law\.low +25\.00%', complete.output)
  copied = complete.workdir / 'vocabulary/sentencepiece.model'
  assert copied.read_bytes() == (own_tasks / 'law/sentencepiece.model').read_bytes()
  evaluation = [row for row in complete.metrics() if 'eval/loss' in row][-1]
  assert {'eval/loss/law.high', 'eval/loss/law.low'} <= evaluation.keys()


@pytest.mark.slow
def test_a_killed_run_resumes_bitwise(law, complete, succeed, tmp_path):
  shutil.copytree(complete.copy, tmp_path / 'run')
  resumed = law(tmp_path / 'run')
  assert 'resuming from step 8' in succeed(resumed).stdout
  assert_same_run(resumed, complete, 20)


def test_a_store_of_the_mixture_is_trained_on_without_the_module(
  program, law, own_tasks, succeed, tmp_path, monkeypatch
):
  law(tmp_path)  # prepares the import
  monkeypatch.chdir(own_tasks)
  flags = [f'--module={MODULE}', '--mixture=law', '--sequence_length=64', f'--output={tmp_path / "store"}']
  assert make_store(flags) == 0
  of_store = {'data__mixture': None, 'data__source': 'store', 'data__store': tmp_path / 'store'}
  run = program(tmp_path / 'run', **SHORT | of_store)
  assert re.search(r'law\.high .*75\.00%', succeed(run).stdout)
  assert {'eval/loss/law.high', 'eval/loss/law.low'} <= [row for row in run.metrics() if 'eval/loss' in row][-1].keys()


def test_other_rates_are_another_run(law, complete, tmp_path, own_tasks):
  workdir, folder = tmp_path / 'run', tmp_path / 'other'
  shutil.copytree(complete.workdir, workdir)
  shutil.copytree(own_tasks, folder)
  module = folder / f'{MODULE}.py'
  module.write_text(module.read_text().replace("('law.high', 3)", "('law.high', 4)"))
  result = law(workdir, folder, train__steps=30).run()
  assert result.returncode == 2
  assert 'belongs to a run with different settings' in result.stderr
  assert 'rate of law.high: 0.75 → 0.8' in result.stderr


@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'data__mixture': 'low'}, 'did you mean law, '),
    ({'data__alpha': 0.7}, 'data.mixture has its own tasks and rates'),
    ({'RemBertConfig__vocab_size': 1400}, "vocabulary of 'law'"),
  ],
)
def test_a_configuration_that_does_not_fit_is_one_message(bindings, message, law, tmp_path):
  result = law(tmp_path / 'run', **bindings).run()
  assert result.returncode == 2
  assert message in result.stderr
