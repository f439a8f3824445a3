"""Folders of Hugging Face: out and back to the bit, and every way in which they can be wrong."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from rembert.checkpoint.load import open_saved
from rembert.convert.exporting import export
from rembert.convert.huggingface import read_description
from rembert.convert.importing import ImportOptions, read_hugging_face, read_model
from rembert.errors import RunError, UsageError
from rembert.model.heads import HEADS


def weights_of(folder):
  return safetensors.numpy.load_file(folder / 'model.safetensors')


def rewrite(folder, change):
  """Writes the weights anew after `change(tensors)`."""
  tensors = weights_of(folder)
  change(tensors)
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors', metadata={'format': 'pt'})


def rewrite_config(folder, **fields):
  file = folder / 'config.json'
  file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture
def exported(saved, tmp_path):
  """A folder of Hugging Face with a random masked-language model."""
  export(saved('mlm'), tmp_path / 'exported')
  return tmp_path / 'exported'


# --- out and back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('head', [None, *HEADS])
def test_every_head_goes_out_and_comes_back_to_the_bit(saved, tmp_path, assert_same, head):
  model = saved(head, has_pooler=head in (None, 'classification', 'multiple_choice'))
  export(model, tmp_path / 'exported')
  back = read_hugging_face(tmp_path / 'exported')
  assert (back.config, back.head, back.labels) == (model.config, head, model.labels)
  assert_same(back.leaves, {path: model.read(path) for path in model.shapes})
  assert (back.missing, back.left_out) == ((), ())


@pytest.mark.parametrize(
  'fields',
  [
    {'input_embedding_size': 32},
    {'input_embedding_size': 32, 'always_project_embeddings': True},
    {'output_embedding_size': 18, 'tie_word_embeddings': True},
    {'hidden_act': 'gelu_tanh'},
    {'vocab_size': 384},
    {'layer_norm_eps': 1e-6, 'hidden_dropout_prob': 0.1, 'type_vocab_size': 5},
  ],
  ids=lambda fields: ', '.join(fields),
)
def test_every_architecture_goes_out_and_comes_back(saved, tmp_path, assert_same, fields):
  model = saved('mlm', **fields)
  export(model, tmp_path / 'exported')
  back = read_hugging_face(tmp_path / 'exported')
  assert back.config == model.config
  assert_same(back.leaves, {path: model.read(path) for path in model.shapes})


def test_their_weights_come_back_to_them_to_the_bit(exported, saved, tmp_path):
  # Theirs → ours → theirs: what we wrote, changed at random, stands for weights that we never had.
  random = np.random.default_rng(1)
  rewrite(exported, lambda tensors: [t.__setitem__(..., random.standard_normal(t.shape)) for t in tensors.values()])
  from rembert.convert import importing

  importing.save(read_hugging_face(exported), tmp_path / 'ours', None)
  export(open_saved(tmp_path / 'ours'), tmp_path / 'again')
  before, after = weights_of(exported), weights_of(tmp_path / 'again')
  assert before.keys() == after.keys()
  assert all(np.array_equal(before[name], after[name]) for name in before)


def test_shards_hold_what_one_file_does(saved, tmp_path, assert_same):
  model = saved('mlm')
  export(model, tmp_path / 'one')
  export(model, tmp_path / 'many', shard_bytes=40_000)
  shards = sorted((tmp_path / 'many').glob('*.safetensors'))
  assert len(shards) > 2
  index = json.loads((tmp_path / 'many' / 'model.safetensors.index.json').read_text())
  assert index['weight_map'].keys() == weights_of(tmp_path / 'one').keys()
  assert index['metadata']['total_size'] == sum(t.nbytes for t in weights_of(tmp_path / 'one').values())
  assert_same(read_hugging_face(tmp_path / 'many').leaves, read_hugging_face(tmp_path / 'one').leaves)


def test_half_precision_is_read_as_float32(exported):
  def halve(tensors):
    for name in tensors:
      tensors[name] = tensors[name].astype(ml_dtypes.bfloat16)

  expected = weights_of(exported)['rembert.encoder.embedding_hidden_mapping_in.bias'].astype(ml_dtypes.bfloat16)
  rewrite(exported, halve)
  bias = read_hugging_face(exported).leaves['encoder/projection/bias']
  assert bias.dtype == np.float32
  assert np.array_equal(bias, expected.astype(np.float32))


def test_an_encoder_alone_is_exported_with_its_pooler_and_a_masked_model_without(saved, tmp_path):
  model = saved('mlm', has_pooler=True)
  written = export(model, tmp_path / 'mlm')
  assert written.left_out == ('encoder/pooler/bias', 'encoder/pooler/kernel')
  assert not [name for name in weights_of(tmp_path / 'mlm') if 'pooler' in name]
  export(model, tmp_path / 'encoder', head=None)
  names = weights_of(tmp_path / 'encoder').keys()
  assert 'pooler.dense.weight' in names
  assert not [name for name in names if name.startswith(('cls.', 'rembert.'))]


# --- what the tensors mean, by Hugging Face's own definition: y = x · weightᵀ + bias ----------------------------------


def test_query_key_and_value_go_out_each_under_its_name_and_transposed(saved, tmp_path):
  model = saved('mlm')
  export(model, tmp_path / 'exported')
  tensors = weights_of(tmp_path / 'exported')
  kernel_LxHx3xNxD = model.read('encoder/layers/attention/qkv/kernel')
  output_LxNxDxH = model.read('encoder/layers/attention/output/kernel')
  hidden = model.config.hidden_size
  for layer in range(model.config.num_hidden_layers):
    prefix = f'rembert.encoder.layer.{layer}.attention'
    for part, name in enumerate(('query', 'key', 'value')):
      expected = kernel_LxHx3xNxD[layer, :, part].reshape(hidden, hidden).T
      assert np.array_equal(tensors[f'{prefix}.self.{name}.weight'], expected)
    assert np.array_equal(tensors[f'{prefix}.output.dense.weight'], output_LxNxDxH[layer].reshape(hidden, hidden).T)


def test_labels_are_ordered_by_their_number(saved, tmp_path):
  export(saved('tagging'), tmp_path / 'exported')
  rewrite_config(tmp_path / 'exported', id2label={str(index): f'label {index}' for index in reversed(range(12))})
  assert read_description(tmp_path / 'exported').labels == tuple(f'label {index}' for index in range(12))


@pytest.mark.parametrize(
  ('theirs', 'ours'),
  [('gelu', 'gelu'), ('gelu_new', 'gelu_tanh'), ('gelu_fast', 'gelu_tanh'), ('gelu_pytorch_tanh', 'gelu_tanh')],
)
def test_activations_are_those_of_transformers(exported, theirs, ours):
  rewrite_config(exported, hidden_act=theirs)
  assert read_hugging_face(exported).config.hidden_act == ours


def test_a_shard_is_no_larger_than_asked_for_unless_it_is_one_tensor(saved, tmp_path):
  export(saved('mlm'), tmp_path / 'many', shard_bytes=40_000)
  for shard in (tmp_path / 'many').glob('*.safetensors'):
    sizes = [tensor.nbytes for tensor in safetensors.numpy.load_file(shard).values()]
    assert sum(sizes) <= 40_000 or len(sizes) == 1


def test_an_output_embedding_that_differs_from_the_word_embedding_is_kept_whatever_the_configuration_says(
  saved, tmp_path
):
  model = saved('mlm', output_embedding_size=18)
  export(model, tmp_path / 'exported')
  rewrite_config(tmp_path / 'exported', tie_word_embeddings=True)
  back = read_hugging_face(tmp_path / 'exported')
  assert not back.config.tie_word_embeddings
  assert np.array_equal(back.leaves['mlm/output_embedding'], model.read('mlm/output_embedding'))


def test_an_identity_projection_with_a_bias_is_kept(saved, tmp_path):
  model = saved('mlm', input_embedding_size=32)
  export(model, tmp_path / 'exported')
  assert not read_hugging_face(tmp_path / 'exported').config.always_project_embeddings
  rewrite(tmp_path / 'exported', lambda tensors: tensors['rembert.encoder.embedding_hidden_mapping_in.bias'].fill(2.5))
  back = read_hugging_face(tmp_path / 'exported')
  assert back.config.always_project_embeddings
  assert np.all(back.leaves['encoder/projection/bias'] == 2.5)


def test_as_many_layers_may_be_kept_as_there_are_and_no_more(exported, assert_same):
  layers = read_hugging_face(exported).config.num_hidden_layers
  kept = read_hugging_face(exported, ImportOptions(num_hidden_layers=layers))
  assert_same(kept.leaves, read_hugging_face(exported).leaves)
  with pytest.raises(UsageError):
    read_hugging_face(exported, ImportOptions(num_hidden_layers=layers + 1))


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_a_new_head_is_drawn_only_when_allowed(exported):
  with pytest.raises(UsageError, match='no head for classification'):
    read_hugging_face(exported, ImportOptions(head='classification'))
  with pytest.raises(UsageError, match=r'missing \(4\)') as caught:
    read_hugging_face(exported, ImportOptions(head='classification', num_labels=3))
  assert 'classifier.weight' in str(caught.value)
  assert 'pooler.dense.bias' in str(caught.value)
  model = read_hugging_face(exported, ImportOptions(head='classification', num_labels=3, allow_missing=True))
  assert set(model.missing) == {'classifier.weight', 'classifier.bias', 'pooler.dense.weight', 'pooler.dense.bias'}
  assert model.leaves['classifier/kernel'].shape == (32, 3)
  assert 0 < np.abs(model.leaves['classifier/kernel']).max() <= 2 * model.config.initializer_range
  assert not np.any(model.leaves['classifier/bias'])
  assert model.labels == ('LABEL_0', 'LABEL_1', 'LABEL_2')


def test_tensors_that_are_newly_initialised_differ_from_layer_to_layer(exported):
  is_missing = lambda name: name.endswith(('self.query.weight', 'self.key.weight', 'self.value.weight'))

  def leave_out(tensors):
    for name in [name for name in tensors if is_missing(name)]:
      del tensors[name]

  rewrite(exported, leave_out)
  kernel_LxHx3xNxD = read_hugging_face(exported, ImportOptions(allow_missing=True)).leaves[
    'encoder/layers/attention/qkv/kernel'
  ]
  parts = [part for layer in kernel_LxHx3xNxD for part in np.moveaxis(layer, 1, 0)]
  assert len(parts) > 3
  assert len({part.tobytes() for part in parts}) == len(parts)


def test_a_missing_norm_begins_as_the_identity(exported):
  rewrite(exported, lambda tensors: [tensors.pop(name) for name in list(tensors) if 'LayerNorm' in name])
  leaves = read_hugging_face(exported, ImportOptions(allow_missing=True)).leaves
  assert np.all(leaves['encoder/layers/attention_norm/scale'] == 1)
  assert not np.any(leaves['encoder/layers/attention_norm/bias'])


def test_asking_for_the_encoder_leaves_the_head_out(exported):
  model = read_hugging_face(exported, ImportOptions(head=None))
  assert model.head is None
  assert not [path for path in model.leaves if not path.startswith('encoder/')]
  assert 'cls.predictions.decoder.weight' in model.left_out


def test_layers_are_dropped_from_the_top(exported):
  every = read_hugging_face(exported).leaves
  kept = read_hugging_face(exported, ImportOptions(num_hidden_layers=2))
  assert kept.config.num_hidden_layers == 2
  for path, leaf in every.items():
    expected = leaf[:2] if path.startswith('encoder/layers/') else leaf
    assert np.array_equal(kept.leaves[path], expected), path
  with pytest.raises(UsageError, match='4 layers cannot be kept of 3'):
    read_hugging_face(exported, ImportOptions(num_hidden_layers=4))


def test_both_tables_are_resized_each_by_itself(exported):
  every = read_hugging_face(exported).leaves
  with pytest.raises(UsageError, match='another shape') as caught:
    read_hugging_face(exported, ImportOptions(input_vocab_size=400))
  assert '--output_vocab_size' in str(caught.value)
  for size in 400, 200:
    model = read_hugging_face(exported, ImportOptions(input_vocab_size=size, output_vocab_size=size))
    assert model.config.vocab_size == size
    both = min(size, 331)
    for path in 'encoder/embeddings/word/embedding', 'mlm/output_embedding', 'mlm/bias':
      leaf = model.leaves[path]
      assert len(leaf) == model.config.padded_vocab_size
      assert np.array_equal(leaf[:both], every[path][:both])
      assert not np.any(leaf[size:])
      new = leaf[both:size]
      assert np.abs(new).max(initial=0) <= 2 * model.config.initializer_range
      assert path == 'mlm/bias' or np.all(np.any(new, axis=1))
  # The encoder alone has one table.
  encoder = read_hugging_face(exported, ImportOptions(head=None, input_vocab_size=400))
  assert encoder.config.vocab_size == 400


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_tensors_that_do_not_fit_are_listed_together(exported):
  def damage(tensors):
    del tensors['rembert.encoder.layer.1.output.dense.bias']
    tensors['rembert.encoder.layer.1.output.dense.extra'] = np.zeros(3, np.float32)
    tensors['rembert.embeddings.LayerNorm.bias'] = np.zeros(3, np.float32)

  rewrite(exported, damage)
  with pytest.raises(UsageError) as caught:
    read_hugging_face(exported)
  message = str(caught.value)
  assert 'missing (1)\n    encoder.layer.1.output.dense.bias' in message
  assert 'unexpected (1)\n    encoder.layer.1.output.dense.extra' in message
  assert 'embeddings.LayerNorm.bias is [3], not [18]' in message
  assert '--allow_missing' in message
  assert '--allow_unexpected' in message


def test_what_is_unexpected_is_left_out_when_allowed_and_the_old_buffer_always(exported):
  def add(tensors):
    tensors['rembert.embeddings.position_ids'] = np.arange(48)[None]

  rewrite(exported, add)
  assert read_hugging_face(exported).left_out == ()
  rewrite(exported, lambda tensors: tensors.update(extra=np.zeros(3, np.float32)))
  assert read_hugging_face(exported, ImportOptions(allow_unexpected=True)).left_out == ('extra',)


@pytest.mark.parametrize('keep', [0, 7, 1000, -10])
def test_a_damaged_file_of_weights_is_told_so(exported, keep):
  file = exported / 'model.safetensors'
  file.write_bytes(file.read_bytes()[:keep])
  with pytest.raises(UsageError, match='damaged safetensors file') as caught:
    read_hugging_face(exported)
  assert str(file) in str(caught.value)


def test_a_missing_shard_is_named(saved, tmp_path):
  export(saved('mlm'), tmp_path / 'many', shard_bytes=40_000)
  victim = sorted((tmp_path / 'many').glob('model-*'))[1]
  victim.unlink()
  with pytest.raises(UsageError, match=f'shards are missing: {victim.name}'):
    read_hugging_face(tmp_path / 'many')
  (tmp_path / 'many' / 'model.safetensors.index.json').write_text('{"weight_map": 3}')
  with pytest.raises(UsageError, match='not an index of shards'):
    read_hugging_face(tmp_path / 'many')


def test_an_index_that_names_more_than_the_shards_hold_is_refused(saved, tmp_path):
  export(saved('mlm'), tmp_path / 'many', shard_bytes=40_000)
  file = tmp_path / 'many' / 'model.safetensors.index.json'
  index = json.loads(file.read_text())
  index['weight_map']['lost'] = next(iter(index['weight_map'].values()))
  file.write_text(json.dumps(index))
  with pytest.raises(UsageError, match='names 1 tensors that no shard holds, lost'):
    read_hugging_face(tmp_path / 'many')


@pytest.mark.parametrize(
  ('fields', 'words'),
  [
    ({'model_type': 'bert'}, "the model is 'bert', not a rembert"),
    ({'is_decoder': True}, 'a decoder'),
    ({'hidden_act': 'relu'}, "unknown activation 'relu'"),
    ({'num_attention_heads': 5}, 'heads do not divide'),
    ({'hidden_size': 36}, 'another shape'),
  ],
  ids=['type', 'decoder', 'activation', 'heads', 'width'],
)
def test_another_model_is_refused(exported, fields, words):
  rewrite_config(exported, **fields)
  with pytest.raises(UsageError, match=words):
    read_hugging_face(exported)


def test_folders_without_a_model_say_what_they_lack(exported, tmp_path):
  with pytest.raises(UsageError, match='no model'):
    read_hugging_face(tmp_path / 'nowhere')
  (exported / 'model.safetensors').unlink()
  with pytest.raises(UsageError, match='no weights'):
    read_hugging_face(exported)
  (exported / 'config.json').write_text('{')
  with pytest.raises(UsageError, match='not JSON'):
    read_hugging_face(exported)


def test_an_export_is_whole_or_not_there(saved, tmp_path, monkeypatch):
  model = saved('mlm')
  monkeypatch.setattr(safetensors.numpy, 'save_file', lambda *_, **__: (_ for _ in ()).throw(OSError('disk full')))
  with pytest.raises(RunError, match='the export could not be written: disk full'):
    export(model, tmp_path / 'exported')
  assert {path.name for path in tmp_path.iterdir()} == {'run'}
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'mine').write_text('precious')
  with pytest.raises(UsageError, match='the destination exists'):
    export(model, tmp_path / 'full')
  assert (tmp_path / 'full' / 'mine').read_text() == 'precious'


def test_a_head_that_the_checkpoint_lacks_cannot_be_exported(saved, tmp_path):
  with pytest.raises(UsageError, match='a head for mlm, not for qa'):
    export(saved('mlm'), tmp_path / 'exported', head='qa')


# --- our own checkpoints, by the same rules ---------------------------------------------------------------------------


def test_our_own_checkpoints_give_every_head_and_fewer_layers(saved, assert_same):
  model = saved('mlm', has_pooler=True)
  whole = {path: model.read(path) for path in model.shapes}
  assert_same(read_model(model.folder).leaves, whole)
  encoder = read_model(model.folder, ImportOptions(head=None, num_hidden_layers=1))
  assert encoder.config.num_hidden_layers == 1
  expected = {path: leaf for path, leaf in whole.items() if path.startswith('encoder/')}
  assert_same(
    encoder.leaves, {path: leaf[:1] if path.startswith('encoder/layers/') else leaf for path, leaf in expected.items()}
  )
  with pytest.raises(UsageError, match=r'missing \(2\)'):
    read_model(model.folder, ImportOptions(head='classification', num_labels=3))
