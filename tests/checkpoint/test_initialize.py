"""A new run begins with the very parameters it was given, in shards; what does not fit is named."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from random_checkpoints import TINY, leaves_of

from rembert.checkpoint.initialize import open_initial
from rembert.checkpoint.load import open_source, read_parameters
from rembert.convert.huggingface import export
from rembert.errors import UsageError
from rembert.model.config import Execution
from rembert.model.heads import parameter_shapes
from rembert.tokenizer import load_vocabulary, parse_model
from rembert.train import state as states
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, make_mesh

# Widths that divide over a mesh of 2·2·2.
FITTING = {'input_embedding_size': 16, 'output_embedding_size': 44, 'intermediate_size': 36, 'vocab_size': 594}
CONFIG = dataclasses.replace(TINY, **FITTING)


@pytest.fixture(scope='module')
def fresh():
  """Makes a new state on eight devices; its initialisation is compiled once."""
  optimizer, mesh = make_optimizer(OptimizerConfig(), 10), make_mesh(MeshConfig(2, 2, 2), jax.devices())
  trainable = states.masked_lm(CONFIG, Execution(), optimizer, mesh, ema_decay=0.9)

  def init():
    with jax.set_mesh(mesh):
      return trainable.init(3)

  return init


def leaves(params):
  return {path: np.array(leaf) for path, leaf in flatten_dict(params, sep='/').items()}


@pytest.mark.parametrize('form', ['a workdir', 'a directory of Hugging Face'])
def test_all_parameters_arrive_bit_exactly_and_in_their_shards(form, saved, tmp_path, fresh):
  model = saved('mlm', **FITTING)
  if form != 'a workdir':
    export(model, tmp_path / 'exported')
  state, expected = fresh(), leaves_of(model)
  places = [leaf.sharding for leaf in jax.tree.leaves(state.params)]
  old = jax.tree.leaves(state.params)
  path = model.workdir if form == 'a workdir' else tmp_path / 'exported'
  state = open_initial(path, 'all', CONFIG).put_into(state)
  found = leaves(state.params)
  assert found.keys() == expected.keys()
  for name, leaf in found.items():
    np.testing.assert_array_equal(leaf, expected[name])
  assert [leaf.sharding for leaf in jax.tree.leaves(state.params)] == places
  assert all(leaf.is_deleted() for leaf in old)  # never twice in memory
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(jax.device_get(state.opt_state)))


def test_the_encoder_alone_leaves_the_head_as_it_was_initialised(saved, fresh):
  model = saved('tagging', has_pooler=True, **FITTING)  # whatever head it had
  state, expected = fresh(), leaves_of(model)
  initial = leaves(state.params['mlm'])
  state = open_initial(model.workdir, 'encoder', CONFIG).put_into(state)
  for name, leaf in leaves(state.params['encoder']).items():
    np.testing.assert_array_equal(leaf, expected[f'encoder/{name}'])
  for name, leaf in leaves(state.params['mlm']).items():
    np.testing.assert_array_equal(leaf, initial[name])


def test_what_is_available_of_the_head_is_taken_and_the_rest_is_named(saved, tmp_path, fresh):
  whole = saved('mlm', **FITTING)
  assert open_initial(whole.workdir, 'available', CONFIG).slots == open_initial(whole.workdir, 'all', CONFIG).slots
  assert not open_initial(whole.workdir, 'available', CONFIG).fresh
  head = {path for path in leaves_of(whole) if path.startswith('mlm/')}
  # As released at Hugging Face: the encoder alone.
  export(whole, tmp_path / 'exported')
  exported = open_source(tmp_path / 'exported')
  encoder = {name: tensor for name, tensor in exported.tensors.items() if not name.startswith('cls.')}
  assert len(encoder) < len(exported.tensors)
  released = dataclasses.replace(exported, tensors=encoder, head=None)
  assert set(open_initial(released, 'available', CONFIG).fresh) == head
  # All but the output embedding.
  source = open_source(whole.workdir)
  tensors = {name: tensor for name, tensor in source.tensors.items() if name != 'mlm/output_embedding'}
  initial = open_initial(dataclasses.replace(source, tensors=tensors), 'available', CONFIG)
  assert initial.fresh == ('mlm/output_embedding',)
  state = fresh()
  before = leaves(state.params)['mlm/output_embedding']
  found, expected = leaves(initial.put_into(state).params), leaves_of(whole)
  for path, leaf in found.items():
    np.testing.assert_array_equal(leaf, before if path == 'mlm/output_embedding' else expected[path])
  # The encoder has to be whole.
  tensors = {name: tensor for name, tensor in source.tensors.items() if 'layers' not in name}
  with pytest.raises(UsageError, match='missing'):
    open_initial(dataclasses.replace(source, tensors=tensors), 'available', CONFIG)


def test_fine_tuning_begins_with_the_bottom_layers(saved):
  """Figure 1 and footnote 4; that embeddings can be frozen: tests/train/test_optimizer.py."""
  before = saved('mlm')
  config = dataclasses.replace(before.config, num_hidden_layers=before.config.num_hidden_layers - 1)
  initial = open_initial(before.workdir, 'encoder', config, head='tagging', num_labels=3, drops_layers=True)
  shapes = parameter_shapes('tagging', config, num_labels=3, add_pooler=False)
  found, written = (
    dict(read_parameters(initial.source, initial.slots, shapes, lambda fraction: None)),
    leaves_of(before),
  )
  assert found.keys() == {path for path in shapes if path.startswith('encoder/')}
  for path, leaf in found.items():
    np.testing.assert_array_equal(leaf, written[path][:2] if path.startswith('encoder/layers/') else written[path])


@pytest.mark.parametrize(
  ('fields', 'message', 'fix'),
  [
    ({'vocab_size': 300}, r'word/embedding is \[300, 16\], not \[594, 16\]', 'vocab_size=300'),
    ({'num_hidden_layers': 2}, 'encoder/layers/', 'num_hidden_layers=2'),
    ({'num_attention_heads': 2}, 'encoder/layers/attention', 'num_attention_heads=2'),
    ({'output_embedding_size': 12}, 'mlm/output_embedding', 'output_embedding_size=12 .*init_from_parts=encoder'),
    ({'hidden_act': 'gelu_tanh'}, 'another architecture', 'hidden_act=gelu_tanh'),
    ({'layer_norm_eps': 1e-5}, 'another architecture', 'layer_norm_eps=1e-05'),
  ],
)
def test_what_does_not_fit_is_named(fields, message, fix, written_run):
  run = written_run('mlm', **{**FITTING, **fields})
  with pytest.raises(UsageError, match=message) as error:
    open_initial(run, 'all', CONFIG)
  assert str(run) in error.value.where
  assert re.search(fix, ' '.join(error.value.fix))
  if 'output_embedding_size' in fields:  # the head may be left behind
    open_initial(run, 'encoder', CONFIG)


def test_more_layers_of_hugging_face_are_not_dropped_silently(written_run, tmp_path):
  export(open_source(written_run('mlm', **FITTING, num_hidden_layers=4)), tmp_path / 'exported')
  with pytest.raises(UsageError, match='another architecture') as error:
    open_initial(tmp_path / 'exported', 'all', CONFIG)
  assert 'num_hidden_layers=4' in error.value.fix[0]


@pytest.fixture
def larger_vocabulary(small_vocabulary, tmp_path):
  """That of 590 tokens with two of them exchanged, 'Stadt' as the beginning of a word, and a special token."""
  proto = parse_model(small_vocabulary.read_bytes())
  proto.pieces[580].piece, proto.pieces[581].piece = proto.pieces[581].piece, proto.pieces[580].piece
  proto.pieces.add(piece='\N{LOWER ONE EIGHTH BLOCK}Stadtmeer', score=-5)
  proto.pieces.add(piece='[NEW]', type=proto.pieces[0].type)
  (tmp_path / 'larger.model').write_bytes(proto.SerializeToString())
  return tmp_path / 'larger.model'


def test_rows_go_to_their_tokens_in_another_vocabulary_and_new_ones_are_means_or_as_initialised(
  saved, small_vocabulary, larger_vocabulary, fresh
):
  model = saved('mlm', **{**FITTING, 'vocab_size': 600})
  (model.workdir / 'vocabulary').mkdir()
  (model.workdir / 'vocabulary' / 'sentencepiece.model').write_bytes(small_vocabulary.read_bytes())
  state, old = fresh(), leaves_of(model)
  first, places = leaves(state.params), jax.tree.map(lambda leaf: leaf.sharding, state.params)
  initial = open_initial(model.workdir, 'all', CONFIG, any_vocabulary=True).for_vocabulary(larger_vocabulary)
  state = initial.put_into(state)
  assert jax.tree.map(lambda leaf: leaf.sharding, state.params) == places
  found = leaves(state.params)
  jax.tree.map(np.testing.assert_array_equal, state.ema, state.params)
  parts = load_vocabulary(small_vocabulary).encode('Stadtmeer')
  assert len(parts) > 1
  tables = {'encoder/embeddings/word/embedding', 'mlm/output_embedding', 'mlm/bias'}
  for path, leaf in found.items():
    if path not in tables:
      np.testing.assert_array_equal(leaf, old[path], err_msg=path)
      continue
    expected = np.zeros_like(leaf)  # as the padding is
    expected[:590] = old[path][[*range(580), 581, 580, *range(582, 590)]]
    expected[590] = old[path][parts].astype(np.float64).mean(axis=0)
    expected[591:594] = first[path][591:594]  # the special token, and rows without a token
    np.testing.assert_array_equal(leaf, expected, err_msg=path)
  assert (initial.transfer.copied, initial.transfer.averaged, initial.transfer.initialised) == (590, 1, 1)


def test_their_own_vocabulary_changes_nothing_and_without_one_another_size_is_refused(
  saved, saved_with_vocabulary, small_vocabulary
):
  config = dataclasses.replace(TINY, vocab_size=700)
  initial = open_initial(saved_with_vocabulary, 'all', config, any_vocabulary=True)
  assert initial.for_vocabulary(small_vocabulary) is initial
  with pytest.raises(UsageError, match='has 800 tokens and the parameters to begin with 331') as error:
    open_initial(
      saved('mlm', name='without').workdir, 'all', dataclasses.replace(TINY, vocab_size=800), any_vocabulary=True
    )
  assert 'RemBertConfig.vocab_size, train.init_from' in error.value.where
  assert 'sentencepiece.model' in error.value.fix[0]
  assert error.value.fix[1] == '--gin.RemBertConfig.vocab_size=331'


def test_rows_for_other_pieces_are_refused(saved_with_vocabulary, small_vocabulary, tmp_path):
  initial = open_initial(saved_with_vocabulary, 'all', dataclasses.replace(TINY, vocab_size=700))
  initial.check_vocabulary(small_vocabulary)
  content = bytearray(small_vocabulary.read_bytes())
  content[len(content) // 2] ^= 1
  (tmp_path / 'other.model').write_bytes(content)  # as long
  with pytest.raises(UsageError, match='another vocabulary') as error:
    initial.check_vocabulary(tmp_path / 'other.model')
  assert f'--gin.vocabulary.path={saved_with_vocabulary}' in error.value.fix[0]
