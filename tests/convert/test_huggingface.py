"""Directories of Hugging Face: exported and imported bit-exactly, and every way in which they can be wrong."""

import functools
import json
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hugging_face_cases import golden_file, load_golden
from random_checkpoints import leaves_of

from rembert.checkpoint.load import import_model, open_source
from rembert.convert import huggingface
from rembert.convert.huggingface import export, read_description
from rembert.errors import RunError, UsageError
from rembert.model.heads import HEADS, POOLED


def read_hugging_face(folder, **options):
  return import_model(huggingface.open_source(pathlib.Path(folder)), **options)


def weights_of(folder):
  return safetensors.numpy.load_file(folder / 'model.safetensors')


def rewrite(folder, change):
  """Writes the weights again after `change(tensors)`."""
  tensors = weights_of(folder)
  change(tensors)
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors', metadata={'format': 'pt'})


def rewrite_config(folder, **fields):
  file = folder / 'config.json'
  file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture(scope='module')
def pristine(written_run, tmp_path_factory):
  """A masked-language model in one file, and in shards of 40 kB at most; not to be changed."""
  folder = tmp_path_factory.mktemp('exports')
  model = open_source(written_run('mlm', has_pooler=True))
  written = export(model, folder / 'mlm')
  assert written.left_out == ('encoder/pooler/bias', 'encoder/pooler/kernel')
  export(model, folder / 'many', shard_bytes=40_000)
  return folder


@pytest.fixture
def exported(pristine, tmp_path):
  """A directory of Hugging Face with a random masked-language model, to be changed."""
  return pathlib.Path(shutil.copytree(pristine / 'mlm', tmp_path / 'exported'))


@pytest.fixture
def sharded(pristine, tmp_path):
  """The same in shards."""
  return pathlib.Path(shutil.copytree(pristine / 'many', tmp_path / 'many'))


# --- out and back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('head', 'fields'),
  [
    *((head, {}) for head in (None, *HEADS)),
    ('mlm', {'input_embedding_size': 32}),
    ('mlm', {'input_embedding_size': 32, 'always_project_embeddings': True}),
    ('mlm', {'output_embedding_size': 18, 'tie_word_embeddings': True}),
    ('mlm', {'hidden_act': 'gelu_tanh', 'vocab_size': 384}),
    ('mlm', {'layer_norm_eps': 1e-6, 'hidden_dropout_prob': 0.1, 'type_vocab_size': 5}),
  ],
  ids=lambda part: ', '.join(part) if isinstance(part, dict) else part,
)
def test_every_head_and_architecture_is_exported_and_imported_bit_exactly(saved, tmp_path, assert_same, head, fields):
  model = saved(head, has_pooler=head in (None, *POOLED), **fields)
  export(model, tmp_path / 'exported')
  back = read_hugging_face(tmp_path / 'exported')
  assert (back.config, back.head, back.labels) == (model.config, head, model.labels)
  assert_same(back.leaves, leaves_of(model))
  assert (back.missing, back.left_out) == ((), ())
  if head and not fields:
    like = 'classification' if head == 'regression' else head  # with one label
    theirs, _ = load_golden(golden_file('odd sizes', like))  # a model of transformers with as many layers
    assert weights_of(tmp_path / 'exported').keys() == theirs.keys()


@pytest.mark.parametrize(
  ('problem', 'head'), [('regression', 'regression'), (None, 'regression'), ('multi_label_classification', None)]
)
def test_one_label_is_a_number_unless_the_configuration_says_otherwise(saved, tmp_path, problem, head):
  export(saved('regression', has_pooler=True), tmp_path / 'exported')
  file = tmp_path / 'exported' / 'config.json'
  content = json.loads(file.read_text())
  assert (content['architectures'], content['problem_type']) == (['RemBertForSequenceClassification'], 'regression')
  assert list(content['id2label']) == ['0']
  file.write_text(json.dumps(content | {'problem_type': problem}))
  source = huggingface.open_source(tmp_path / 'exported')
  assert source.head == (head or 'classification')
  assert source.labels == (() if head else ('LABEL_0',))


