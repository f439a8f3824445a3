"""The text of compiled programs: loops counted as often as they run, collectives with their groups and bytes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from rembert.aot.hlo import Collective, Program, replica_groups
from rembert.train.sharding import MeshConfig, make_mesh

XLA_TOLERANCE = 0.1  # XLA looks into fusions further than this does


@pytest.mark.parametrize(
  ('written', 'groups'),
  [
    ('replica_groups={{0,1},{2,3}}', [[0, 1], [2, 3]]),
    ('replica_groups={}', [[0, 1, 2, 3]]),
    ('replica_groups=[2,2]<=[4]', [[0, 1], [2, 3]]),
    ('replica_groups=[2,2]<=[2,2]T(1,0)', [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'b'}", [[0, 1], [2, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'a'}", [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=4,'b'=1] {'a','b'}", [[0, 1, 2, 3]]),
    ("replica_groups=mesh['a'=1,'b'=2,'c'=2], device_ids=([2,2]T(1,0)) {'b'}", [[0, 1], [2, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", [[0, 2], [1, 3]]),
  ],
)
def test_groups_are_read_in_every_notation(written, groups):
  np.testing.assert_array_equal(replica_groups(f'channel_id=1, {written}, to_apply=%add', 4), groups)


def test_an_unknown_notation_is_an_error_and_not_a_guess():
  for written in "mesh['a'=4] {'a':(1)2}", "mesh['a'=4], device_ids=(?) {'a'}":
    with pytest.raises(ValueError, match=r'unknown notation|invalid literal'):
      replica_groups(f'replica_groups={written}', 4)


def test_a_ring_of_four_sends_this_much_of_100_bytes():
  sent = {'all-gather': 300, 'all-reduce': 150, 'reduce-scatter': 75, 'all-to-all': 75, 'collective-permute': 100}
  assert {kind: Collective(kind, 100, np.arange(4)[None], 1).wire_bytes for kind in sent} == sent


@pytest.fixture
def mesh():
  return make_mesh(MeshConfig(data=2, fsdp=4))


def compiled(function, *arguments):
  return jax.jit(function).lower(*arguments).compile()


def test_a_collective_in_nested_loops_counts_as_often_as_it_runs(mesh):
  def inner(x, _):
    return jax.lax.psum(x, 'fsdp') / 4, None

  def outer(x, _):
    return jax.lax.scan(inner, x, None, length=3)[0] + 1, None

  on_device = lambda x: jax.lax.scan(outer, x, None, length=5)[0]
  spec = PartitionSpec(('data', 'fsdp'))
  mapped = jax.shard_map(on_device, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
  program = Program(compiled(mapped, jnp.ones((8, 100))).as_text(), 8)
  [collective] = program.collectives()
  assert (collective.kind, collective.times, collective.operand_bytes) == ('all-reduce', 15, 400)
  assert {frozenset(group) for group in collective.groups.tolist()} == {frozenset(range(4)), frozenset(range(4, 8))}


def test_parameters_that_are_split_are_gathered_over_their_axis(mesh):
  x = jax.device_put(np.ones((8, 64), np.float32), NamedSharding(mesh, PartitionSpec(('data', 'fsdp'))))
  w = jax.device_put(np.ones((64, 32), np.float32), NamedSharding(mesh, PartitionSpec('fsdp')))
  collectives = Program(compiled(lambda x, w: x @ w, x, w).as_text(), 8).collectives()
  gathers = [collective for collective in collectives if collective.kind == 'all-gather']
  assert sum(collective.wire_bytes for collective in gathers) == 3 * 16 * 32 * 4


# As a TPU's compiler writes them: a gather that four fusions work on while they compute, and a sum of which each device
# keeps its slice; both in a loop that says how long it is in its condition alone.
TPU_TEXT = """\
HloModule step

%async_collective_fusion.1 (p.0: bf16[2,8]) -> bf16[8,8] {
  %p.0 = bf16[2,8]{1,0} parameter(0)
  ROOT %all-gather.1 = bf16[8,8]{1,0:T(8,128)(2,1)} all-gather(%p.0), channel_id=7, replica_groups=[1,4]<=[4]
}

%async_collective_fusion.2 (p.1: bf16[2,8]) -> bf16[8,8] {
  %p.1 = bf16[2,8]{1,0} parameter(0)
  ROOT %all-gather.2 = bf16[8,8]{1,0:T(8,128)(2,1)} all-gather(%p.1), channel_id=7, replica_groups=[1,4]<=[4]
}

%all-reduce-scatter.3 (input: bf16[8,8]) -> bf16[2,8] {
  %input = bf16[8,8]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %all-reduce.3 = bf16[8,8]{1,0} all-reduce(%input), channel_id=8, replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %slice.1 = bf16[2,8]{1,0} dynamic-slice(%all-reduce.3, %zero, %zero), dynamic_slice_sizes={2,8}
}

