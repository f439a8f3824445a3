"""Tasks of XTREME, and mixtures, fine-tuned and evaluated by the real program; and what does not fit."""

import pathlib
import shutil
import signal
import sys

import jax
import numpy as np
import pytest
from etils import epath
from final_states import assert_bitwise_equal, assert_same_run, final_state
from made_up_xtreme import write_examples

import rembert
from rembert.checkpoint.load import open_source
from rembert.convert.huggingface import export
from rembert.jobs import finetune as finetune_job
from rembert.jobs.evaluate import Results
from rembert.main import main
from rembert.model.config import RemBertConfig
from tasks import registration
from tasks.xtreme.benchmark import get_task

CONFIG = RemBertConfig(
  vocab_size=2000,
  input_embedding_size=32,
  output_embedding_size=48,
  hidden_size=64,
  num_hidden_layers=2,
  num_attention_heads=4,
  intermediate_size=128,
  max_position_embeddings=128,
  initializer_range=0.1,
)
COUNT = 50
# As few steps as it takes; with the large batch of the gin files there would be too few updates.
QUICKLY = {
  'finetune.epochs': 40,
  'finetune.evaluations_per_epoch': 0.2,
  'finetune.eval_batch_size': 16,
  'execution.unroll': 1,
  'train.batch_size': 10,
  'train.sequence_length': 96,
  'train.log_every': 20,
  'optimizer.learning_rate': 2e-3,
  'optimizer.bias_correction': True,
}
ONE_EPOCH = {'finetune.epochs': 1, 'finetune.evaluations_per_epoch': 1, 'train.log_every': 1}
THREE_EPOCHS = ONE_EPOCH | {'finetune.epochs': 3, 'train.checkpoint_every': 7}
DROPOUT = THREE_EPOCHS | {
  'RemBertConfig.classifier_dropout_prob': 0.1,
  'optimizer.learning_rate': 4e-3,
  'train.sequence_length': 32,  # one shape in evaluations
}


@pytest.fixture(scope='module')
def pretrained(untrained) -> pathlib.Path:
  """The workdir of a model with random parameters."""
  return untrained(CONFIG)


@pytest.fixture(scope='session')
def data(tmp_path_factory) -> pathlib.Path:
  """Fifty English examples of XNLI and PAN-X."""
  folder = tmp_path_factory.mktemp('data')
  for task in ('xnli', 'panx'):
    write_examples(folder, task, count=COUNT)
  return folder


@pytest.fixture(scope='module')
def finetune(program, pretrained, data, rows_once):
  """Function (task, workdir, bindings) → the program with gin/finetune_TASK.gin."""

  def make(task: str, workdir: pathlib.Path, bindings: dict):
    values = QUICKLY | {'xtreme.data_dir': data, 'train.init_from': pretrained} | bindings
    return program(workdir, f'gin/finetune_{task}.gin', values)

  return make


@pytest.fixture(scope='module')
def xnli(finetune, succeed, tmp_path_factory):
  """Three epochs of XNLI with dropout, complete; `copy` is the workdir as SIGKILL would have left it at step 9."""
  run = finetune('xnli', tmp_path_factory.mktemp('xnli') / 'run', DROPOUT)
  run.copy = run.workdir.parent / 'copy'
  run.output = succeed(run, on_log=lambda step, _: step == 9 and run.copy_workdir(run.copy, 7)).stdout
  return run


@pytest.mark.slow  # test_finetune_tables learns of each head by heart
@pytest.mark.parametrize('task', ['xnli', 'pawsx', 'panx', 'udpos', 'squad', 'tydiqa'])
def test_fifty_examples_are_learned_by_heart(task, finetune, succeed, tmp_path):
  write_examples(tmp_path / 'data', task, count=COUNT)
  evaluated = {'squad': 'xquad'}.get(task, task)
  others = {'xtreme.evaluate_on': "('xquad',)"} if task == 'squad' else {}
  if task == 'panx':
    others = {'train.sequence_length': 48}
  run = finetune(task, tmp_path / 'run', {'xtreme.data_dir': tmp_path / 'data', **others})
  output = succeed(run).stdout
  found = run.results()
  english = found['tasks'][evaluated]['en']
  assert english['examples'] == COUNT
  assert min(english['scores'].values()) > 95, output
  assert max(english['baseline'].values()) < 60
  assert (run.workdir / english['predictions']).exists()
  assert set(found['skipped'][evaluated]) == set(get_task(evaluated).languages) - {'en'}
  assert f'{english["scores"]["f1" if "f1" in english["scores"] else "accuracy"]:.1f}' in output
  succeed(run)  # all is there: nothing is trained or evaluated
  assert run.results() == found


