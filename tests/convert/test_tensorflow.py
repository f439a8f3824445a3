"""The original checkpoint: written here under its own names, read by TensorFlow bit-exactly."""

import json

import numpy as np
import pytest
from random_checkpoints import TINY, leaves_of, random_leaves

from rembert.checkpoint.load import import_model, open_source, save_workdir
from rembert.convert import tensorflow as original
from rembert.convert.huggingface import export
from rembert.convert.tensor_names import slots
from rembert.errors import UsageError

TABLE = 'cls/predictions/output_embedding'


@pytest.fixture(scope='module')
def tensorflow():
  return pytest.importorskip('tensorflow')


def read_tensorflow(path, *, head='as saved', num_attention_heads=4, **options):
  source = original.open_source(path, num_attention_heads=num_attention_heads, **options)
  return import_model(source, head=head)


@pytest.fixture
def written(tensorflow, tmp_path):
  """Writes a model as the original code would have: its names, Adam's slots, the step; returns the prefix."""

  def write(leaves, config=TINY, head='mlm', *, rename=None, change=None):
    table = slots(config, head, num_labels=3, has_pooler='encoder/pooler/kernel' in leaves)
    variables = {slot.tensorflow: slot.take(leaves[slot.leaf], 'tensorflow') for slot in table}
    for old, new in (rename or {}).items():
      variables[new] = variables.pop(old)
    if change:
      change(variables)
    slots_of_adam = {f'{name}/adam_{moment}': np.full_like(v, 9) for name, v in variables.items() for moment in 'mv'}
    variables |= slots_of_adam | {'global_step': np.int64(1_780_000)}
    prefix = tmp_path / 'original' / 'rembert.ckpt-1780000'
    prefix.parent.mkdir()
    tensorflow.raw_ops.SaveV2(
      prefix=str(prefix),
      tensor_names=list(variables),
      shape_and_slices=[''] * len(variables),
      tensors=[tensorflow.constant(v) for v in variables.values()],
    )
    return prefix

  return write


@pytest.fixture(scope='module')
def plain():
  """Parameters of `TINY`, with a pooler."""
  return random_leaves(TINY, 'mlm', has_pooler=True)


@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'input_embedding_size': 32},
    {'input_embedding_size': 32, 'always_project_embeddings': True},
    {'output_embedding_size': 18, 'tie_word_embeddings': True},
  ],
  ids=lambda fields: ', '.join(fields) or 'plain',
)
def test_the_original_is_imported_and_exported_to_hugging_face_bit_exactly(
  written, written_run, tmp_path, assert_same, fields
):
  model = open_source(written_run('mlm', has_pooler=True, **fields))
  imported = read_tensorflow(written(leaves_of(model), model.config), hidden_act='gelu')
  assert imported.head == 'mlm'
  assert imported.config == model.config
  assert_same(imported.leaves, leaves_of(model))
  assert (imported.missing, imported.left_out) == ((), ())
  save_workdir(imported, tmp_path / 'ours', None)
  export(open_source(tmp_path / 'ours'), tmp_path / 'theirs')
  back = import_model(open_source(tmp_path / 'theirs')).leaves
  assert_same(back, {path: leaf for path, leaf in imported.leaves.items() if 'pooler' not in path})


@pytest.mark.parametrize(
  ('head', 'as_head'), [('classification', 'as saved'), ('tagging', 'tagging'), ('qa', 'as saved')]
)
def test_fine_tuned_checkpoints_keep_their_head(written, assert_same, head, as_head):
  leaves = random_leaves(TINY, head, has_pooler=head == 'classification')
  asked_for = head if head == 'tagging' else 'as saved'  # whose variables are named as those of a classification
  imported = read_tensorflow(written(leaves, head=head), head=asked_for)
  assert imported.head == head
  assert_same(imported.leaves, leaves)


@pytest.mark.parametrize(
  'changes',
  [
    *({'rename': {TABLE: name}} for name in ('output_embedding', 'bert/embeddings/output_embedding', f'{TABLE}s')),
    {'change': lambda variables: variables.update({TABLE: variables[TABLE].T.copy()})},
  ],
  ids=['alone', 'in the encoder', 'longer', 'transposed'],
)
def test_the_output_embedding_is_found_by_its_word_and_in_either_orientation(written, plain, assert_same, changes):
  assert_same(read_tensorflow(written(plain, **changes)).leaves, plain)


def test_the_original_code_had_the_tanh_gelu_and_heads_of_64(written, written_run, tmp_path):
  model = open_source(written_run('mlm', hidden_size=128, num_attention_heads=2))
  prefix = written(leaves_of(model), model.config)
  config = original.open_source(prefix).config
  assert (config.hidden_act, config.num_attention_heads) == ('gelu_tanh', 2)
  file = tmp_path / 'bert_config.json'
  file.write_text(json.dumps({'num_attention_heads': 8, 'classifier_dropout_prob': 0.3, 'hidden_size': 7}))
  config = original.open_source(prefix, config_file=file).config
  assert (config.num_attention_heads, config.classifier_dropout_prob, config.hidden_size) == (8, 0.3, 128)
  assert original.open_source(prefix, config_file=file, num_attention_heads=16).config.num_attention_heads == 16
  # The directory or the index file may be named as well.
  assert original.open_source(f'{prefix}.index').path == str(prefix)
  (prefix.parent / 'checkpoint').write_text(f'model_checkpoint_path: "{prefix.name}"\n')
  assert original.open_source(prefix.parent).config.vocab_size == model.config.vocab_size


def test_missing_and_unexpected_variables_are_listed(written, plain):
  def damage(variables):
    del variables['bert/encoder/layer_1/output/dense/bias']
    variables['bert/encoder/layer_1/output/dense/extra'] = np.zeros(3, np.float32)

  with pytest.raises(UsageError) as caught:
    read_tensorflow(written(plain, change=damage))
  assert 'missing (1)\n    bert/encoder/layer_1/output/dense/bias' in str(caught.value)
  assert 'unexpected (1)\n    bert/encoder/layer_1/output/dense/extra' in str(caught.value)
  assert 'adam' not in str(caught.value)


def test_damaged_checkpoints_and_other_files_are_refused(written, plain, tmp_path):
  with pytest.raises(UsageError, match='TensorFlow cannot read the checkpoint'):
    original.open_source(tmp_path / 'nowhere')
  prefix = written(plain)
  [data] = prefix.parent.glob('*.data-*')
  data.write_bytes(data.read_bytes()[:1000])
  with pytest.raises(UsageError, match='damaged checkpoint'):
    read_tensorflow(prefix)


def test_another_model_is_refused(written, plain):
  with pytest.raises(UsageError, match='no RemBERT'):
    original.open_source(
      written(plain, rename={'bert/embeddings/word_embeddings': 'albert/embeddings/word_embeddings'})
    )
