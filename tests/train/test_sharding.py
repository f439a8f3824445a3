"""Meshes, and the shardings of parameters, moments and batches on eight devices."""

import dataclasses
import re

import jax
import numpy as np
import optax
import pytest

from rembert.errors import UsageError
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig, batch_shards, bytes_per_device, make_mesh, to_device

# Over which mesh axis each axis of each parameter is split, written out.
SPLIT = {
  'encoder/embeddings/norm/bias': (None,),
  'encoder/embeddings/norm/scale': (None,),
  'encoder/embeddings/position/embedding': (None, 'fsdp'),
  'encoder/embeddings/token_type/embedding': (None, 'fsdp'),
  'encoder/embeddings/word/embedding': ('tensor', 'fsdp'),
  'encoder/layers/attention/output/bias': (None, None),
  'encoder/layers/attention/output/kernel': (None, 'tensor', None, 'fsdp'),
  'encoder/layers/attention/qkv/bias': (None, None, 'tensor', None),
  'encoder/layers/attention/qkv/kernel': (None, 'fsdp', None, 'tensor', None),
  'encoder/layers/attention_norm/bias': (None, None),
  'encoder/layers/attention_norm/scale': (None, None),
  'encoder/layers/feed_forward/down/bias': (None, None),
  'encoder/layers/feed_forward/down/kernel': (None, 'tensor', 'fsdp'),
  'encoder/layers/feed_forward/up/bias': (None, 'tensor'),
  'encoder/layers/feed_forward/up/kernel': (None, 'fsdp', 'tensor'),
  'encoder/layers/output_norm/bias': (None, None),
  'encoder/layers/output_norm/scale': (None, None),
  'encoder/projection/bias': (None,),
  'encoder/projection/kernel': (None, 'fsdp'),
  'mlm/bias': ('tensor',),
  'mlm/norm/bias': (None,),
  'mlm/norm/scale': (None,),
  'mlm/output_embedding': ('tensor', 'fsdp'),
  'mlm/transform/bias': (None,),
  'mlm/transform/kernel': ('fsdp', None),
}


# --- the mesh -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('config', 'sizes'),
  [
    (MeshConfig(), (8, 1, 1)),
    (MeshConfig(fsdp=4), (2, 4, 1)),
    (MeshConfig(data=1, fsdp=-1), (1, 8, 1)),
    (MeshConfig(data=2, fsdp=2, tensor=-1), (2, 2, 2)),
    (MeshConfig(data=2, fsdp=4, tensor=-1), (2, 4, 1)),
    (MeshConfig(data=2, fsdp=2, tensor=2, require_platform='cpu'), (2, 2, 2)),
  ],
)
def test_minus_one_takes_the_devices_that_the_others_leave(config, sizes):
  mesh = make_mesh(config)
  assert dict(mesh.shape) == dict(zip(('data', 'fsdp', 'tensor'), sizes, strict=True))
  assert sorted(device.id for device in mesh.devices.flat) == list(range(8))
  assert batch_shards(mesh) == sizes[0] * sizes[1]


NOT_COVERED = (
  'a mesh of {} does not cover 8 device(s)\n'
  '  where  mesh.data, mesh.fsdp, mesh.tensor\n'
  '  fix    set sizes whose product is the number of devices, or one of them to -1 for the remaining devices'
)


@pytest.mark.parametrize(
  ('config', 'sizes'),
  [
    (MeshConfig(data=4, fsdp=4), 'data 4 · fsdp 4 · tensor 1'),
    (MeshConfig(fsdp=3), 'data -1 · fsdp 3 · tensor 1'),
    (MeshConfig(fsdp=-1), 'data -1 · fsdp -1 · tensor 1'),
    (MeshConfig(fsdp=0), 'data -1 · fsdp 0 · tensor 1'),
    (MeshConfig(fsdp=16), 'data -1 · fsdp 16 · tensor 1'),
  ],
)
def test_a_mesh_that_does_not_fit_the_machine_is_a_usage_error(config, sizes):
  with pytest.raises(UsageError) as error:
    make_mesh(config)
  assert str(error.value) == NOT_COVERED.format(sizes)


def test_another_platform_than_required_is_a_usage_error():
  with pytest.raises(UsageError, match='the devices are cpu, not tpu') as error:
    make_mesh(MeshConfig(require_platform='tpu'))
  assert error.value.where == "mesh.require_platform = 'tpu'"
  assert '--gin.mesh.require_platform=None' in error.value.fix[0]


# --- parameters and moments -----------------------------------------------------------------------