# --- resumed ----------------------------------------------------------------------------------------------------------


def assert_same_results(run, reference, last_step):
  assert_same_run(run, reference, last_step)
  assert run.results() == reference.results()
  files = [file for file in (reference.workdir / 'predictions').rglob('*') if file.is_file()]
  assert files
  for file in files:
    assert (run.workdir / file.relative_to(reference.workdir)).read_bytes() == file.read_bytes()


def test_a_killed_run_ends_as_if_it_had_not_been(xnli, finetune, succeed, tmp_path):
  shutil.copytree(xnli.copy, tmp_path / 'run')
  resumed = finetune('xnli', tmp_path / 'run', DROPOUT)
  assert 'resuming from step 7' in succeed(resumed).stdout
  assert_same_results(resumed, xnli, 15)
  step = xnli.results()['step']
  assert_bitwise_equal(final_state(resumed.workdir / 'best', step), final_state(xnli.workdir / 'best', step))


@pytest.mark.slow
def test_a_run_that_is_killed_by_signals_ends_as_if_it_had_not_been(finetune, tmp_path):
  long = DROPOUT | {'finetune.epochs': 12}
  whole, cut = (finetune('xnli', tmp_path / name, long) for name in ('whole', 'cut'))
  assert whole.run_process().returncode == 0
  for number, at in ((signal.SIGKILL, 17), (signal.SIGTERM, 33)):
    assert cut.stop_when(lambda at=at: cut.steps_logged() >= at, number) in (75, -number)
  assert cut.run_process().returncode == 0
  assert_same_results(cut, whole, 60)


def test_the_best_by_dev_is_evaluated_also_if_it_is_of_before_the_run_was_killed(
  xnli, finetune, succeed, tmp_path, monkeypatch
):
  evaluated, evaluate_tasks = [], finetune_job.evaluate_tasks

  def evaluate_and_keep(evaluator, params, *args, **options):
    evaluated.append(jax.device_get(params))
    evaluate_tasks(evaluator, params, *args, **options)

  monkeypatch.setattr(finetune_job, '_dev_scores', lambda *_: {'accuracy': -1.0})  # after the first, at step 5
  monkeypatch.setattr(finetune_job, 'evaluate_tasks', evaluate_and_keep)
  shutil.copytree(xnli.copy, tmp_path / 'run')
  run = finetune('xnli', tmp_path / 'run', DROPOUT)
  succeed(run)
  assert run.results()['step'] == 5
  assert (
    run.results()['dev']['accuracy'] == next(row for row in xnli.metrics() if 'eval/loss' in row)['eval/dev/accuracy']
  )
  assert_bitwise_equal(evaluated[0], final_state(run.workdir / 'best', 5)['params'])
  with pytest.raises(AssertionError):
    assert_bitwise_equal(evaluated[0], final_state(run.workdir, 15)['params'])


# --- what a run leaves ------------------------------------------------------------------------------------------------


def test_the_best_model_can_be_loaded_and_exported(xnli, tmp_path):
  found = xnli.results()
  dev = [(row['eval/dev/accuracy'], -row['step']) for row in xnli.metrics() if 'eval/dev/accuracy' in row]
  assert len(dev) == 3
  assert (found['dev']['accuracy'], -found['step']) == max(dev)
  assert rembert.load(xnli.workdir / 'best', 'classification').labels == ('contradiction', 'entailment', 'neutral')
  export(open_source(xnli.workdir / 'best'), tmp_path / 'exported')
  card = (tmp_path / 'exported' / 'README.md').read_text()
  assert '| task | xnli, trained on en |' in card
  assert f'| en | {found["tasks"]["xnli"]["en"]["scores"]["accuracy"]:.1f} |' in card
  assert {'sentencepiece.model', 'tokenizer.json', 'model.safetensors'} <= {
    file.name for file in (tmp_path / 'exported').iterdir()
  }


@pytest.fixture
def evaluate(xnli, program):
  """Function (workdir, data, bindings) → the program that evaluates the best model of `xnli`."""

  def make(workdir: pathlib.Path, data: pathlib.Path, gin_file: str = 'gin/finetune_xnli.gin', **bindings):
    values = {'xtreme.data_dir': data, 'evaluate.model': xnli.workdir / 'best', 'finetune.eval_batch_size': 16}
    values |= {'train.sequence_length': DROPOUT['train.sequence_length'], 'run.mode': 'evaluate'} | bindings
    return program(workdir, gin_file, values)

  return make


