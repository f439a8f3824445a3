"""Tasks of XTREME learned and judged by the real program: by heart, in half, and with what does not fit."""

import json
import pathlib
import shutil
import signal

import jax
import numpy as np
import pytest
from final_states import assert_bitwise_equal, final_state
from flax import nnx
from flax.traverse_util import flatten_dict
from made_up_xtreme import write_examples

import rembert
from rembert.checkpoint.load import open_saved, save_model
from rembert.convert.exporting import export
from rembert.main import main
from rembert.model.config import RemBertConfig
from rembert.model.heads import build_model

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
# As few steps as it takes; the large batch of the gin files would see the examples too seldom.
QUICKLY = {
  'finetune.epochs': 60,
  'finetune.evaluations_per_epoch': 0.2,
  'finetune.judge_batch_size': 16,
  'train.batch_size': 10,
  'train.sequence_length': 96,
  'train.log_every': 20,
  'optimizer.learning_rate': 2e-3,
  'optimizer.bias_correction': True,
}


@pytest.fixture(scope='session')
def untrained(tmp_path_factory, xtreme_vocabulary) -> pathlib.Path:
  """A workdir as pre-training leaves it, of a model that has learned nothing."""
  workdir = tmp_path_factory.mktemp('untrained') / 'run'
  model = build_model('mlm', CONFIG, add_pooler=False, rngs=nnx.Rngs(0))
  leaves = flatten_dict(nnx.to_pure_dict(nnx.state(model, nnx.Param)), sep='/')
  save_model(workdir, jax.tree.map(np.asarray, leaves), CONFIG, 'mlm', ())
  (workdir / 'vocabulary').mkdir()
  shutil.copy(xtreme_vocabulary, workdir / 'vocabulary' / 'sentencepiece.model')
  return workdir


@pytest.fixture
def finetune(program, untrained, tmp_path):
  """The program with gin/finetune_TASK.gin, on data and into a workdir of the test's."""

  def make(task: str, data: pathlib.Path, workdir: pathlib.Path | None = None, **bindings):
    values = QUICKLY | {'xtreme.data_dir': data, 'train.init_from': untrained} | bindings
    return program.of_files(workdir or tmp_path / task, f'gin/finetune_{task}.gin', values)

  return make


def results(run) -> dict:
  return json.loads((run.workdir / 'results.json').read_text())


@pytest.mark.parametrize(
  'task',
  [
    pytest.param(task, marks=() if task == 'panx' else pytest.mark.slow)
    for task in ('xnli', 'pawsx', 'panx', 'udpos', 'squad', 'tydiqa')
  ],
)
def test_fifty_examples_are_learned_by_heart(task, finetune, tmp_path):
  write_examples(tmp_path / 'data', task, count=COUNT)
  judged = {'squad': 'xquad'}.get(task, task)
  run = finetune(task, tmp_path / 'data', **({'xtreme.evaluate_on': "('xquad',)"} if task == 'squad' else {}))
  result = run.run()
  assert result.returncode == 0, result.stderr
  found = results(run)
  english = found['tasks'][judged]['en']
  assert english['examples'] == COUNT
  assert min(english['scores'].values()) > 95, result.stdout
  assert max(english['baseline'].values()) < 60
  assert (run.workdir / english['predictions']).exists()
  assert set(found['skipped'][judged]) == set(rembert_languages(judged)) - {'en'}
  assert 'en' in result.stdout
  assert f'{english["scores"]["f1" if "f1" in english["scores"] else "accuracy"]:.1f}' in result.stdout
  again = run.run()  # all is there: nothing is trained or judged
  assert again.returncode == 0, again.stderr
  assert results(run) == found


def rembert_languages(task: str) -> tuple[str, ...]:
  from tasks.xtreme.benchmark import get_task

  return get_task(task).languages