def test_parameters_moments_and_their_average_are_born_where_the_table_says(eight, by_name):
  state = eight.init(0)
  trees = {'params': state.params, 'ema': state.ema}
  trees |= {name: optax.tree.get(state.opt_state, name) for name in ('mu', 'nu')}
  for tree_name, tree in trees.items():
    arrays = by_name(tree)
    assert arrays.keys() == SPLIT.keys()
    for name, array in arrays.items():
      parts = [1 if axis is None else 2 for axis in SPLIT[name]]
      shape = tuple(size // part for size, part in zip(array.shape, parts, strict=True))
      assert [shard.data.shape for shard in array.addressable_shards] == [shape] * 8, (tree_name, name)
      # This many distinct shards, each on the same number of devices; together they are the array.
      assert len({str(shard.index) for shard in array.addressable_shards}) == np.prod(parts), (tree_name, name)
      whole = np.full(array.shape, np.nan, np.float32)
      for shard in array.addressable_shards:
        whole[shard.index] = shard.data
      np.testing.assert_array_equal(whole, array)


def test_frozen_parameters_have_no_moments_and_other_moments_keep_their_shardings(trainable, by_name):
  freezing = make_optimizer(OptimizerConfig(freeze_embeddings=True, freeze_layers=1), 10)
  plain, frozen = trainable((2, 2, 2)), trainable((2, 2, 2), optimizer=freezing)
  place = lambda state: by_name(optax.tree.get(state.opt_state, 'mu'))
  expected = {
    name: sharding
    for name, sharding in place(plain.shardings).items()
    if not name.startswith(('encoder/embeddings/', 'encoder/projection/'))
  }
  assert place(frozen.shardings) == expected
  assert {name: leaf.shape for name, leaf in place(frozen.abstract_state).items()} == {
    name: leaf.shape for name, leaf in place(plain.abstract_state).items() if name in expected
  }


def test_an_update_keeps_all_shardings_and_bytes_per_device_are_those_of_the_shards(eight, packed_batch):
  (state, _), trainable = eight(eight.init(0), packed_batch(0)), eight.trainable
  held = dict.fromkeys(range(8), 0)
  for array, expected in zip(jax.tree.leaves(state), jax.tree.leaves(trainable.restore_target()), strict=True):
    assert array.sharding.is_equivalent_to(expected.sharding, array.ndim)
    for shard in array.addressable_shards:
      held[shard.device.id] += shard.data.nbytes
  assert set(held.values()) == {bytes_per_device(trainable.abstract_state, trainable.shardings)}


def test_the_compiled_step_talks_as_its_mesh_demands(step, eight):
  pattern = r' (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\('
  spoken = lambda step: set(re.findall(pattern, step.compiled.as_text()))
  assert not spoken(step())
  assert spoken(step((8, 1, 1))) == {'all-reduce'}  # gradients are added up, parameters are there already
  assert 'all-gather' in spoken(eight)  # parameters before use
  assert spoken(eight) & {'all-reduce', 'reduce-scatter'}  # gradients afterwards


def test_neither_an_activation_nor_a_table_over_the_vocabulary_is_put_together(eight):
  # 64 rows of both tables, 32 on each half of `tensor`: gathered over `fsdp` alone.
  gathered = re.findall(r'= \w+\[([\d,]*)\]\S* all-gather(?:-start)?\(', eight.compiled.as_text())
  assert {'32,8', '32,24'} <= set(gathered)  # the word embedding and the output embedding
  assert gathered.count('32,24') == 1
  assert not [shape for shape in gathered if '64' in shape.split(',')]
  assert 'rematerialization' not in eight.said[0]  # XLA's words, of an activation on every device


# --- sizes that do not divide ---------------------------------------------------------------------


def test_a_vocabulary_that_does_not_divide_is_a_usage_error_whose_fix_works(trainable, tiny):
  config = dataclasses.replace(tiny, num_attention_heads=8, pad_vocab_to_multiple_of=1)
  with pytest.raises(UsageError) as error:
    trainable((1, 1, 8), config=config)
  assert str(error.value) == (
    '60 (vocab) is not divisible by the 8 devices of the `tensor` axis\n'
    '  where  parameter encoder/embeddings/word/embedding, mesh.tensor\n'
    '  fix    RemBertConfig.pad_vocab_to_multiple_of = 1024'
  )
  trainable((1, 1, 8), config=dataclasses.replace(config, pad_vocab_to_multiple_of=1024))


@pytest.mark.parametrize(
  ('axis', 'sizes', 'fields', 'what'),
  [('tensor', (1, 1, 8), {}, '4 (heads)'), ('fsdp', (1, 8, 1), {'hidden_size': 20}, '20 (embed)')],
)
def test_a_width_that_does_not_divide_is_a_usage_error_that_names_it(trainable, tiny, axis, sizes, fields, what):
  with pytest.raises(UsageError) as error:
    trainable(sizes, config=dataclasses.replace(tiny, **fields))
  assert str(error.value) == (
    f'{what} is not divisible by the 8 devices of the `{axis}` axis\n'
    f'  where  parameter encoder/layers/attention/output/kernel, mesh.{axis}\n'
    f'  fix    choose another mesh.{axis}, or divisible sizes'
  )


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize('sizes', [(8, 1, 1), (2, 2, 2)], ids=lambda sizes: 'x'.join(map(str, sizes)))
def test_rows_go_to_their_data_and_fsdp_position_and_are_whole_there(packed_batch, sizes):
  mesh, batch = make_mesh(MeshConfig(*sizes)), packed_batch(0)
  placed = to_device(batch, mesh)
  assert placed.keys() == batch.keys()
  data, fsdp, tensor = sizes
  rows = 16 // (data * fsdp)
  for name, array in placed.items():
    np.testing.assert_array_equal(array, batch[name])
    on_device = {shard.device: np.asarray(shard.data) for shard in array.addressable_shards}
    for d, f, t in np.ndindex(data, fsdp, tensor):
      first = (d * fsdp + f) * rows
      np.testing.assert_array_equal(on_device[mesh.devices[d, f, t]], batch[name][first : first + rows])