def test_a_trained_model_is_evaluated_again_as_its_run_evaluated_it(xnli, evaluate, data, succeed, tmp_path):
  again = evaluate(tmp_path / 'again', data)
  succeed(again)
  assert again.results()['tasks'] == xnli.results()['tasks']
  wrong = evaluate(tmp_path / 'wrong', data, 'gin/evaluate_xquad.gin', **{'xtreme.evaluate_on': "('panx',)"}).run()
  assert wrong.returncode == 2
  assert 'a head for classification of 3 labels; panx requires a head for tagging of 7 labels' in wrong.stderr


def test_a_language_without_labels_does_not_count_in_the_mean(tmp_path):
  results = Results(epath.Path(tmp_path), {'task': 'xnli'}, is_writer=True)
  for language, scores in (('en', {'accuracy': 80.0}), ('de', {'accuracy': 60.0}), ('sw', None)):
    entry = {'examples': 3, 'scores': scores, 'baseline': None, 'predictions': f'{language}.tsv', 'note': ''}
    results.add('xnli', language, entry, 'x')
  assert results.content['mean'] == {'xnli': {'accuracy': 70.0}}


def test_results_of_another_configuration_are_discarded(tmp_path):
  entry = {'examples': 3, 'scores': None, 'baseline': None, 'predictions': 'en.tsv', 'note': ''}
  Results(epath.Path(tmp_path), {'seed': 0}, is_writer=True).add('xnli', 'en', entry, 'x')
  assert Results(epath.Path(tmp_path), {'seed': 0}, is_writer=True).has('xnli', 'en')
  assert not Results(epath.Path(tmp_path), {'seed': 1}, is_writer=True).has('xnli', 'en')
  (tmp_path / 'en.tsv').unlink()
  assert not Results(epath.Path(tmp_path), {'seed': 0}, is_writer=True).has('xnli', 'en')


def test_files_without_labels_are_predicted_and_never_scored(evaluate, data, succeed, tmp_path):
  shutil.copytree(data / 'xnli', tmp_path / 'data' / 'xnli')
  run = evaluate(tmp_path / 'run', tmp_path / 'data')
  output = succeed(run).stdout
  english = run.results()['tasks']['xnli']['en']
  assert english['scores'] is None
  assert english['note']
  assert len((run.workdir / english['predictions']).read_text().splitlines()) == COUNT
  assert 'no score' in output


@pytest.mark.slow
def test_a_sample_of_examples_is_trained_on_and_chosen_by_and_all_are_evaluated(finetune, succeed, tmp_path):
  few = ONE_EPOCH | {'finetune.max_examples': 20}
  run = finetune('xnli', tmp_path / 'run', few | {'finetune.max_dev_examples': 10})
  assert '20 training, 10 dev' in succeed(run).stdout
  assert run.results()['tasks']['xnli']['en']['examples'] == COUNT
  result = finetune('xnli', run.workdir, few | {'optimizer.learning_rate': 1e-5}).run()
  assert result.returncode == 2
  assert 'finetune.max_dev_examples: 10 → None' in result.stderr
  assert 'optimizer.learning_rate: 0.002 → 1e-05' in result.stderr


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'xtreme.data_dir': 'None'}, 'xtreme.data_dir is not set'),
    ({'xtreme.languages': "('xx',)"}, 'is not evaluated in xx'),
    ({'xtreme.languages': "('de',)"}, 'a file of the data is missing'),
    ({'xtreme.split': 'train'}, 'split must be one of test, dev'),
    ({'train.init_from': 'None'}, 'no vocabulary: the model has none'),
    ({'train.sequence_length': 512}, "exceed the model's 128 positions"),
    ({'optimizer.freeze_layers': 3}, 'cannot freeze 3 of 2 layers'),
    ({'xtreme.task': 'tatoeba'}, 'is retrieval'),
    ({'finetune.mixture': 'mine'}, 'must be set together'),
    ({'finetune.mixture': 'mine', 'finetune.head': 'mlm'}, 'head must be one of classification'),
    ({'xtreme.evaluate_on': "('panx',)"}, 'xnli and panx differ in head or labels'),
  ],
)
def test_a_configuration_that_does_not_fit_is_one_message(bindings, message, finetune, tmp_path):
  result = finetune('xnli', tmp_path / 'run', bindings).run()
  assert result.returncode == 2
  assert message in result.stderr


def test_a_dry_run_reports_the_number_of_training_examples(finetune, tmp_path, capsys):
  for bindings, words in (({}, '50 training examples\n'), ({'finetune.max_examples': 20}, '20 training examples')):
    assert main([*finetune('xnli', tmp_path / 'run', bindings).arguments, '--dry_run']) == 0
    assert f'xnli: {words}' in capsys.readouterr().out


