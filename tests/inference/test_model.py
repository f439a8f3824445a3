"""`rembert.load`: the same numbers from whatever holds them, and clear words otherwise."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import nnx

import rembert
from rembert.checkpoint.load import open_source
from rembert.convert.huggingface import export
from rembert.errors import UsageError
from rembert.model.heads import POOLED

IDS = np.asarray([[5, 7, 9, 11, 0], [5, 8, 2, 0, 0]])
MASK = np.asarray([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
SPECIAL = {'bos_token_id': 5, 'eos_token_id': 11}  # at the ends of the first of IDS


def test_importing_the_package_imports_no_jax_and_its_exports_are_there():
  code = "import sys, rembert; assert not {'jax', 'tensorflow', 'numpy'} & set(sys.modules)"
  subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
  exports = {name: getattr(rembert, name) for name in rembert.__all__}
  assert {name for name, value in exports.items() if value.__name__ != name} == set()
  with pytest.raises(AttributeError, match='has no attribute'):
    rembert.RemBert  # noqa: B018


@pytest.fixture(scope='module')
def workdir(written_run):
  """A masked-language model with a pooler, random; not to be changed."""
  return written_run('mlm', has_pooler=True, **SPECIAL)


@pytest.fixture(scope='module')
def encoder(workdir):
  return rembert.load(workdir)


@pytest.fixture(scope='module')
def headed(workdir):
  return rembert.load(workdir, 'mlm')


@pytest.mark.parametrize('head', [None, 'multiple_choice', 'tagging'])
def test_a_workdir_and_an_export_give_the_same_model(written_run, tmp_path, head):
  model = open_source(written_run(head, has_pooler=head in (None, *POOLED)))
  export(model, tmp_path / 'exported')
  first, other = (rembert.load(path, head) for path in (model.path, tmp_path / 'exported'))
  assert (other.config, other.labels) == (first.config, first.labels) == (model.config, model.labels)
  assert nnx.graphdef(first.module) == nnx.graphdef(other.module)  # their parameters: tests/convert/test_huggingface.py
  output = jax.eval_shape(first.module, IDS[:, None].repeat(3, 1) if head == 'multiple_choice' else IDS)
  shapes = {'tagging': (2, 5, 3), 'multiple_choice': (2, 3)}  # heads: tests/model/test_heads.py
  if head in shapes:
    assert output.logits.shape == shapes[head]


def test_logits_of_a_masked_language_model_have_no_padding_rows(headed):
  logits = headed(IDS, attention_mask=MASK).logits
  assert logits.shape == (2, 5, 331)
  assert np.isfinite(logits).all()


def test_the_encoder_alone_is_that_of_the_model_with_a_head(encoder, headed):
  output = encoder(IDS, attention_mask=MASK, output_hidden_states=True)
  assert np.array_equal(output.last_hidden_state, headed(IDS, attention_mask=MASK).last_hidden_state)
  assert output.hidden_states.shape == (4, 2, 5, 32)
  assert output.pooler_output.shape == (2, 32)
  assert output.logits is None


def test_fewer_layers_are_the_bottom_ones(workdir, encoder):
  states = encoder(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
  kept = rembert.load(workdir, num_hidden_layers=2)(IDS, attention_mask=MASK)
  np.testing.assert_allclose(kept.last_hidden_state, states[2], rtol=0, atol=1e-5 * np.abs(states[2]).max())


def test_embeddings_leave_padding_and_special_pieces_out(encoder):
  states = encoder(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states[1]
  expected = np.stack([states[0, 1:3].mean(0), states[1, 1:3].mean(0)])
  found = encoder.embed(IDS, MASK, layer=1)
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_new_head_is_initialised_on_request_alone(workdir):
  with pytest.raises(UsageError, match='missing'):
    rembert.load(workdir, 'classification', num_labels=3)
  model = rembert.load(workdir, 'classification', num_labels=3, new_head=True)
  assert jax.eval_shape(model.module, IDS).logits.shape == (2, 3)


@pytest.mark.parametrize(
  ('given', 'what', 'fix'),
  [
    ({'input_ids': [5, 7]}, r'input_ids of shape \[2\]', '[B, S]'),
    ({'input_ids': [[[5, 7]]]}, r'input_ids of shape \[1, 1, 2\]', '[B, S]'),
    ({'input_ids': []}, r'input_ids of shape \[0\]', 'at least one token'),
    ({'input_ids': [[]]}, r'input_ids of shape \[1, 0\]', 'at least one token'),
    ({'input_ids': [[5, 7], [5]]}, 'sequences of different lengths', 'pad them'),
    ({'input_ids': [[5.5, 7.0]]}, 'input_ids of float64', 'astype(numpy.int32)'),
    ({'input_ids': [['a']]}, 'input_ids of <U1', 'whole numbers'),
    ({'input_ids': IDS, 'attention_mask': MASK[:1]}, r'attention_mask of shape \[1, 5\] but .*\[2, 5\]', 'same'),
    ({'input_ids': IDS, 'attention_mask': MASK * 2}, 'attention_mask from 0 to 2', '0 to 1'),
    ({'input_ids': IDS, 'token_type_ids': MASK * 7}, 'token_type_ids from 0 to 7', '0 to 1'),
    *(({'input_ids': [[number]]}, "exceed the model's 0 to 330", 'vocabulary') for number in (331, -1, 1 << 40)),
    ({'input_ids': np.zeros((1, 49), int)}, "49 positions exceed the model's 48", 'truncate'),
  ],
)
def test_bad_inputs_are_refused_with_their_shape(headed, given, what, fix):
  with pytest.raises(UsageError, match=what) as error:
    headed(**given)
  assert fix in error.value.fix[0]
  if 'token_type_ids' not in given:
    with pytest.raises(UsageError, match=what):
      headed.embed(given['input_ids'], given.get('attention_mask', np.ones((1, 2), int)), layer=1)


def test_embeddings_of_a_layer_that_is_not_there_are_refused(encoder):
  with pytest.raises(UsageError, match='layer'):
    encoder.embed(IDS, MASK, layer=9)


def test_a_path_without_a_model_is_an_error(tmp_path):
  with pytest.raises(UsageError, match='no model found'):
    rembert.load(tmp_path)
  with pytest.raises(UsageError, match="unknown head 'ner'"):
    rembert.load(tmp_path, 'ner')