def test_shards_hold_what_one_file_does_and_are_no_larger_than_asked_for_unless_they_are_one_tensor(
  pristine, assert_same
):
  shards = sorted((pristine / 'many').glob('*.safetensors'))
  assert len(shards) > 2
  whole = weights_of(pristine / 'mlm')
  index = json.loads((pristine / 'many' / 'model.safetensors.index.json').read_text())
  assert index['weight_map'].keys() == whole.keys()
  assert index['metadata']['total_size'] == sum(tensor.nbytes for tensor in whole.values())
  assert_same(read_hugging_face(pristine / 'many').leaves, read_hugging_face(pristine / 'mlm').leaves)
  for shard in shards:
    sizes = [tensor.nbytes for tensor in safetensors.numpy.load_file(shard).values()]
    assert sum(sizes) <= 40_000 or len(sizes) == 1


def test_half_precision_is_read_as_float32(exported):
  def halve(tensors):
    for name in tensors:
      tensors[name] = tensors[name].astype(ml_dtypes.bfloat16)

  expected = weights_of(exported)['rembert.encoder.embedding_hidden_mapping_in.bias'].astype(ml_dtypes.bfloat16)
  rewrite(exported, halve)
  bias = read_hugging_face(exported).leaves['encoder/projection/bias']
  assert bias.dtype == np.float32
  assert np.array_equal(bias, expected.astype(np.float32))


# --- what the tensors mean, by Hugging Face's own definition: y = x · weightᵀ + bias ----------------------------------


def test_query_key_and_value_are_exported_each_under_its_name_and_transposed(saved, tmp_path):
  model = saved('mlm')
  export(model, tmp_path / 'exported')
  tensors, leaves = weights_of(tmp_path / 'exported'), leaves_of(model)
  kernel_LxHx3xNxD = leaves['encoder/layers/attention/qkv/kernel']
  output_LxNxDxH = leaves['encoder/layers/attention/output/kernel']
  hidden = model.config.hidden_size
  for layer in range(model.config.num_hidden_layers):
    prefix = f'rembert.encoder.layer.{layer}.attention'
    for part, name in enumerate(('query', 'key', 'value')):
      expected = kernel_LxHx3xNxD[layer, :, part].reshape(hidden, hidden).T
      assert np.array_equal(tensors[f'{prefix}.self.{name}.weight'], expected)
    assert np.array_equal(tensors[f'{prefix}.output.dense.weight'], output_LxNxDxH[layer].reshape(hidden, hidden).T)


def test_labels_are_ordered_by_their_number_and_activations_are_those_of_transformers(exported):
  rewrite_config(exported, id2label={str(index): f'label {index}' for index in reversed(range(12))})
  assert read_description(exported).labels == tuple(f'label {index}' for index in range(12))
  activations = {'gelu': 'gelu'} | dict.fromkeys(('gelu_new', 'gelu_fast', 'gelu_pytorch_tanh'), 'gelu_tanh')
  for theirs, ours in activations.items():
    rewrite_config(exported, hidden_act=theirs)
    assert read_description(exported).config.hidden_act == ours


def test_an_output_embedding_that_differs_from_the_word_embedding_is_kept_whatever_the_configuration_says(
  saved, tmp_path
):
  model = saved('mlm', output_embedding_size=18)
  export(model, tmp_path / 'exported')
  rewrite_config(tmp_path / 'exported', tie_word_embeddings=True)
  back = read_hugging_face(tmp_path / 'exported')
  assert not back.config.tie_word_embeddings
  assert np.array_equal(back.leaves['mlm/output_embedding'], leaves_of(model)['mlm/output_embedding'])


def test_an_identity_projection_with_a_bias_is_kept(saved, tmp_path):
  export(saved('mlm', input_embedding_size=32), tmp_path / 'exported')
  rewrite(tmp_path / 'exported', lambda tensors: tensors['rembert.encoder.embedding_hidden_mapping_in.bias'].fill(2.5))
  back = read_hugging_face(tmp_path / 'exported')
  assert back.config.always_project_embeddings
  assert np.all(back.leaves['encoder/projection/bias'] == 2.5)


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def whole(pristine):
  """The exported model, as it is."""
  return read_hugging_face(pristine / 'mlm')


