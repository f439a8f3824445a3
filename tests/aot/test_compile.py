"""Times from data sheets, on slices made up for the purpose."""

import itertools
import math
import types

import numpy as np
import pytest

from rembert.aot.compile import by_part, crosses_slices, ring_bandwidth, roofline
from rembert.aot.hlo import Collective
from rembert.runtime.hardware import Chip

CHIP = Chip(bf16_flops=100, hbm_bytes=1, hbm_bandwidth=50, link_bandwidth=10, wraps=4, dcn_bandwidth=2)


def slice_of(*shape, index=0):
  return [
    types.SimpleNamespace(coords=[*coords, *[0] * (3 - len(shape))], slice_index=index)
    for coords in itertools.product(*map(range, shape))
  ]


@pytest.mark.parametrize(
  ('shape', 'members', 'links'),
  [
    ((4, 4, 4), slice(None), 6),  # three rings, two links each
    ((2, 4), slice(None), 3),  # a line and a ring
    ((2, 2), slice(None), 2),
    ((4, 4), slice(0, 4), 2),  # one ring of the two
    ((4, 4), slice(0, 2), 1),  # half a ring is a line
    ((1, 1), slice(None), math.inf),  # the cores of a chip
  ],
)
def test_every_axis_that_a_group_spans_lends_its_links(shape, members, links):
  devices = slice_of(*shape)
  padded = [*shape, *[1] * (3 - len(shape))]
  assert ring_bandwidth(CHIP, devices[members], padded) == links * CHIP.link_bandwidth


def bound(devices, collectives, **changes):
  figures = {'flops': 1000, 'hbm_bytes': 200, 'collectives': collectives} | changes
  return roofline(CHIP, devices, **figures)


def test_the_longest_of_the_parts_is_the_bound():
  gather = Collective('all-gather', 30, np.arange(4)[None], times=2)
  resources = {'compute': 10, 'memory': 4, 'ici': 2 * 3 * 30 / 20, 'dcn': 0}
  assert bound(slice_of(4), [gather]) == resources | {
    'step_seconds': 10,
    'unhidden_seconds': 10 + 9,
    'bound_by': 'compute',
  }
  assert bound(slice_of(4), [gather], hbm_bytes=5000)['bound_by'] == 'memory'
  assert bound(slice_of(4), [gather] * 2)['bound_by'] == 'ICI'


def test_between_slices_each_chip_exchanges_its_share_over_the_slow_network():
  devices = [*slice_of(4), *slice_of(4, index=1)]
  reduce = Collective('all-reduce', 80, np.arange(8)[None], times=1)
  within = Collective('all-reduce', 80, np.arange(8).reshape(2, 4), times=1)
  exchange = Collective('all-reduce', 80, np.arange(2)[None], times=3, is_between_slices=True)
  for collective, crosses, ici, dcn in (
    (reduce, True, 2 * 80 * 7 / 8 / 20, 2 * (80 / 4) * (1 / 2) / 2),
    (within, False, 2 * 80 * 3 / 4 / 20, 0),
    (exchange, True, 0, 3 * 80 / 2),
  ):
    assert crosses_slices(collective, devices) == crosses
    times = bound(devices, [collective])
    assert (times['ici'], times['dcn']) == (ici, dcn)


def test_what_is_not_known_is_not_made_up():
  times = bound(slice_of(4), None, hbm_bytes=None)
  assert (times['memory'], times['ici'], times['dcn']) == (None, None, None)
  assert times['step_seconds'] == times['compute']


def test_traffic_is_summed_by_part_of_a_step():
  traffic = {
    'jit(train_step)/jvp(layers)/while/body/attention/dot_general': 5,
    'jit(train_step)/transpose(jvp(layers))/while/body/checkpoint/rematted_computation/feed_forward/mul': 3,
    'jit(train_step)/transpose(jvp(layers))/while/body/add': 2,
    'jit(train_step)/optimizer/mul': 7,
    'jit(train_step)/add': 1,
    '': 1,
  }
  assert list(by_part(traffic).items()) == [
    ('optimizer', 7),
    ('attention matmuls', 5),
    ('feed_forward recomputed', 3),
    ('layers backward', 2),
    ('other', 2),
  ]
