"""The name table: complete, without doubles, and the same both ways."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.convert.tensor_names import OURS, ROW_PER_PIECE, own_slots, slots
from rembert.model.config import RemBertConfig
from rembert.model.heads import HEADS, parameter_shapes

FORMS = ('hugging_face', 'tensorflow')


@st.composite
def models(draw):
  """A configuration, a head, and whether there is a pooler."""
  heads = draw(st.integers(1, 3))
  width = st.integers(1, 9)
  is_tied = draw(st.booleans())
  inputs = draw(width)
  config = RemBertConfig(
    vocab_size=draw(st.integers(1, 20)),
    input_embedding_size=inputs,
    output_embedding_size=inputs if is_tied else draw(width),
    hidden_size=heads * draw(st.integers(1, 3)),
    num_hidden_layers=draw(st.integers(1, 3)),
    num_attention_heads=heads,
    intermediate_size=draw(width),
    max_position_embeddings=draw(width),
    type_vocab_size=draw(st.integers(1, 3)),
    tie_word_embeddings=is_tied,
    always_project_embeddings=draw(st.booleans()),
    pad_vocab_to_multiple_of=draw(st.integers(1, 8)),
  )
  head = draw(st.sampled_from([None, *HEADS]))
  pooler = {'classification': True, 'multiple_choice': True, 'regression': True, 'tagging': False, 'qa': False}
  return config, head, pooler.get(head, draw(st.booleans()))


@settings(max_examples=8, deadline=None)
@given(models())
def test_every_number_of_every_parameter_goes_out_and_comes_back_and_none_twice(model):
  config, head, has_pooler = model
  shapes = parameter_shapes(head, config, num_labels=3, add_pooler=has_pooler)
  # Every number different, so that none can stand in for another.
  ours = {
    path: np.arange(np.prod(shape)).reshape(shape) + 1e6 * index for index, (path, shape) in enumerate(shapes.items())
  }
  for path in ROW_PER_PIECE & ours.keys():
    ours[path][config.vocab_size :] = 0
  for find, form in (slots, FORMS[0]), (slots, FORMS[1]), (own_slots, OURS):
    table = find(config, head, num_labels=3, has_pooler=has_pooler)
    assert {slot.leaf for slot in table} == set(shapes)
    theirs = {slot.name(form): slot.take(ours[slot.leaf], form) for slot in table}
    assert len(theirs) == len(table)
    assert all(theirs[slot.name(form)].shape == slot.shape_in(form) for slot in table)
    back = {path: np.zeros(shape) for path, shape in shapes.items()}
    for slot in table:
      slot.put(back[slot.leaf], theirs[slot.name(form)], form)
    for path, leaf in ours.items():
      np.testing.assert_array_equal(back[path], leaf)
    padding = sum(ours[path][config.vocab_size :].size for path in ROW_PER_PIECE & ours.keys())
    assert sum(tensor.size for tensor in theirs.values()) == sum(leaf.size for leaf in ours.values()) - padding


def test_names_are_those_of_hugging_face_and_of_the_original_checkpoint():
  config = RemBertConfig(num_hidden_layers=32)
  both = {slot.hugging_face: slot.tensorflow for slot in slots(config, 'mlm', has_pooler=True)}
  expected = {
    'embeddings.word_embeddings.weight': 'bert/embeddings/word_embeddings',
    'embeddings.LayerNorm.weight': 'bert/embeddings/LayerNorm/gamma',
    'embeddings.LayerNorm.bias': 'bert/embeddings/LayerNorm/beta',
    'encoder.embedding_hidden_mapping_in.weight': 'bert/encoder/embedding_hidden_mapping_in/kernel',
    'encoder.layer.31.attention.self.value.bias': 'bert/encoder/layer_31/attention/self/value/bias',
    'encoder.layer.0.attention.output.dense.weight': 'bert/encoder/layer_0/attention/output/dense/kernel',
    'encoder.layer.0.attention.output.LayerNorm.bias': 'bert/encoder/layer_0/attention/output/LayerNorm/beta',
    'encoder.layer.7.intermediate.dense.weight': 'bert/encoder/layer_7/intermediate/dense/kernel',
    'encoder.layer.7.output.dense.bias': 'bert/encoder/layer_7/output/dense/bias',
    'pooler.dense.weight': 'bert/pooler/dense/kernel',
    'cls.predictions.dense.weight': 'cls/predictions/transform/dense/kernel',
    'cls.predictions.LayerNorm.weight': 'cls/predictions/transform/LayerNorm/gamma',
    'cls.predictions.decoder.bias': 'cls/predictions/output_bias',
  }
  assert expected.items() <= both.items()
  assert len(both) == 5 + 2 + 32 * 16 + 2 + 6


@pytest.mark.parametrize('head', ['classification', 'tagging', 'qa', 'multiple_choice', 'regression'])
def test_classifiers_are_the_other_way_round_in_both_formats(head):
  config = dataclasses.replace(RemBertConfig(), num_hidden_layers=1)
  kernel, bias = slots(config, head, num_labels=3, has_pooler=False)[-2:]
  labels = {'qa': 2, 'multiple_choice': 1, 'regression': 1}.get(head, 3)
  assert kernel.shape_in('hugging_face') == kernel.shape_in('tensorflow') == (labels, 1152)
  assert bias.shape == (labels,)