@pytest.fixture(scope='module')
def imported(pristine):
  """Imports it with options."""
  return functools.partial(read_hugging_face, pristine / 'mlm')


def test_a_new_head_is_initialised_only_when_allowed(imported):
  with pytest.raises(UsageError, match='no head for classification'):
    imported(head='classification')
  with pytest.raises(UsageError, match=r'missing \(4\)') as caught:
    imported(head='classification', num_labels=3)
  assert 'classifier.weight' in str(caught.value)
  assert 'pooler.dense.bias' in str(caught.value)
  model = imported(head='classification', num_labels=3, allow_missing=True)
  assert set(model.missing) == {'classifier.weight', 'classifier.bias', 'pooler.dense.weight', 'pooler.dense.bias'}
  assert model.leaves['classifier/kernel'].shape == (32, 3)
  assert 0 < np.abs(model.leaves['classifier/kernel']).max() <= 2 * model.config.initializer_range
  assert not np.any(model.leaves['classifier/bias'])
  assert model.labels == ('LABEL_0', 'LABEL_1', 'LABEL_2')


def test_missing_kernels_differ_from_layer_to_layer_and_missing_norms_are_the_identity(exported):
  is_missing = lambda name: 'LayerNorm' in name or name.endswith(('query.weight', 'key.weight', 'value.weight'))
  rewrite(exported, lambda tensors: [tensors.pop(name) for name in list(tensors) if is_missing(name)])
  leaves = read_hugging_face(exported, allow_missing=True).leaves
  parts = [part for layer in leaves['encoder/layers/attention/qkv/kernel'] for part in np.moveaxis(layer, 1, 0)]
  assert len(parts) > 3
  assert len({part.tobytes() for part in parts}) == len(parts)
  assert np.all(leaves['encoder/layers/attention_norm/scale'] == 1)
  assert not np.any(leaves['encoder/layers/attention_norm/bias'])


def bottom(leaves, count):
  """Parameters of a model with fewer layers."""
  return {path: leaf[:count] if path.startswith('encoder/layers/') else leaf for path, leaf in leaves.items()}


def test_the_head_and_layers_from_the_top_are_left_out_on_request(imported, whole, assert_same):
  encoder = imported(head=None)
  assert (encoder.head, {path.partition('/')[0] for path in encoder.leaves}) == (None, {'encoder'})
  assert 'cls.predictions.decoder.weight' in encoder.left_out
  kept = imported(num_hidden_layers=2)
  assert kept.config.num_hidden_layers == 2
  assert_same(kept.leaves, bottom(whole.leaves, 2))
  assert_same(imported(num_hidden_layers=3).leaves, whole.leaves)
  with pytest.raises(UsageError, match='4 layers cannot be kept of 3'):
    imported(num_hidden_layers=4)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_tensors_that_do_not_fit_are_listed_together(exported):
  def damage(tensors):
    del tensors['rembert.encoder.layer.1.output.dense.bias']
    tensors['rembert.encoder.layer.1.output.dense.extra'] = np.zeros(3, np.float32)
    tensors['rembert.embeddings.LayerNorm.bias'] = np.zeros(3, np.float32)
    tensors['rembert.encoder.layer.0.intermediate.dense.weight'] = np.zeros((32, 37), np.float32)

  rewrite(exported, damage)
  with pytest.raises(UsageError) as caught:
    read_hugging_face(exported)
  message = str(caught.value)
  assert 'missing (1)\n    encoder.layer.1.output.dense.bias' in message
  assert 'unexpected (1)\n    encoder.layer.1.output.dense.extra' in message
  assert 'embeddings.LayerNorm.bias is [3], not [18]' in message
  assert 'encoder.layer.0.intermediate.dense.weight is [32, 37], not [37, 32]' in message
  assert '--allow_missing' in message
  assert '--allow_unexpected' in message