%condition (c: (s32[], bf16[2,8])) -> pred[] {
  %c = (s32[], bf16[2,8]{1,0}) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%c), index=0
  %bound = s32[]{:T(128)} constant(6)
  ROOT %less = pred[]{:T(512)} compare(%count, %bound), direction=LT
}

%body (b: (s32[], bf16[2,8])) -> (s32[], bf16[2,8]) {
  %b = (s32[], bf16[2,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = bf16[2,8]{1,0} get-tuple-element(%b), index=1
  %fusion.1 = bf16[8,8]{1,0:T(8,128)(2,1)S(1)} fusion(%x), kind=kOutput, calls=%async_collective_fusion.1
  %fusion.2 = bf16[8,8]{1,0:T(8,128)(2,1)S(1)} fusion(%x), kind=kOutput, calls=%async_collective_fusion.2
  %fusion.3 = bf16[2,8]{1,0} fusion(%fusion.2), kind=kCustom, calls=%all-reduce-scatter.3
  ROOT %t = (s32[], bf16[2,8]{1,0}) tuple(%i, %fusion.3)
}

ENTRY %main (x.1: bf16[2,8]) -> bf16[2,8] {
  %x.1 = bf16[2,8]{1,0} parameter(0)
  %start = s32[] constant(0)
  %state = (s32[], bf16[2,8]{1,0}) tuple(%start, %x.1)
  %while = (s32[], bf16[2,8]{1,0}) while(%state), condition=%condition, body=%body
  ROOT %result = bf16[2,8]{1,0} get-tuple-element(%while), index=1
}
"""


def test_a_tpus_spread_gathers_and_fused_scatters_are_understood():
  program = Program(TPU_TEXT, 4)
  found = [(item.kind, item.operand_bytes, item.times, item.wire_bytes) for item in program.collectives()]
  assert found == [('all-gather', 32, 6, 96), ('reduce-scatter', 128, 6, 96)]
  # Each turn writes the slice; memory on the chip, S(1), and network buffers are not HBM traffic.
  assert sum(program.hbm_bytes().values()) == 6 * 32


MEGASCALE_TEXT = """\
HloModule step

ENTRY %main (x: bf16[4,8]) -> bf16[4,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  %token = token[] after-all()
  %recv.1 = (bf16[4,8]{1,0}, u32[], token[]) recv(%token), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}
  %send.1 = (bf16[4,8]{1,0}, u32[], token[]) send(%x, %token), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_target="{1,2}x{0:7}",_xla_megascale_transfer_type="ALL_REDUCE"}
  %recv-done.1 = (bf16[4,8]{1,0}, token[]) recv-done(%recv.1), channel_id=1
  ROOT %result = bf16[4,8]{1,0} get-tuple-element(%recv-done.1), index=0
}
"""  # noqa: E501


def test_what_goes_from_slice_to_slice_is_seen_as_such():
  [found] = Program(MEGASCALE_TEXT, 16, slices=2).collectives()
  assert (found.kind, found.operand_bytes, found.times, found.is_between_slices) == ('all-reduce', 64, 1, True)
  assert found.wire_bytes == 64


def test_traffic_of_a_program_without_loops_is_what_xla_counts():
  def function(x, w):
    return jnp.tanh(x @ w) @ w.T

  program = compiled(function, jnp.ones((256, 512)), jnp.ones((512, 384)))
  counted = program.cost_analysis()['bytes accessed']
  assert sum(Program(program.as_text(), 1).hbm_bytes().values()) == pytest.approx(counted, rel=XLA_TOLERANCE)


def test_of_a_stack_a_loop_reads_one_layer_at_a_time():
  size = 128
  step = lambda x, w: (jnp.tanh(x @ w), None)
  function = lambda x, stack: jax.lax.scan(step, x, stack)[0]
  made = lambda layers: compiled(function, jnp.ones((size, size)), jnp.ones((layers, size, size)))
  traffic = lambda layers: sum(Program(made(layers).as_text(), 1).hbm_bytes().values())
  per_layer = (traffic(14) - traffic(7)) / 7
  matrix = 4 * size * size
  # The weights sliced out and read, the product written and read, tanh written, and the carry copied at most twice.
  assert 4 * matrix <= per_layer <= 12 * matrix


def test_a_loop_of_unknown_length_is_an_error():
  function = functools.partial(jax.lax.while_loop, lambda x: x[0] < 100, lambda x: x * 2)
  with pytest.raises(ValueError, match='cannot determine how often'):
    sum(Program(compiled(function, jnp.ones(4)).as_text(), 1).hbm_bytes().values())


RESHAPED = """
HloModule reshaped