# --- other beginnings, other hosts ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hugging_face_directory_gives_the_same_run(xnli, finetune, pretrained, succeed, tmp_path):
  export(open_source(pretrained), tmp_path / 'exported')
  other = finetune('xnli', tmp_path / 'run', DROPOUT | {'train.init_from': tmp_path / 'exported'})
  succeed(other)
  assert other.metrics() == xnli.metrics()


@pytest.mark.slow
def test_two_hosts_train_and_evaluate_as_one_does(finetune, tmp_path):
  few = THREE_EPOCHS | {'finetune.epochs': 4}
  alone, together = (finetune('panx', tmp_path / name, few) for name in ('alone', 'together'))
  assert alone.run_process().returncode == 0
  together.run_hosts(2)
  losses = lambda run: [row['loss'] for row in run.metrics() if 'loss' in row]
  np.testing.assert_allclose(losses(together), losses(alone), rtol=1e-5)
  (ours,), (theirs,) = (run.results()['tasks']['panx'].values() for run in (together, alone))
  assert ours['scores'] == pytest.approx(theirs['scores'], abs=2.0)  # a tag or two may fall the other way
  assert (together.workdir / ours['predictions']).read_text().count('\n') == (
    alone.workdir / theirs['predictions']
  ).read_text().count('\n')


# --- a mixture --------------------------------------------------------------------------------------------------------

MIXTURE = """
import tasks
from tasks import registration

tasks.add_xtreme(data_dir={data!r}, vocabulary={vocabulary!r})
tasks.add_xtreme(data_dir={other!r}, vocabulary={vocabulary!r}, name='other')
registration.add_mixture('both', {{'xtreme.panx.en': 3.0, 'other.panx.en': 1.0}})
"""


@pytest.fixture
def mixture(finetune, pretrained, data, tmp_path, monkeypatch):
  """Function (name, workdir, bindings) → the program on a mixture of the English PAN-X files of two directories."""
  write_examples(tmp_path / 'other', 'panx', count=COUNT, seed=1)
  vocabulary = pretrained / 'vocabulary' / 'sentencepiece.model'
  module = MIXTURE.format(data=str(data), other=str(tmp_path / 'other'), vocabulary=str(vocabulary))
  (tmp_path / 'my_mixture.py').write_text(module)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'my_mixture', raising=False)

  def make(name: str, workdir: pathlib.Path, bindings: dict):
    values = {'finetune.mixture': name, 'finetune.head': 'tagging', 'xtreme.data_dir': 'None'} | bindings
    run = finetune('panx', workdir, values)
    run.arguments.insert(0, '--module=my_mixture')
    return run

  yield make
  sys.modules.pop('my_mixture', None)
  for name in 'both', 'other':
    registration.remove_ours(name)


@pytest.mark.slow
def test_a_mixture_of_one_task_is_trained_as_the_task(mixture, finetune, succeed, tmp_path):
  of_mixture = mixture('xtreme.panx', tmp_path / 'mixture', THREE_EPOCHS)
  of_task = finetune('panx', tmp_path / 'task', THREE_EPOCHS)
  for run in (of_mixture, of_task):
    succeed(run)
  assert of_mixture.metrics() == of_task.metrics()
  ours, theirs = of_mixture.results(), of_task.results()
  assert ours['tasks']['xtreme.panx']['xtreme.panx.en']['scores'] == theirs['tasks']['panx']['en']['scores']
  assert (ours['dev'], ours['training rows']) == (theirs['dev'], theirs['training rows'])
  lines = (of_mixture.workdir / 'predictions/xtreme.panx/test-xtreme.panx.en.jsonl').read_text().splitlines()
  assert len(lines) == COUNT


@pytest.mark.slow
def test_a_mixture_is_trained_at_its_rates_and_each_task_is_evaluated(mixture, succeed, tmp_path):
  run = mixture('both', tmp_path / 'run', ONE_EPOCH)
  assert 'xtreme.panx.en at 3' in succeed(run).stdout
  assert set(run.results()['tasks']['both']) == {'xtreme.panx.en', 'other.panx.en'}
  other = mixture('xtreme.panx', run.workdir, ONE_EPOCH).run()
  assert other.returncode == 2
  assert "finetune.mixture: 'both'" in other.stderr


def test_a_mixture_that_is_not_registered_or_of_another_head_is_one_error(mixture, tmp_path):
  missing = mixture('neither', tmp_path / 'missing', THREE_EPOCHS).run()
  assert (missing.returncode, 'no SeqIO task or mixture called' in missing.stderr) == (2, True)
  wrong = mixture('both', tmp_path / 'wrong', THREE_EPOCHS | {'finetune.head': 'qa'}).run()
  assert (wrong.returncode, 'a sequence has' in wrong.stderr) == (2, True)