@pytest.mark.slow
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=COUNT)
  few = {'finetune.epochs': 12, 'finetune.evaluations_per_epoch': 1, 'train.checkpoint_every': 7, 'train.log_every': 1}
  few |= {'RemBertConfig.classifier_dropout_prob': 0.1}
  whole = finetune('xnli', tmp_path / 'data', tmp_path / 'whole', **few)
  result = whole.run()
  assert result.returncode == 0, result.stderr
  cut = finetune('xnli', tmp_path / 'data', tmp_path / 'cut', **few)
  for number, at in ((signal.SIGKILL, 17), (signal.SIGTERM, 33)):
    assert cut.stop_when(lambda at=at: cut.steps_logged() >= at, number) in (75, -number)
  result = cut.run()
  assert result.returncode == 0, result.stderr
  assert cut.metrics() == whole.metrics()
  assert_bitwise_equal(final_state(cut.workdir, 60), final_state(whole.workdir, 60))
  step = results(whole)['step']
  assert_bitwise_equal(final_state(cut.workdir / 'best', step), final_state(whole.workdir / 'best', step))
  assert results(cut) == results(whole)
  for file in (whole.workdir / 'predictions').rglob('*.tsv'):
    assert (cut.workdir / file.relative_to(whole.workdir)).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_the_best_by_dev_is_judged_and_can_be_loaded(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=COUNT)
  six = {'finetune.epochs': 6, 'finetune.evaluations_per_epoch': 1, 'optimizer.learning_rate': 4e-3}
  run = finetune('xnli', tmp_path / 'data', **six)
  result = run.run()
  assert result.returncode == 0, result.stderr
  found = results(run)
  rows = [json.loads(line) for line in (run.workdir / 'metrics.jsonl').read_text().splitlines()]
  dev = [(row['eval/dev/accuracy'], -row['step']) for row in rows if 'eval/dev/accuracy' in row]
  assert len(dev) == 6
  assert (found['dev']['accuracy'], -found['step']) == max(dev)
  model = rembert.load(run.workdir / 'best', 'classification')
  assert model.labels == ('contradiction', 'entailment', 'neutral')
  export(open_saved(run.workdir / 'best'), tmp_path / 'exported')
  card = (tmp_path / 'exported' / 'README.md').read_text()
  assert '| task | xnli, learned in en |' in card
  assert f'| en | {found["tasks"]["xnli"]["en"]["scores"]["accuracy"]:.1f} |' in card
  assert {'sentencepiece.model', 'tokenizer.json', 'model.safetensors'} <= {
    file.name for file in (tmp_path / 'exported').iterdir()
  }


@pytest.mark.parametrize(
  ('bindings', 'message'),
  [
    ({'xtreme.data_dir': 'None'}, 'where is the data'),
    ({'xtreme.languages': "('xx',)"}, 'is not judged in xx'),
    ({'xtreme.languages': "('de',)"}, 'a file of the data is missing'),
    ({'xtreme.split': 'train'}, 'split must be one of test, dev'),
    ({'train.init_from': 'None'}, 'there is no vocabulary'),
    ({'train.sequence_length': 512}, 'positions for 128'),
    ({'finetune.judge_batch_size': 0}, 'judge_batch_size must be a whole number ≥ 1'),
    ({'finetune.max_examples': 0}, 'max_examples must be a whole number'),
    ({'finetune.max_dev_examples': 0.5}, 'max_dev_examples must be a whole number'),
    ({'xtreme.task': 'tatoeba'}, 'is retrieval'),
    ({'finetune.mixture': 'mine'}, 'a mixture needs a head'),
    ({'finetune.mixture': 'mine', 'finetune.head': 'mlm'}, 'head must be one of classification'),
    ({'xtreme.evaluate_on': "('panx',)"}, 'xnli and panx differ in head or labels'),
  ],
)
def test_what_does_not_fit_is_told_in_one_message(bindings, message, finetune, tmp_path, capsys):
  write_examples(tmp_path / 'data', 'xnli', count=3)
  run = finetune('xnli', tmp_path / 'data', **bindings)
  assert main(run.command[run.command.index('rembert.main') + 1 :]) == 2  # in this process: that takes seconds less
  assert message in capsys.readouterr().err


def test_files_without_labels_are_predicted_and_never_scored(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=COUNT)
  shutil.rmtree(tmp_path / 'data' / 'labels')
  run = finetune('xnli', tmp_path / 'data', **{'finetune.epochs': 1, 'finetune.evaluations_per_epoch': 1})
  result = run.run()
  assert result.returncode == 0, result.stderr
  english = results(run)['tasks']['xnli']['en']
  assert english['scores'] is None
  assert english['note']
  assert len((run.workdir / english['predictions']).read_text().splitlines()) == COUNT
  assert 'no score' in result.stdout


def test_a_dry_run_says_how_many_examples_are_learned_from(finetune, tmp_path, capsys):
  write_examples(tmp_path / 'data', 'xnli', count=COUNT)
  for bindings, words in (({}, '50 examples to learn from\n'), ({'finetune.max_examples': 20}, '20 examples to learn')):
    run = finetune('xnli', tmp_path / 'data', **bindings)
    assert main([*run.command[run.command.index('rembert.main') + 1 :], '--dry_run']) == 0
    assert f'xnli: {words}' in capsys.readouterr().out