%reshape (p: bf16[6,8]) -> bf16[6,8] {
  %p = bf16[6,8]{1,0} parameter(0)
  ROOT %c = bf16[6,8]{0,1} copy(%p)
}

%multiply (x: bf16[6,8], w: bf16[8,4]) -> bf16[6,4] {
  %x = bf16[6,8]{1,0} parameter(0)
  %w = bf16[8,4]{1,0} parameter(1)
  %y = bf16[6,8]{0,1} fusion(%x), kind=kLoop, calls=%reshape
  ROOT %z = bf16[6,4]{1,0} dot(%y, %w)
}

%take (x: bf16[6,8], i: s32[]) -> bf16[1,8] {
  %x = bf16[6,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %y = bf16[6,8]{0,1} fusion(%x), kind=kLoop, calls=%reshape
  ROOT %z = bf16[1,8]{1,0} dynamic-slice(%y, %i, %i), dynamic_slice_sizes={1,8}
}

%put (x: bf16[6,8], row: bf16[1,8], i: s32[]) -> bf16[6,8] {
  %x = bf16[6,8]{1,0} parameter(0)
  %row = bf16[1,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %y = bf16[6,8]{0,1} fusion(%x), kind=kLoop, calls=%reshape
  %u = bf16[6,8]{0,1} dynamic-update-slice(%y, %row, %i, %i)
  ROOT %z = bf16[6,8]{1,0} fusion(%u), kind=kLoop, calls=%reshape
}

ENTRY %main (x: bf16[6,8], w: bf16[8,4], i: s32[]) -> bf16[6,8] {
  %x = bf16[6,8]{1,0} parameter(0)
  %w = bf16[8,4]{1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  %a = bf16[6,4]{1,0} fusion(%x, %w), kind=kOutput, calls=%multiply, metadata={op_name="multiply"}
  %b = bf16[1,8]{1,0} fusion(%x, %i), kind=kLoop, calls=%take, metadata={op_name="take"}
  ROOT %c = bf16[6,8]{1,0} fusion(%x, %b, %i), kind=kLoop, calls=%put, metadata={op_name="put"}
}
"""


def test_what_is_read_and_written_in_another_layout_counts_once_and_of_a_stack_one_slice():
  stack, row = 6 * 8 * 2, 8 * 2
  assert Program(RESHAPED, 1).hbm_bytes() == {
    'multiply': stack + 8 * 4 * 2 + 6 * 4 * 2,
    'take': row + row,
    'put': row + row,
  }


PREFETCHED = """
HloModule prefetched

ENTRY %main (x: bf16[16,8]) -> bf16[4,8] {
  %x = bf16[16,8]{1,0} parameter(0)
  %slice-start = ((bf16[16,8]{1,0}), bf16[4,8]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:4], [0:8]}
  %slice-done = bf16[4,8]{1,0:S(1)} slice-done(%slice-start)
  %joined = bf16[4,8]{1,0:S(1)} custom-call(%slice-done), custom_call_target="ConcatBitcast"
  ROOT %sum = bf16[4,8]{1,0} add(%joined, %joined), metadata={op_name="jit(f)/layers/add"}
}
"""


def test_of_a_slice_that_is_moved_onto_the_chip_the_slice_is_read_for_what_uses_it():
  read, written = 4 * 8 * 2, 4 * 8 * 2
  assert Program(PREFETCHED, 1).hbm_bytes() == {'jit(f)/layers/add': read + written}
  already_there = PREFETCHED.replace('((bf16[16,8]{1,0})', '((bf16[16,8]{1,0:S(1)})')
  assert sum(Program(already_there, 1).hbm_bytes().values()) == written


OFFLOADED = """
HloModule offloaded

%gather (x: bf16[2,8]) -> bf16[8,8] {
  %x = bf16[2,8]{1,0} parameter(0)
  ROOT %all = bf16[8,8]{1,0} all-gather(%x), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
}

ENTRY %main (x: bf16[2,8]) -> bf16[8,8] {
  %x = bf16[2,8]{1,0} parameter(0)
  %start = ((bf16[2,8]{1,0}), bf16[8,8]{1,0}) call-start(%x), async_execution_thread="sparsecore", to_apply=%gather
  ROOT %done = bf16[8,8]{1,0} call-done(%start)
}
"""


def test_a_collective_on_another_core_of_the_chip_counts():
  [gather] = Program(OFFLOADED, 4).collectives()
  assert (gather.kind, gather.operand_bytes, gather.times) == ('all-gather', 2 * 8 * 2, 1)
  assert sum(Program(OFFLOADED, 4).hbm_bytes().values()) == (2 * 8 + 8 * 8) * 2
