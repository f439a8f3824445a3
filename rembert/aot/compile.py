"""Compiles a step ahead of time for a target topology: memory, FLOPs and traffic per chip, and the roofline."""

import collections
import dataclasses
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from rembert.aot.flops import traced_flops
from rembert.aot.hlo import Collective, Program
from rembert.errors import RunError, first_line
from rembert.runtime.hardware import Chip, chip_of
from rembert.runtime.signals import repeating


class DoesNotFitError(Exception):
  """A program does not fit in memory; `sizes` are the lines of the compiler's message about that."""

  def __init__(self, sizes: list[str]):
    super().__init__('; '.join(sizes))
    self.sizes = sizes


def compile_lowered(lowered: jax.stages.Lowered, on_progress: Callable[[float, str], None]) -> jax.stages.Compiled:
  """Compiles, which takes minutes without output of the compiler; `on_progress` is called meanwhile.

  DoesNotFitError if the program does not fit in memory.
  """
  start = time.monotonic()
  show = lambda: on_progress(0, f'· compiling for {time.monotonic() - start:.0f} s')
  try:
    with repeating(show, every_seconds=5, name='signs-of-life'):
      return lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise DoesNotFitError(_sizes(str(error))) from error


def _sizes(message: str) -> list[str]:
  """The lines of a compiler's message that name sizes, without its stack."""
  lines = [line.strip() for line in message.splitlines() if line.strip()]
  sizes = [line for line in lines[:40] if re.search(r'\d(?:\.\d+)?[KMGT]i?B?\b|RESOURCE_EXHAUSTED', line)]
  return sizes[:8] or lines[:3]


def measure(
  traced: jax.stages.Traced, compiled: jax.stages.Compiled, mesh: jax.sharding.Mesh, *, slices: int, model_flops: float
) -> tuple[dict, str | None]:
  """Cost of a compiled step per chip, JSON, and the program's text, or None if the compiler cannot print it.

  `slices` is the number of slices, joined by the DCN; `model_flops` are those of the step on all chips, without
  recomputation.
  """
  devices = list(mesh.devices.flat)
  found = chip_of(devices[0].device_kind)
  chip = found[1] if found else None
  flops = {'model': model_flops / len(devices), 'executed': traced_flops(traced.jaxpr.jaxpr) / len(devices)}
  text = collectives = traffic = unreadable = None
  try:
    text = compiled.as_text() or ''
    program = Program(text, len(devices), slices)
    collectives, traffic = program.collectives(), by_part(program.hbm_bytes())
  except (jax.errors.JaxRuntimeError, ValueError) as error:  # libtpu cannot print every program that it makes
    unreadable = first_line(error)
  hbm_bytes = None if traffic is None else sum(traffic.values())
  costs = {
    'fits': True,
    'memory': _memory(compiled) | {'hbm': chip and chip.hbm_bytes},
    'flops_per_chip': flops,
    'hbm_traffic_bytes': hbm_bytes,
    'hbm_traffic_by_part': traffic,
    'unreadable': unreadable,
    'collectives': collectives and _by_kind(collectives, devices),
    'roofline': None,
  }
  if chip and chip.hbm_bandwidth:
    bound = roofline(chip, devices, flops=flops['executed'], hbm_bytes=hbm_bytes, collectives=collectives)
    seconds = {'mfu': bound['step_seconds'], 'unhidden_mfu': bound['unhidden_seconds']}
    mfu = {name: flops['model'] / chip.bf16_flops / value for name, value in seconds.items()}
    costs['roofline'] = bound | mfu | {'assumptions': ASSUMPTIONS}
  return costs, text


def _memory(compiled: jax.stages.Compiled) -> dict[str, int | None]:
  """Memory of the compiled program on one chip, in bytes, by purpose."""
  stats = compiled.memory_analysis()
  if stats is None:
    raise RunError('this compiler does not report memory', where='--topology', fix='choose another topology')
  lasting = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
  # The compiler's own peak: not all temporaries are in memory at the same time.
  peak = stats.peak_memory_in_bytes or lasting + stats.temp_size_in_bytes
  return {
    'arguments': stats.argument_size_in_bytes,  # state and batch
    'outputs': stats.output_size_in_bytes,  # the new state and the metrics
    'aliased': stats.alias_size_in_bytes,  # the part of the new state that reuses the memory of the old
    'temporaries': max(peak - lasting, 0),  # activations, gradients, logits, at the peak
    'code': stats.generated_code_size_in_bytes,
    'peak': peak,
  }


# Scopes of `jax.named_scope` in model and step, the innermost first.
_SCOPES = ('attention', 'feed_forward', 'layers', 'embeddings', 'head', 'loss', 'optimizer')


