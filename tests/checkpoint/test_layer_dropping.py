"""Figure 1 and footnote 4: fine-tuning begins with the bottom layers of a pre-trained run, its embeddings frozen.

What the job does (`open_initial(…, drops_layers=True)`, the optimizer, one update), without starting the program.
"""

import dataclasses
import types

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from rembert.checkpoint.initialize import open_initial
from rembert.data.finetune_batches import padded
from rembert.model.config import Execution
from rembert.model.heads import build_model
from rembert.train import sharding, state
from rembert.train.optimizer import OptimizerConfig, make_optimizer
from rembert.train.sharding import MeshConfig
from rembert.train.step import head_sums, make_train_step


def test_the_top_layer_is_dropped_and_the_input_embedding_stays(saved):
  before = saved('mlm')
  config = dataclasses.replace(before.config, num_hidden_layers=before.config.num_hidden_layers - 1)
  mesh = sharding.make_mesh(MeshConfig())
  optimizer = make_optimizer(OptimizerConfig(learning_rate=1e-4, warmup_steps=0, freeze_embeddings=True), 10)
  build = lambda rngs: build_model('tagging', config, Execution(), num_labels=3, rngs=rngs)
  trainable = state.trainable(build, Execution(), optimizer, mesh)
  initial = open_initial(before.workdir, 'encoder', config, head='tagging', num_labels=3, drops_layers=True)
  ids = np.arange(312, 324, dtype=np.int32)
  row = types.SimpleNamespace(input_ids=ids, token_type_ids=np.zeros_like(ids), labels=ids % 3)
  with jax.set_mesh(mesh):
    begun = initial.put_into(trainable.init(0))
    first = jax.tree.map(np.array, flatten_dict(begun.params, sep='/'))
    batch = sharding.to_device(padded([row] * 8, 'tagging', size=8, length=16, pad=0), mesh)
    after, _ = make_train_step(trainable, sums_of=head_sums('tagging'))(begun, batch)
  last = jax.tree.map(np.array, flatten_dict(after.params, sep='/'))
  layers = [path for path in first if path.startswith('encoder/layers/')]
  assert len(layers) > 5
  for path in layers:
    assert len(first[path]) == 2
    np.testing.assert_array_equal(first[path], before.read(path)[:2])  # the bottom ones of three
  for path in first:
    is_frozen = path.startswith('encoder/embeddings/')
    assert np.array_equal(last[path], first[path]) == is_frozen or 'qkv/bias' in path, path
