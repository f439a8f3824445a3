"""A new run begins with the very parameters it was given, in shards; what does not fit is named."""

import dataclasses
import math
import pathlib
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from random_checkpoints import TINY

from rembert.checkpoint.initialize import open_initial
from rembert.convert.exporting import export
from rembert.errors import UsageError
from rembert.model.config import Execution
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, make_mesh
from rembert.train.state import masked_lm

# Widths that divide over a mesh of 2·2·2.
FITTING = {'input_embedding_size': 16, 'output_embedding_size': 44, 'intermediate_size': 36}
CONFIG = dataclasses.replace(TINY, **FITTING)
EIGHT = (2, 2, 2)


@pytest.fixture(scope='module')
def fresh():
  """Mesh sizes to a new state and its compiled initialisation."""

  def init(sizes):
    mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: math.prod(sizes)])
    trainable = masked_lm(CONFIG, Execution(), make_optimizer(OptimizerConfig(), 10), mesh)
    with jax.set_mesh(mesh):
      return trainable.init(3)

  return init


def leaves(params):
  return {path: np.asarray(leaf) for path, leaf in flatten_dict(params, sep='/').items()}


@pytest.fixture(params=['a workdir', 'a checkpoint', 'a folder of Hugging Face'])
def origin(request, saved, tmp_path):
  """The same model in each form, and its parameters."""
  model = saved('mlm', **FITTING)
  expected = {path: model.read(path) for path in model.shapes}
  if request.param == 'a workdir':
    return model.workdir, expected
  if request.param == 'a checkpoint':
    return model.folder, expected
  export(model, tmp_path / 'exported')
  return tmp_path / 'exported', expected


def test_all_parameters_come_to_the_bit_and_to_their_places(origin, fresh):
  path, expected = origin
  state = fresh(EIGHT)
  places = [leaf.sharding for leaf in jax.tree.leaves(state.params)]
  old = jax.tree.leaves(state.params)
  state = open_initial(path, 'all', CONFIG).put_into(state)
  found = leaves(state.params)
  assert found.keys() == expected.keys()
  for name, leaf in found.items():
    np.testing.assert_array_equal(leaf, expected[name])
  assert [leaf.sharding for leaf in jax.tree.leaves(state.params)] == places
  assert all(leaf.is_deleted() for leaf in old)  # never twice in memory
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(jax.device_get(state.opt_state)))


def test_the_encoder_alone_leaves_the_head_as_it_was_drawn(saved, fresh):
  model = saved('tagging', has_pooler=True, **FITTING)  # whatever head it had
  state = fresh((1, 1, 1))
  drawn = leaves(state.params['mlm'])
  state = open_initial(model.workdir, 'encoder', CONFIG).put_into(state)
  for name, leaf in leaves(state.params['encoder']).items():
    np.testing.assert_array_equal(leaf, model.read(f'encoder/{name}'))
  for name, leaf in leaves(state.params['mlm']).items():
    np.testing.assert_array_equal(leaf, drawn[name])


def test_the_head_of_another_width_may_be_left_behind(saved):
  model = saved('mlm', **{**FITTING, 'output_embedding_size': 12})
  open_initial(model.workdir, 'encoder', CONFIG)
  with pytest.raises(UsageError, match='mlm/output_embedding') as error:
    open_initial(model.workdir, 'all', CONFIG)
  assert '--gin.RemBertConfig.output_embedding_size=12' in error.value.fix
  assert 'init_from_parts=encoder' in error.value.fix[-1]


@pytest.mark.parametrize(
  ('fields', 'message', 'fix'),
  [
    ({'vocab_size': 300}, r'word/embedding is \[300, 16\], not \[331, 16\]', 'vocab_size=300'),
    ({'num_hidden_layers': 2}, 'encoder/layers/', 'num_hidden_layers=2'),
    ({'intermediate_size': 40}, 'encoder/layers/.* is .*40', 'intermediate_size=40'),
    ({'num_attention_heads': 2}, 'encoder/layers/attention', 'num_attention_heads=2'),
    ({'hidden_act': 'gelu_tanh'}, 'another architecture', 'hidden_act=gelu_tanh'),
    ({'layer_norm_eps': 1e-5}, 'another architecture', 'layer_norm_eps=1e-05'),
  ],
)
def test_what_does_not_fit_is_named(fields, message, fix, saved):
  model = saved('mlm', **{**FITTING, **fields})
  with pytest.raises(UsageError, match=message) as error:
    open_initial(model.workdir, 'all', CONFIG)
  assert str(model.folder) in error.value.where
  assert fix in ' '.join(error.value.fix)


def test_more_layers_of_hugging_face_are_not_cut_off_in_silence(saved, tmp_path):
  export(saved('mlm', **FITTING, num_hidden_layers=4), tmp_path / 'exported')
  with pytest.raises(UsageError, match='another architecture') as error:
    open_initial(tmp_path / 'exported', 'all', CONFIG)
  assert 'num_hidden_layers=4' in error.value.fix[0]


def test_where_there_is_nothing_that_is_said(tmp_path):
  with pytest.raises(UsageError, match='nothing to load'):
    open_initial(tmp_path, 'all', CONFIG)


def test_rows_for_other_pieces_are_refused(saved_with_vocabulary, small_vocabulary, tmp_path):
  initial = open_initial(saved_with_vocabulary, 'all', dataclasses.replace(TINY, vocab_size=700))
  initial.check_vocabulary(small_vocabulary)
  other = shutil.copy(small_vocabulary, tmp_path / 'other.model')
  with open(other, 'ab') as file:
    file.write(b' ')
  with pytest.raises(UsageError, match='another vocabulary') as error:
    initial.check_vocabulary(other)
  content = bytearray(small_vocabulary.read_bytes())
  content[len(content) // 2] ^= 1
  pathlib.Path(other).write_bytes(content)
  with pytest.raises(UsageError, match='another vocabulary'):
    initial.check_vocabulary(other)
  assert f'--gin.vocabulary.path={saved_with_vocabulary}' in error.value.fix[0]