@pytest.mark.slow
def test_a_few_examples_are_learned_from_and_chosen_by_and_all_are_judged(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=COUNT)
  few = {'finetune.epochs': 1, 'finetune.evaluations_per_epoch': 1}
  run = finetune('xnli', tmp_path / 'data', **few, **{'finetune.max_examples': 20, 'finetune.max_dev_examples': 10})
  result = run.run()
  assert result.returncode == 0, result.stderr
  assert '20 to learn from, 10 for dev' in result.stdout
  assert results(run)['tasks']['xnli']['en']['examples'] == COUNT
  result = finetune('xnli', tmp_path / 'data', **few, **{'finetune.max_examples': 20}).run()
  assert result.returncode == 2
  assert 'finetune.max_dev_examples: 10 → None' in result.stderr


@pytest.mark.slow
def test_another_learning_rate_is_another_run(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=10)
  short = {'finetune.epochs': 2, 'finetune.evaluations_per_epoch': 1}
  assert finetune('xnli', tmp_path / 'data', **short).run().returncode == 0
  result = finetune('xnli', tmp_path / 'data', **short, **{'optimizer.learning_rate': 1e-5}).run()
  assert result.returncode == 2
  assert 'optimizer.learning_rate: 0.002 → 1e-05' in result.stderr


@pytest.mark.slow
def test_a_trained_model_is_judged_again_as_its_run_judged_it(finetune, program, tmp_path):
  write_examples(tmp_path / 'data', 'squad', count=20)
  few = {'finetune.epochs': 3, 'finetune.evaluations_per_epoch': 1, 'xtreme.evaluate_on': "('xquad',)"}
  trained = finetune('squad', tmp_path / 'data', **few)
  result = trained.run()
  assert result.returncode == 0, result.stderr
  values = {'xtreme.data_dir': tmp_path / 'data', 'evaluate.model': trained.workdir / 'best'}
  values |= {'train.sequence_length': QUICKLY['train.sequence_length'], 'finetune.judge_batch_size': 16}
  judged = program.of_files(tmp_path / 'judged', 'gin/evaluate_xquad.gin', values)
  result = judged.run()
  assert result.returncode == 0, result.stderr
  assert results(judged)['tasks'] == results(trained)['tasks']
  wrong = program.of_files(tmp_path / 'wrong', 'gin/evaluate_xquad.gin', values | {'xtreme.evaluate_on': "('xnli',)"})
  result = wrong.run()
  assert result.returncode == 2
  assert 'a head for qa, and xnli needs a head for classification of 3 labels' in result.stderr


@pytest.mark.slow
def test_two_hosts_learn_and_judge_as_one_does(finetune, tmp_path):
  write_examples(tmp_path / 'data', 'panx', count=COUNT)
  few = {'finetune.epochs': 4, 'finetune.evaluations_per_epoch': 1, 'train.log_every': 1}
  alone = finetune('panx', tmp_path / 'data', tmp_path / 'alone', **few)
  result = alone.run()
  assert result.returncode == 0, result.stderr
  together = finetune('panx', tmp_path / 'data', tmp_path / 'together', **few)
  together.run_hosts(2)
  losses = lambda run: [row['loss'] for row in run.metrics() if 'loss' in row]
  np.testing.assert_allclose(losses(together), losses(alone), rtol=1e-5)
  (ours,), (theirs,) = (results(run)['tasks']['panx'].values() for run in (together, alone))
  assert ours['scores'] == pytest.approx(theirs['scores'], abs=2.0)  # a tag or two may fall the other way
  assert (together.workdir / ours['predictions']).read_text().count('\n') == (
    alone.workdir / theirs['predictions']
  ).read_text().count('\n')


@pytest.mark.slow
def test_a_folder_of_hugging_face_is_as_good_a_beginning(finetune, untrained, tmp_path):
  write_examples(tmp_path / 'data', 'xnli', count=20)
  export(open_saved(untrained), tmp_path / 'exported')
  few = {'finetune.epochs': 3, 'finetune.evaluations_per_epoch': 1, 'train.log_every': 1}
  ours = finetune('xnli', tmp_path / 'data', tmp_path / 'ours', **few)
  theirs = finetune('xnli', tmp_path / 'data', tmp_path / 'theirs', **few, **{'train.init_from': tmp_path / 'exported'})
  for run in (ours, theirs):
    result = run.run()
    assert result.returncode == 0, result.stderr
  assert theirs.metrics() == ours.metrics()


