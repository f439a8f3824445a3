"""The original checkpoint: written here under its own names, read by TensorFlow, to the bit."""

import json

import numpy as np
import pytest

from rembert.checkpoint.load import open_saved
from rembert.convert.exporting import export
from rembert.convert.importing import ImportOptions, read_hugging_face, read_tensorflow, save
from rembert.convert.tensor_names import slots
from rembert.errors import UsageError

TABLE = 'cls/predictions/output_embedding'


@pytest.fixture(scope='module')
def tensorflow():
  return pytest.importorskip('tensorflow')


@pytest.fixture
def original(saved, tensorflow, tmp_path):
  """Writes a random model as the original code would have: its names, Adam's slots, the step; returns the prefix."""

  def write(head='mlm', *, rename=None, change=None, **fields):
    model = saved(head, has_pooler=head in ('mlm', 'classification', None), **fields)
    has_pooler = 'encoder/pooler/kernel' in model.shapes
    table = slots(model.config, head, num_labels=3, has_pooler=has_pooler)
    variables = {slot.tensorflow: slot.take(model.read(slot.leaf), 'tensorflow') for slot in table}
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
    return prefix, model

  return write


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
def test_the_original_comes_here_and_goes_to_hugging_face_to_the_bit(original, tmp_path, assert_same, fields):
  prefix, model = original(**fields)
  imported = read_tensorflow(prefix, num_attention_heads=4, hidden_act='gelu')
  assert imported.head == 'mlm'
  assert imported.config == model.config
  assert_same(imported.leaves, {path: model.read(path) for path in model.shapes})
  assert (imported.missing, imported.left_out) == ((), ())
  save(imported, tmp_path / 'ours', None)
  export(open_saved(tmp_path / 'ours'), tmp_path / 'theirs')
  back = read_hugging_face(tmp_path / 'theirs').leaves
  assert_same(back, {path: leaf for path, leaf in imported.leaves.items() if 'pooler' not in path})


@pytest.mark.parametrize(('head', 'as_head'), [('classification', None), ('tagging', 'tagging'), ('qa', None)])
def test_fine_tuned_checkpoints_keep_their_head(original, assert_same, head, as_head):
  prefix, model = original(head)
  options = ImportOptions(head=as_head) if as_head else ImportOptions()
  imported = read_tensorflow(prefix, options, num_attention_heads=4)
  assert imported.head == head
  assert_same(imported.leaves, {path: model.read(path) for path in model.shapes})


@pytest.mark.parametrize('name', ['output_embedding', 'bert/embeddings/output_embedding', f'{TABLE}s'])
def test_the_output_embedding_is_found_whatever_stands_around_its_name(original, assert_same, name):
  prefix, model = original(rename={TABLE: name})
  assert_same(read_tensorflow(prefix, num_attention_heads=4).leaves, {path: model.read(path) for path in model.shapes})


def test_an_output_embedding_stored_the_other_way_round_is_turned(original, assert_same):
  prefix, model = original(change=lambda variables: variables.update({TABLE: variables[TABLE].T.copy()}))
  assert_same(read_tensorflow(prefix, num_attention_heads=4).leaves, {path: model.read(path) for path in model.shapes})


def test_the_original_code_had_the_tanh_gelu_and_heads_of_64(original, tmp_path):
  prefix, _ = original(hidden_size=128, num_attention_heads=2)
  config = read_tensorflow(prefix).config
  assert (config.hidden_act, config.num_attention_heads) == ('gelu_tanh', 2)
  file = tmp_path / 'bert_config.json'
  file.write_text(json.dumps({'num_attention_heads': 8, 'classifier_dropout_prob': 0.3, 'hidden_size': 7}))
  config = read_tensorflow(prefix, config_file=file).config
  assert (config.num_attention_heads, config.classifier_dropout_prob, config.hidden_size) == (8, 0.3, 128)
  assert read_tensorflow(prefix, config_file=file, num_attention_heads=16).config.num_attention_heads == 16


def test_the_folder_or_the_index_file_do_as_well(original, tensorflow):
  prefix, model = original()
  assert read_tensorflow(f'{prefix}.index', num_attention_heads=4).config.vocab_size == model.config.vocab_size
  (prefix.parent / 'checkpoint').write_text(f'model_checkpoint_path: "{prefix.name}"\n')
  assert read_tensorflow(prefix.parent, num_attention_heads=4).config.vocab_size == model.config.vocab_size


def test_what_is_missing_or_unexpected_is_listed(original):
  def damage(variables):
    del variables['bert/encoder/layer_1/output/dense/bias']
    variables['bert/encoder/layer_1/output/dense/extra'] = np.zeros(3, np.float32)

  prefix, _ = original(change=damage)
  with pytest.raises(UsageError) as caught:
    read_tensorflow(prefix, num_attention_heads=4)
  assert 'missing (1)\n    bert/encoder/layer_1/output/dense/bias' in str(caught.value)
  assert 'unexpected (1)\n    bert/encoder/layer_1/output/dense/extra' in str(caught.value)
  assert 'adam' not in str(caught.value)


def test_what_is_no_checkpoint_or_a_damaged_one_is_told_so(original, tmp_path):
  with pytest.raises(UsageError, match='TensorFlow cannot read the checkpoint'):
    read_tensorflow(tmp_path / 'nowhere')
  prefix, _ = original()
  [data] = prefix.parent.glob('*.data-*')
  data.write_bytes(data.read_bytes()[:1000])
  with pytest.raises(UsageError, match='damaged checkpoint'):
    read_tensorflow(prefix, num_attention_heads=4)


def test_another_model_is_refused(original):
  prefix, _ = original(rename={'bert/embeddings/word_embeddings': 'albert/embeddings/word_embeddings'})
  with pytest.raises(UsageError, match='no RemBERT'):
    read_tensorflow(prefix)
