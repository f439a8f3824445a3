"""Compiles a step ahead of time for a target topology, and measures memory, FLOPs and traffic per chip."""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any

import jax

from rembert.aot.flops import traced_flops
from rembert.aot.hlo import Collective, Program
from rembert.aot.roofline import ASSUMPTIONS, crosses_slices, roofline
from rembert.errors import RunError, first_line
from rembert.runtime.hardware import chip_of
from rembert.runtime.signals import repeating


class DoesNotFitError(Exception):
  """A program does not fit in memory; `sizes` are the lines of the compiler's message about that."""

  def __init__(self, sizes: list[str]):
    super().__init__('; '.join(sizes))
    self.sizes = sizes


def compile_lowered(lowered: jax.stages.Lowered, on_progress: Callable[[float, str], None]) -> jax.stages.Compiled:
  """Compiles, which takes minutes without output of the compiler; `on_progress` is called meanwhile.

  Raises:
    DoesNotFitError: the program does not fit in memory.
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


def measure(
  traced: jax.stages.Traced, compiled: jax.stages.Compiled, mesh: jax.sharding.Mesh, *, slices: int, model_flops: float
) -> tuple[dict, str | None]:
  """Cost of a compiled step per chip, JSON, and the program's text, or None if the compiler cannot print it.

  `slices` is the number of slices, joined by the DCN; `model_flops` are those of the step on all chips, without
  recomputation.
  """
  devices, found = mesh.devices.size, chip_of(mesh.devices.flat[0].device_kind)
  flops = traced_flops(traced.jaxpr.jaxpr) / devices
  costs: dict[str, Any] = {
    'fits': True,
    'memory': _memory(compiled) | {'hbm': found and found[1].hbm_bytes},
    'flops_per_chip': {'model': model_flops / devices, 'executed': flops},
  }
  text, collectives, hbm_bytes, unreadable = _read(compiled, devices, slices)
  costs |= {'hbm_traffic_bytes': hbm_bytes, 'unreadable': unreadable}
  costs['collectives'] = collectives and _by_kind(collectives, list(mesh.devices.flat))
  costs['roofline'] = None
  if found and found[1].hbm_bandwidth:
    bound = roofline(found[1], mesh.devices, flops_per_chip=flops, hbm_bytes=hbm_bytes, collectives=collectives)
    useful = model_flops / devices / found[1].bf16_flops
    costs['roofline'] = dataclasses.asdict(bound) | {
      'step_seconds': bound.step_seconds,
      'unhidden_seconds': bound.unhidden_seconds,
      'bound_by': bound.bound_by,
      'mfu': useful / bound.step_seconds,
      'unhidden_mfu': useful / bound.unhidden_seconds,
      'assumptions': ASSUMPTIONS,
    }
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


def _read(
  compiled: jax.stages.Compiled, devices: int, slices: int
) -> tuple[str | None, list[Collective] | None, float | None, str | None]:
  """The compiled text, its collectives and memory traffic, and an error message if they could not be read."""
  text = None
  try:
    text = compiled.as_text() or ''
    program = Program(text, devices, slices)
    return text, program.collectives(), program.hbm_bytes(), None
  except (jax.errors.JaxRuntimeError, ValueError) as error:  # libtpu cannot print every program that it makes
    return text, None, None, first_line(error)


def _by_kind(collectives: list[Collective], devices: list[jax.Device]) -> list[dict]:
  rows: dict[tuple, dict] = {}
  for collective in collectives:
    network = 'DCN' if crosses_slices(collective, devices) else 'ICI'
    key = (collective.kind, network, collective.groups.shape[1])
    row = rows.setdefault(key, {'kind': key[0], 'network': network, 'group': key[2], 'count': 0, 'bytes': 0.0})
    row['count'] += collective.times
    row['bytes'] += collective.times * collective.wire_bytes
  return sorted(rows.values(), key=lambda row: -row['bytes'])


def _sizes(message: str) -> list[str]:
  """The lines of a compiler's message that name sizes, without its stack."""
  lines = [line.strip() for line in message.splitlines() if line.strip()]
  sizes = [line for line in lines[:40] if re.search(r'\d(?:\.\d+)?[KMGT]i?B?\b|RESOURCE_EXHAUSTED', line)]
  return sizes[:8] or lines[:3]