# --- a mixture --------------------------------------------------------------------------------------------------------

MIXTURE = """
import tasks
from tasks import registration

tasks.add_xtreme(data_dir={data!r}, vocabulary={vocabulary!r})
tasks.add_xtreme(data_dir={other!r}, vocabulary={vocabulary!r}, name='other')
registration.add_mixture('both', {{'xtreme.panx.en': 3.0, 'other.panx.en': 1.0}})
"""


@pytest.fixture
def mixture(finetune, untrained, tmp_path):
  """The program on a mixture of PAN-X's English files of two folders, which a module of the test's registers."""
  for seed, folder in enumerate(('data', 'other')):
    write_examples(tmp_path / folder, 'panx', count=COUNT, seed=seed)
  vocabulary = untrained / 'vocabulary' / 'sentencepiece.model'
  paths = {'data': tmp_path / 'data', 'other': tmp_path / 'other', 'vocabulary': vocabulary}
  module = MIXTURE.format(**{name: str(path) for name, path in paths.items()})
  (tmp_path / 'my_mixture.py').write_text(module)

  def make(name: str, workdir: pathlib.Path, **bindings):
    values = {'finetune.mixture': name, 'finetune.head': 'tagging', 'xtreme.data_dir': 'None'} | bindings
    run = finetune('panx', tmp_path / 'data', workdir, **values)
    run.command.insert(3, '--module=my_mixture')
    run.environment['PYTHONPATH'] = f'{tmp_path}:{pathlib.Path(__file__).parents[2]}'
    return run

  return make


FEW = {'finetune.epochs': 3, 'finetune.evaluations_per_epoch': 1, 'train.log_every': 1, 'train.checkpoint_every': 7}


@pytest.mark.slow
def test_a_mixture_of_one_task_is_trained_as_the_task(mixture, finetune, tmp_path):
  of_task = finetune('panx', tmp_path / 'data', tmp_path / 'task', **FEW)
  of_mixture = mixture('xtreme.panx', tmp_path / 'mixture', **FEW)
  for run in (of_task, of_mixture):
    result = run.run()
    assert result.returncode == 0, result.stderr
  assert of_mixture.metrics() == of_task.metrics()
  ours, theirs = results(of_mixture), results(of_task)
  assert ours['tasks']['xtreme.panx']['xtreme.panx.en']['scores'] == theirs['tasks']['panx']['en']['scores']
  assert (ours['dev'], ours['training rows']) == (theirs['dev'], theirs['training rows'])
  lines = (of_mixture.workdir / 'predictions/xtreme.panx/test-xtreme.panx.en.jsonl').read_text().splitlines()
  assert len(lines) == COUNT


@pytest.mark.slow
def test_a_mixture_that_is_killed_ends_as_if_it_had_not_been(mixture, tmp_path):
  whole = mixture('both', tmp_path / 'whole', **FEW)
  result = whole.run()
  assert result.returncode == 0, result.stderr
  assert 'xtreme.panx.en at 3' in result.stdout
  cut = mixture('both', tmp_path / 'cut', **FEW)
  assert cut.stop_when(lambda: cut.steps_logged() >= 9, signal.SIGKILL) == -signal.SIGKILL
  result = cut.run()
  assert result.returncode == 0, result.stderr
  assert cut.metrics() == whole.metrics()
  assert_bitwise_equal(final_state(cut.workdir, 30), final_state(whole.workdir, 30))
  assert results(cut) == results(whole)
  assert set(results(whole)['tasks']['both']) == {'xtreme.panx.en', 'other.panx.en'}
  for file in (whole.workdir / 'predictions').rglob('*.jsonl'):
    assert (cut.workdir / file.relative_to(whole.workdir)).read_bytes() == file.read_bytes()
  other = mixture('xtreme.panx', tmp_path / 'whole', **FEW).run()
  assert other.returncode == 2
  assert "finetune.mixture: 'both'" in other.stderr


@pytest.mark.slow
def test_a_mixture_that_is_not_registered_or_of_another_head_is_one_error(mixture, tmp_path):
  missing = mixture('neither', tmp_path / 'missing', **FEW).run()
  assert (missing.returncode, 'no SeqIO task or mixture called' in missing.stderr) == (2, True)
  wrong = mixture('both', tmp_path / 'wrong', **FEW | {'finetune.head': 'qa'}).run()
  assert (wrong.returncode, 'a row of' in wrong.stderr) == (2, True)