def test_unexpected_tensors_are_left_out_when_allowed_and_the_old_buffer_always(exported):
  rewrite(exported, lambda tensors: tensors.update({'rembert.embeddings.position_ids': np.arange(48)[None]}))
  assert read_hugging_face(exported).left_out == ()
  rewrite(exported, lambda tensors: tensors.update(extra=np.zeros(3, np.float32)))
  assert read_hugging_face(exported, allow_unexpected=True).left_out == ('extra',)


@pytest.mark.parametrize('keep', [0, 7, 1000, -10])
def test_a_damaged_file_of_weights_is_named(exported, keep):
  file = exported / 'model.safetensors'
  file.write_bytes(file.read_bytes()[:keep])
  with pytest.raises(UsageError, match='damaged safetensors file') as caught:
    read_hugging_face(exported)
  assert str(file) in str(caught.value)


def test_shards_that_do_not_go_with_their_index_are_refused(sharded):
  file = sharded / 'model.safetensors.index.json'
  victim = sorted(sharded.glob('model-*'))[1]
  victim.unlink()
  with pytest.raises(UsageError, match=f'weights files are missing: {victim.name}'):
    read_hugging_face(sharded)
  file.write_text('{"weight_map": 3}')
  with pytest.raises(UsageError, match='not an index of shards'):
    read_hugging_face(sharded)


@pytest.mark.parametrize(
  ('fields', 'words'),
  [
    ({'model_type': 'bert'}, "the model is 'bert', not a rembert"),
    ({'is_decoder': True}, 'a decoder'),
    ({'hidden_act': 'relu'}, "unknown activation 'relu'"),
    ({'num_attention_heads': 5}, 'is not divisible by'),
    ({'hidden_size': 36}, 'another shape'),
  ],
  ids=['type', 'decoder', 'activation', 'heads', 'width'],
)
def test_another_model_is_refused(exported, fields, words):
  rewrite_config(exported, **fields)
  with pytest.raises(UsageError, match=words):
    read_hugging_face(exported)


def test_directories_without_a_model_say_what_they_lack(exported, tmp_path):
  with pytest.raises(UsageError, match='the configuration does not exist'):
    read_hugging_face(tmp_path / 'nowhere')
  (exported / 'model.safetensors').unlink()
  with pytest.raises(UsageError, match='1 of 1 weights files'):
    read_hugging_face(exported)
  (exported / 'config.json').write_text('{')
  with pytest.raises(UsageError, match='invalid JSON'):
    read_hugging_face(exported)


def test_an_export_is_complete_or_not_there(saved, pristine, tmp_path, monkeypatch):
  model = saved('mlm')
  with pytest.raises(UsageError, match='a head for mlm, not for qa'):
    export(model, tmp_path / 'exported', head='qa')
  with pytest.raises(UsageError, match='not a checkpoint of this project'):
    export(open_source(pristine / 'mlm'), tmp_path / 'exported')
  monkeypatch.setattr(safetensors.numpy, 'save_file', lambda *_, **__: (_ for _ in ()).throw(OSError('disk full')))
  with pytest.raises(RunError, match='the export could not be written: disk full'):
    export(model, tmp_path / 'exported')
  assert {path.name for path in tmp_path.iterdir()} == {'run'}
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'mine').write_text('precious')
  with pytest.raises(UsageError, match='the destination exists'):
    export(model, tmp_path / 'full')
  assert (tmp_path / 'full' / 'mine').read_text() == 'precious'


# --- our own checkpoints, by the same rules ---------------------------------------------------------------------------


def test_our_own_checkpoints_give_every_head_and_fewer_layers(saved, assert_same):
  model = saved('mlm', has_pooler=True)
  expected = leaves_of(model)
  assert_same(import_model(model).leaves, expected)
  encoder = import_model(model, head=None, num_hidden_layers=1)
  assert encoder.config.num_hidden_layers == 1
  assert_same(encoder.leaves, bottom({path: expected[path] for path in expected if path.startswith('encoder/')}, 1))
  with pytest.raises(UsageError, match=r'missing \(2\)'):
    import_model(model, head='classification', num_labels=3)