def by_part(traffic: Mapping[str, float]) -> dict[str, float]:
  """Bytes by part of the step, the largest first, from those by JAX's names of operations.

  A part is a scope, with `backward` for its gradient and `recomputed` for what rematerialization repeats; matmuls are
  separate. `other` has no scope: sums of gradients, the update of parameters.
  """
  found: dict[str, float] = collections.defaultdict(float)
  for name, count in traffic.items():
    is_attention = name.startswith('splash_')  # its kernels
    scope = next(
      (scope for scope in _SCOPES if re.search(rf'\b{scope}\b', name)), 'attention' * is_attention or 'other'
    )
    is_backward = 'transpose(' in name or name.startswith('splash_mha_dkv')
    way = ' recomputed' if 'rematted' in name else ' backward' if is_backward else ''
    kind = ' matmuls' if name.endswith('dot_general') else ''
    found[scope + way + kind] += count
  return dict(sorted(found.items(), key=lambda item: -item[1]))


def _by_kind(collectives: list[Collective], devices: list[jax.Device]) -> list[dict]:
  rows: dict[tuple, dict] = {}
  for collective in collectives:
    network = 'DCN' if crosses_slices(collective, devices) else 'ICI'
    key = (collective.kind, network, collective.groups.shape[1])
    row = rows.setdefault(key, {'kind': key[0], 'network': network, 'group': key[2], 'count': 0, 'bytes': 0.0})
    row['count'] += collective.times
    row['bytes'] += collective.times * collective.wire_bytes
  return sorted(rows.values(), key=lambda row: -row['bytes'])


# --- the roofline, from the chips' data sheets ------------------------------------------------------------------------

ASSUMPTIONS = (
  'the longest of arithmetic, memory and links, each at its data-sheet rate, the others fully overlapped; '
  'collectives one after another, as rings over every axis of the slice that a group spans'
)


def roofline(
  chip: Chip,
  devices: Sequence[jax.Device],
  *,
  flops: float,
  hbm_bytes: float | None,
  collectives: Sequence[Collective] | None,
) -> dict[str, Any]:
  """Lower bound of the step time on one chip, JSON; None means unknown.

  Returns:
    Seconds by resource: `compute`, recomputation included; `memory`; `ici`, collectives within a slice, and `dcn`,
    between slices. `step_seconds`, the longest of them, and `bound_by`, its name; `unhidden_seconds` if no collective
    overlaps with computation.
  """
  ici = dcn = None
  if collectives is not None:
    seconds = [_seconds(collective, chip, devices) for collective in collectives]
    ici, dcn = (float(sum(on_network)) for on_network in zip((0, 0), *seconds, strict=True))
  resources = {
    'compute': flops / chip.bf16_flops,
    'memory': None if hbm_bytes is None else hbm_bytes / chip.hbm_bandwidth,
    'ici': ici,
    'dcn': dcn if chip.dcn_bandwidth else None,
  }
  times = {name: seconds or 0 for name, seconds in resources.items()}
  longest = max(times, key=lambda name: times[name])
  return resources | {
    'step_seconds': times[longest],
    'unhidden_seconds': max(times['compute'], times['memory']) + times['ici'] + times['dcn'],
    'bound_by': {'ici': 'ICI', 'dcn': 'DCN'}.get(longest, longest),
  }


def crosses_slices(collective: Collective, devices: Sequence[jax.Device]) -> bool:
  """Whether a group has members in more than one slice."""
  if collective.is_between_slices:
    return True
  slices = lambda group: {getattr(devices[i], 'slice_index', None) for i in group}
  return any(len(slices(group)) > 1 for group in collective.groups[:1])


def ring_bandwidth(chip: Chip, group: Sequence[jax.Device], slice_shape: Sequence[int]) -> float:
  """Bytes/s that each member can send to the others: one link per direction for every axis that the group spans.

  An axis that forms a ring (spanned completely, and long enough) is used in both directions, any other in one. Devices
  of one chip need no link.
  """
  if len({tuple(device.coords) for device in group}) == 1:
    return math.inf
  bandwidth = 0.0
  for axis, length in enumerate(slice_shape):
    extent = len({device.coords[axis] for device in group})
    if extent > 1:
      closes = extent == length and chip.wraps is not None and length % chip.wraps == 0
      bandwidth += chip.link_bandwidth * (2 if closes else 1)
  return bandwidth


def _seconds(collective: Collective, chip: Chip, devices: Sequence[jax.Device]) -> tuple[float, float]:
  if collective.is_between_slices:
    bandwidth = chip.dcn_bandwidth
    return 0.0, collective.times * collective.wire_bytes / bandwidth if bandwidth else 0.0
  by_slice: dict[int | None, list[jax.Device]] = {}
  for device in (devices[i] for i in collective.groups[0]):
    by_slice.setdefault(getattr(device, 'slice_index', None), []).append(device)
  own = next(iter(by_slice.values()))
  shape = [1 + max(device.coords[axis] for device in devices) for axis in range(3)]
  ici = dcn = 0.0
  if len(own) > 1:
    ici = collective.times * collective.wire_bytes / ring_bandwidth(chip, own, shape)
  if len(by_slice) > 1 and chip.dcn_bandwidth:
    # In two stages: within the slice first, then each member exchanges its part with its peers in other slices.
    share = dataclasses.replace(
      collective,
      operand_bytes=collective.operand_bytes / (len(own) if collective.kind != 'all-gather' else 1),
      groups=np.zeros((1, len(by_slice)), int),
    )
    dcn = collective.times * share.wire_bytes / chip.dcn_bandwidth
  return ici, dcn
