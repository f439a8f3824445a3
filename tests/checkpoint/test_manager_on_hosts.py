"""Two processes of one run: each writes and reads its part, and what one finds damaged is damaged for both."""

import os
import subprocess
import sys

import pytest

from launch.local_cluster import free_port

HOST = """
import pathlib, sys
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 2)
jax.config.update('jax_cpu_collectives_implementation', 'gloo')
process, port, folder = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
jax.distributed.initialize(f'127.0.0.1:{port}', 2, process)

from rembert.checkpoint.manager import Checkpoints
from rembert.train.state import TrainState

mesh = jax.make_mesh((4,), ('fsdp',), axis_types=(AxisType.Auto,))
split, whole = (NamedSharding(mesh, spec) for spec in (PartitionSpec('fsdp'), PartitionSpec()))
draw = jax.jit(lambda seed: jax.random.normal(jax.random.key(seed), (64, 128)), out_shardings=split)

def state(step):
  return TrainState(step=jax.device_put(jnp.int32(step), whole), params={'x': draw(step)}, opt_state=())

def open_checkpoints():
  return Checkpoints(folder, say=lambda line: process == 0 and print(line))

def names():
  multihost_utils.sync_global_devices('all is done')
  return sorted(path.name for path in folder.iterdir())

checkpoints = open_checkpoints()
for step in (1, 2, 3):
  checkpoints.save(step, state(step), {}, {}, is_temporary=step == 3)
checkpoints.close()
assert names() == ['1', '2', '3'], names()
if process == 0:  # what only the other one reads
  files = lambda step: (folder / str(step) / 'state' / 'ocdbt.process_1').rglob('d/*')
  part = lambda step: max(files(step), key=lambda file: file.stat().st_size)
  content = bytearray(part(3).read_bytes())
  content[len(content) // 2] ^= 0x10
  part(3).write_bytes(bytes(content))
  part(2).unlink()
multihost_utils.sync_global_devices('damaged')

checkpoints = open_checkpoints()
place = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
restored = checkpoints.restore_newest(jax.tree.map(place, state(0)))
same = jax.jit(lambda a, b: (a == b).all(), out_shardings=whole)
assert restored.step == 1
assert bool(same(restored.state.params['x'], state(1).params['x']))
checkpoints.save(2, state(2), {}, {})
checkpoints.close()
assert names() == ['1', '2', 'damaged-2', 'damaged-3'], names()
"""


@pytest.mark.slow
def test_corruption_on_one_host_is_quarantined_by_all_without_waiting(tmp_path):
  port = free_port()
  command = lambda process: [sys.executable, '-c', HOST, str(process), str(port), str(tmp_path / 'checkpoints')]
  hosts = [
    subprocess.Popen(command(process), env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for process in range(2)
  ]
  try:
    output = [host.communicate(timeout=200)[0] for host in hosts]
  finally:
    for host in hosts:
      host.kill()
  assert [host.returncode for host in hosts] == [0, 0], '\n'.join(output)
  said = [line for line in output[0].splitlines() if 'is corrupt' in line]
  assert [line.split(' is')[0] for line in said] == ['warning: checkpoint 3', 'warning: checkpoint 2']
  assert 'Traceback' not in ''.join(output)
