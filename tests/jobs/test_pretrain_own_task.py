"""A SeqIO task from a module outside the package, as docs/guides/seqio.md has it, is pre-trained on."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from final_states import assert_bitwise_equal, final_state
from own_tasks import MODULE, write_own_tasks

ROOT = pathlib.Path(__file__).parent.parent.parent
SHORT = {
  'data__languages': None,
  'data__mixture': 'law',
  'RemBertConfig__vocab_size': 1500,
  'train__steps': 60,
  'train__eval_every': 30,
  'train__checkpoint_every': 20,
  'train__log_every': 1,
}


@pytest.fixture(scope='module')
def own_tasks(tmp_path_factory):
  """A directory with the module, its texts and its vocabulary."""
  folder = tmp_path_factory.mktemp('own')
  write_own_tasks(folder)
  return folder


@pytest.fixture(scope='module')
def law(own_tasks, program):
  """Function (workdir, bindings) → a run of the module's mixture, to be started in the module's directory."""

  def law(workdir, **bindings):
    run = program(workdir, **SHORT | bindings)
    run.command.insert(3, f'--module={MODULE}')
    run.directory = own_tasks
    return run

  return law


@pytest.fixture(scope='module')
def learned(law, tmp_path_factory):
  """A run from beginning to end."""
  run = law(tmp_path_factory.mktemp('learned') / 'run')
  result = run.run()
  assert result.returncode == 0, result.stderr
  run.output = result.stdout
  return run


def test_a_mixture_of_ones_own_tasks_is_pre_trained_on_with_its_rates_and_its_vocabulary(learned, own_tasks):
  assert 'preprocesses again' not in learned.output
  assert re.search(r'law\.high +75\.00%', learned.output)
  assert re.search(r'law\.low +25\.00%', learned.output)
  copied = learned.workdir / 'vocabulary/sentencepiece.model'
  assert copied.read_bytes() == (own_tasks / 'law/sentencepiece.model').read_bytes()
  evaluation = [row for row in learned.metrics() if 'eval/loss' in row][-1]
  assert {'eval/loss/law.high', 'eval/loss/law.low'} <= evaluation.keys()


def test_it_is_killed_and_resumed_bitwise(law, learned, tmp_path):
  stopped = law(tmp_path / 'run')
  assert stopped.stop_when(lambda: stopped.steps_logged() >= 34, signal.SIGKILL) == -signal.SIGKILL
  result = stopped.run()
  assert result.returncode == 0, result.stderr
  assert 'resuming from step' in result.stdout
  assert stopped.metrics() == learned.metrics()
  assert_bitwise_equal(final_state(stopped.workdir, 60), final_state(learned.workdir, 60))


def test_a_store_of_the_mixture_is_trained_on_without_the_module(program, own_tasks, tmp_path):
  command = [sys.executable, '-m', 'tasks.token_store', f'--module={MODULE}', '--mixture=law', '--sequence_length=64']
  environment = os.environ | {'PYTHONPATH': str(ROOT)}
  subprocess.run([*command, f'--output={tmp_path / "store"}'], cwd=own_tasks, env=environment, check=True, timeout=300)
  of_store = {'data__mixture': None, 'data__source': 'store', 'data__store': tmp_path / 'store', 'train__steps': 30}
  run = program(tmp_path / 'run', **SHORT | of_store)
  result = run.run()
  assert result.returncode == 0, result.stderr
  assert re.search(r'law\.high .*75\.00%', result.stdout)
  assert {'eval/loss/law.high', 'eval/loss/law.low'} <= [row for row in run.metrics() if 'eval/loss' in row][-1].keys()


def test_other_rates_are_another_run(law, learned, tmp_path, own_tasks):
  workdir = tmp_path / 'run'
  shutil.copytree(learned.workdir, workdir)
  folder = tmp_path / 'other'
  shutil.copytree(own_tasks, folder)
  module = folder / f'{MODULE}.py'
  module.write_text(module.read_text().replace("('law.high', 3)", "('law.high', 4)"))
  longer = law(workdir, train__steps=70)
  longer.directory = folder
  result = longer.run()
  assert result.returncode == 2
  assert 'checkpoints of another run' in result.stderr
  assert 'rate of law.high: 0.75 → 0.8' in result.stderr


@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'data__mixture': 'low'}, 'did you mean law, law.low'),
    ({'data__alpha': 0.7}, 'data.mixture has tasks and rates of its own'),
    ({'RemBertConfig__vocab_size': 1400}, "vocabulary of 'law'"),
  ],
)
def test_what_does_not_fit_is_one_error(bindings, message, law, tmp_path):
  result = law(tmp_path / 'run', **bindings).run()
  assert result.returncode == 2
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
