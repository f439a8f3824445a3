"""gin/continue_pretraining.gin: pre-training continues from a model, on text that the run itself prepares."""

import json

import pytest
from final_states import assert_same_run

from rembert.checkpoint.load import architecture, open_source
from rembert.convert.__main__ import main as convert
from tasks import vocabulary

SMALL = {
  'train.steps': 6,
  'train.batch_size': 8,
  'train.accumulation_steps': 1,
  'train.sequence_length': 64,
  'train.log_every': 1,
  'train.eval_every': 3,
  'train.eval_rows': 8,
  'train.checkpoint_every': 3,
  'optimizer.warmup_steps': 1,
  'execution.dtype': "'float32'",
}


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  """A file of JSON lines with a language of the model to begin with, and a new one."""
  file = tmp_path_factory.mktemp('text') / 'crawl.jsonl'
  sentence = {'sw': 'Mto {0} unapita katikati ya mji wa {0}.', 'de': 'Der Fluss {0} fließt mitten durch die Stadt {0}.'}
  rows = [{'body': f'{sentence[code].format(n)} ' * 12, 'lang': code} for n in range(120) for code in sentence]
  file.write_text(''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows))
  return file


@pytest.fixture
def continued(program, text, tmp_path):
  """Function (model, **bindings) → the program."""

  def build(model, workdir='run', **bindings):
    of_text = {'data.text': text, 'data.text_column': 'body', 'data.language_column': 'lang', 'data.held_out': 0.1}
    values = SMALL | of_text | {'train.init_from': f"'{model}'"} | bindings
    return program(tmp_path / workdir, 'gin/continue_pretraining.gin', values)

  return build


@pytest.mark.slow
def test_a_run_takes_what_the_released_weights_have_names_what_they_lack_and_resumes(
  continued, stored, succeed, tmp_path
):
  for command in (
    ['to_hf', stored.workdir, 'whole'],
    ['from_hf', 'whole', 'x', '--head=none'],
    ['to_hf', 'x', 'released'],
  ):
    words = [str(tmp_path / word) if word in ('whole', 'x', 'released') else str(word) for word in command]
    assert convert(words) == 0
  whole, half = continued(tmp_path / 'released'), continued(tmp_path / 'released', workdir='half')
  result = succeed(whole, on_log=lambda step, _: step == 4 and whole.copy_workdir(half.workdir, 3))
  [line] = [line for line in result.stdout.splitlines() if 'randomly initialised' in line]
  assert all(name in line for name in ('released lacks', 'mlm/output_embedding', 'mlm/transform/kernel'))
  assert 'encoder' not in line
  # A fresh head guesses; its encoder does not.
  assert whole.metrics()[0]['loss'] > 6.5
  for field in ('vocab_size', 'hidden_size', 'output_embedding_size', 'num_hidden_layers', 'hidden_act'):
    assert getattr(architecture(whole.workdir), field) == getattr(architecture(stored.workdir), field)
  assert open_source(whole.workdir).vocabulary.read_bytes() == open_source(stored.workdir).vocabulary.read_bytes()
  evaluation = next(row for row in whole.metrics() if 'eval/loss' in row)
  assert {'eval/loss/de', 'eval/loss/sw'} <= evaluation.keys()
  assert 'randomly initialised' not in succeed(half).stdout
  assert_same_run(half, whole, 6)


def test_a_larger_vocabulary_takes_rows_and_means_of_the_old_and_the_run_resumes(
  continued, stored, text, succeed, tmp_path
):
  old, larger = stored.workdir / 'vocabulary' / 'sentencepiece.model', tmp_path / 'larger.model'
  of_text = [f'--text={text}', '--text_column=body', '--language_column=lang', '--languages=de']
  assert vocabulary.main([*of_text, f'--extend={old}', '--size=1540', f'--output={larger}']) == 0
  settings = {'vocabulary.path': f"'{larger}'", 'RemBertConfig.vocab_size': 1540}
  whole, half = (continued(stored.workdir, workdir=name, **settings) for name in ('whole', 'half'))
  output = succeed(whole, on_log=lambda step, _: step == 4 and whole.copy_workdir(half.workdir, 3)).stdout
  assert 'the embeddings of 1,500 tokens are copied, 40 are means of their old subwords, 0 are random' in output
  table = output[output.index('Fertility') :].splitlines()
  row = next(line.split() for line in table if line.split()[:1] == ['de'])
  assert float(row[2]) < 0.7 * float(row[1])  # tokens per word
  assert open_source(whole.workdir).vocabulary.read_bytes() == larger.read_bytes()
  assert whole.metrics()[0]['loss'] < stored.metrics()[0]['loss'] - 0.5  # of a trained model
  assert 'are copied' not in succeed(half).stdout
  assert_same_run(half, whole, 6)


def test_a_run_needs_a_model_and_text(program, stored, tmp_path):
  without_model = program(tmp_path / 'run', 'gin/continue_pretraining.gin', {'data.corpus': tmp_path}).run()
  assert without_model.returncode == 2
  assert 'train.init_from' in without_model.stderr
  values = {'train.init_from': f"'{stored.workdir}'"}
  without_text = program(tmp_path / 'run', 'gin/continue_pretraining.gin', values).run()
  assert without_text.returncode == 2
  assert '--gin.data.text=' in without_text.stderr


def test_a_setting_of_the_architecture_is_an_error_with_that_of_the_model(continued, stored):
  done = continued(stored.workdir, **{'RemBertConfig.hidden_size': 64}).run()
  assert done.returncode == 2
  assert '--gin.RemBertConfig.hidden_size=32' in done.stderr
