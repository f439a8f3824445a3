"""Collectives and memory traffic of a compiled program, read from its HLO text; loop bodies count as often as they run.

XLA's own `cost_analysis` counts the body of a loop once, and does not distinguish kinds of collectives. The text of the
optimised program has every computation, its callers, and the number of iterations of each loop.
"""

import collections
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

COLLECTIVES = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')
# They refer to existing values, or run computations that are counted separately.
_FREE = {'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'after-all', 'partition-id', 'replica-id'}
_FREE |= {'while', 'conditional', 'call', 'iota', 'domain', 'opt-barrier', 'add-dependency', 'send', 'recv'}
_ASYNC_CALLS = {'async-start', 'call-start'}  # the second on another core of a TPU7x
# Inside a fusion that overlaps with a collective: the network, not the fusion, writes these buffers.
_IN_FLIGHT = {'tuple', 'custom-call', *COLLECTIVES}
_BITS = {'pred': 8, 'token': 0, 'opaque': 0, 'u4': 4, 's4': 4, 'bf16': 16}
_SHAPE = re.compile(r'\b([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?')
# `%name = shapes opcode(operands), attributes`
_INSTRUCTION = re.compile(r'\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a computation, of which `is_root` is the result; `literal` is the text in the parentheses."""

  name: str
  shapes: str
  opcode: str
  literal: str
  attributes: str
  is_root: bool

  @functools.cached_property
  def operands(self) -> tuple[str, ...]:
    """The names of the operands."""
    return tuple(re.findall(r'%([\w.\-]+)', self.literal))

  @functools.cached_property
  def all_bytes(self) -> tuple[float, ...]:
    """The size of each result, in any memory."""
    return _bytes(self.shapes, hbm_only=False)

  @functools.cached_property
  def hbm_bytes(self) -> tuple[float, ...]:
    """The size of each result; 0 if it stays on the chip."""
    return _bytes(self.shapes, hbm_only=True)


Computation = dict[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Collective:
  """A collective of one device."""

  kind: str  # one of `COLLECTIVES`
  operand_bytes: float
  groups: np.ndarray  # positions of devices in the mesh, one row per group; or numbers of slices
  times: int  # runs per step
  is_between_slices: bool = False  # each device exchanges its part with its peers in the other slices, over the DCN

  @property
  def wire_bytes(self) -> float:
    """Bytes that one device sends per run, with ring algorithms, which send the least."""
    size = self.groups.shape[1]
    share = (size - 1) / size
    times = {'all-gather': size - 1, 'all-reduce': 2 * share, 'collective-permute': 1}
    return self.operand_bytes * times.get(self.kind, share)


class Program:
  """A parsed program, from `compiled.as_text()`, for a number of devices and slices.

  ValueError for no entry computation, a loop of unknown length, or groups written in an unknown way.
  """

  def __init__(self, text: str, devices: int, slices: int = 1):
    self.computations, self.entry = _parse(text)
    self._devices, self._slices = devices, slices
    if not self.entry:
      raise ValueError('no ENTRY computation')

  def collectives(self) -> list[Collective]:
    """All collectives with their runs per step. One that the compiler splits over several fusions counts once."""
    found, spread = [], set()
    for name, times, is_fused in self._runs(self.entry, 1, fused=False):
      computation = self.computations[name]
      for instruction in computation.values():
        operand_bytes = sum(sum(computation[name].all_bytes) for name in instruction.operands if name in computation)
        transfer = re.search(r'_xla_megascale_transfer_type="(\w+)"', instruction.attributes)
        if instruction.opcode == 'send' and transfer:  # the part of a collective that goes from slice to slice
          kind = transfer[1].lower().replace('_', '-')
          kind = kind if kind in COLLECTIVES else 'collective-permute'
          found.append(Collective(kind, operand_bytes, np.arange(self._slices)[None], times, is_between_slices=True))
          continue
        kind = instruction.opcode.removesuffix('-start')
        if kind not in COLLECTIVES:
          continue
        if is_fused and kind == 'all-reduce' and name.startswith('all-reduce-scatter'):
          kind = 'reduce-scatter'  # the TPU compiler's form: a fusion in which each device keeps its slice of the sum
        channel = re.search(r'channel_id=(\d+)', instruction.attributes)
        if is_fused and channel:
          if channel[1] in spread:
            continue
          spread.add(channel[1])
        found.append(Collective(kind, operand_bytes, self._groups(instruction), times))
    return found

  def hbm_bytes(self) -> dict[str, float]:
    """Bytes that one device reads from and writes to its memory per step, by JAX's names of operations and scopes.

    A transfer that the compiler has added is for the operation that uses it; a kernel has its own name. Traffic of
    collectives that overlap with computation is excluded (see `collectives`).
    """
    found: dict[str, float] = collections.defaultdict(float)
    for name, times, is_fused in self._runs(self.entry, 1, fused=False):
      if not is_fused:
        computation = self.computations[name]
        for instruction in computation.values():
          if count := times * self._traffic(instruction, computation):
            found[_jax_name(instruction, computation)] += count
    return found

  def _runs(self, name: str, times: int, *, fused: bool) -> Iterator[tuple[str, int, bool]]:
    """Names of computations, how often they run, and whether they are inside a fusion."""
    yield name, times, fused
    for instruction in self.computations[name].values():
      if instruction.opcode == 'while':
        body = _called(instruction, 'body')[0]
        yield from self._runs(body, times * self._trip_count(instruction), fused=fused)
      elif instruction.opcode == 'fusion':
        yield from self._runs(_called(instruction, 'calls')[0], times, fused=True)
      elif instruction.opcode in ('call', 'conditional', *_ASYNC_CALLS):  # all branches: an upper bound
        for called in _called(instruction, 'to_apply', 'calls', 'branch_computations', 'called_computations'):
          yield from self._runs(called, times, fused=fused)

  def _trip_count(self, loop: Instruction) -> int:
    if known := re.search(r'known_trip_count[^\d]*(\d+)', loop.attributes):
      return int(known[1])
    condition = self.computations[_called(loop, 'condition')[0]]
    root = _root(condition)
    # JAX's loops count from 0 to a constant.
    operands = [condition[name] for name in root.operands if name in condition]
    bounds = [operand.literal for operand in operands if operand.opcode == 'constant']
    if len(bounds) == 1 and ('direction=LT' in root.attributes or root.opcode == 'fusion'):
      return int(bounds[0])
    raise ValueError(f'cannot determine how often loop {loop.name} runs')

  def _groups(self, instruction: Instruction) -> np.ndarray:
    if instruction.opcode.startswith('collective-permute'):
      pairs = re.search(r'source_target_pairs=\{(.*?)\}\}', instruction.attributes)
      return np.array(re.findall(r'\{?(\d+),(\d+)', pairs[1]), int) if pairs else np.arange(2)[None]
    return replica_groups(instruction.attributes, self._devices)

  def _traffic(self, instruction: Instruction, computation: Computation) -> float:
    opcode = instruction.opcode
    operands = [computation[name] for name in instruction.operands if name in computation]
    written = sum(instruction.hbm_bytes)
    is_allocation = 'custom_call_target="AllocateBuffer"' in instruction.attributes
    if opcode in _FREE or opcode.endswith('-done') or opcode in _ASYNC_CALLS or is_allocation:
      return 0
    if opcode == 'fusion':
      return self._fusion_traffic(instruction, operands)
    if opcode in ('dynamic-slice', 'slice', 'gather'):
      return 2 * written
    if opcode == 'dynamic-update-slice':
      return 2 * sum(operands[1].hbm_bytes)
    if opcode == 'scatter':
      return 3 * sum(operands[-1].hbm_bytes)
    if opcode == 'slice-start':  # (operand, slice, …), of which only the slice moves
      is_read = instruction.hbm_bytes[0] > 0
      return is_read * instruction.all_bytes[1] + instruction.hbm_bytes[1]
    if opcode.endswith('-start'):  # its result includes its operands
      return written
    return written + sum(sum(operand.hbm_bytes) for operand in operands)

  def _fusion_traffic(self, fusion: Instruction, operands: Sequence[Instruction]) -> float:
    """Bytes that a fusion reads and writes; of a stack of layers that it slices or updates, one layer only."""
    inner = self.computations[_called(fusion, 'calls')[0]]
    read = 0.0
    for number, operand in enumerate(operands):
      read += min(sum(operand.hbm_bytes), self._parts_read(inner, number))
    root = _root(inner)
    results = [inner.get(name) for name in root.operands] if root.opcode == 'tuple' else [root]
    if len(results) != len(fusion.hbm_bytes):
      return read + sum(fusion.hbm_bytes)
    return read + sum(
      min(whole, self._part_written(inner, result)) for result, whole in zip(results, fusion.hbm_bytes, strict=True)
    )

  def _parts_read(self, inner: Computation, number: int) -> float:
    """Bytes of the slices that a fusion reads of a parameter; infinite if it reads all of it."""
    parameter = next((i for i in inner.values() if i.opcode == 'parameter' and int(i.literal) == number), None)
    return math.inf if parameter is None else self._parts_used(inner, parameter.name)

  def _parts_used(self, inner: Computation, name: str) -> float:
    total = 0.0
    for user in inner.values():
      for place, operand in enumerate(user.operands):
        if operand != name or user.opcode in _IN_FLIGHT:
          continue
        if user.opcode in ('dynamic-slice', 'slice', 'gather') and place == 0:
          total += sum(user.all_bytes)
        elif user.opcode in ('bitcast', 'copy') or self._copied(user) == place:
          total += self._parts_used(inner, user.name)
        elif user.opcode == 'fusion':
          total += self._parts_read(self.computations[_called(user, 'calls')[0]], place)
        elif user.opcode != 'dynamic-update-slice' or place != 0:
          return math.inf
    return total

  def _copied(self, instruction: Instruction) -> int | None:
    """The operand that a fusion, inside another, copies to another layout; None if it does something else."""
    if instruction.opcode != 'fusion':
      return None
    inner = self.computations[_called(instruction, 'calls')[0]]
    source = _root(inner)
    while source.opcode in ('bitcast', 'copy'):
      source = inner[source.operands[0]]
    return int(source.literal) if source.opcode == 'parameter' else None

  def _part_written(self, inner: Computation, result: Instruction | None) -> float:
    """Bytes that a fusion writes for one of its results; of a stack, those of the layer that it updates."""
    while result is not None and result.opcode == 'bitcast':
      result = inner.get(result.operands[0])
    if result is None:
      return math.inf
    copied = self._copied(result)
    source = None if copied is None else inner.get(result.operands[copied])
    if source is not None and source.opcode == 'dynamic-update-slice':  # in another layout, one that the loop keeps
      return sum(inner[source.operands[1]].all_bytes)
    if result.opcode in ('parameter', *_IN_FLIGHT):  # passed through
      return 0
    if result.opcode == 'dynamic-update-slice':
      return sum(inner[result.operands[1]].all_bytes)
    if result.opcode == 'fusion':
      within = self.computations[_called(result, 'calls')[0]]
      return self._part_written(within, _root(within))
    return math.inf


def _jax_name(instruction: Instruction, computation: Computation) -> str:
  if named := re.search(r'op_name="([^"]*)"', instruction.attributes):
    return named[1]
  if instruction.opcode.startswith(('slice', 'copy')) or 'ConcatBitcast' in instruction.attributes:
    user = next((other for other in computation.values() if instruction.name in other.operands), None)
    return '' if user is None else _jax_name(user, computation)
  return instruction.name


def _root(computation: Computation) -> Instruction:
  return next(instruction for instruction in computation.values() if instruction.is_root)


def replica_groups(attributes: str, devices: int) -> np.ndarray:
  """Positions of devices, one row per group, from any of XLA's notations.

  `{{0,1},{2,3}}`; `[2,4]<=[4,2]T(1,0)`, a transposed iota; `mesh['a'=2,'b'=4] {'b'}`, the axes to run over, where
  `device_ids=([4,2]T(1,0))` gives the order of the devices in the mesh.
  """
  if listed := re.search(r'replica_groups=\{((?:\{[\d,]*\},?)*)\}', attributes):
    groups = [_numbers(group) for group in re.findall(r'\{([\d,]+)\}', listed[1])]
    return np.array(groups) if groups else np.arange(devices)[None]
  if iota := re.search(r'replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)', attributes):
    return _ids(iota[2]).reshape(_numbers(iota[1]))
  notation = r'replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^()]*(?:\([\d,]*\))?[^()]*)\))? ?\{([^}]*)\}'
  if (mesh := re.search(notation, attributes)) and ':(' not in mesh[3]:
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
    over = re.findall(r"'(\w+)'", mesh[3])
    ids = _ids(mesh[2]) if mesh[2] else np.arange(math.prod(sizes.values()))
    names = sorted(sizes, key=lambda name: over.index(name) if name in over else -1)  # those to run over come last
    by_axes = ids.reshape(tuple(sizes.values())).transpose([list(sizes).index(name) for name in names])
    return by_axes.reshape(-1, math.prod(sizes[name] for name in over))
  found = re.search(r'replica_groups=.{0,80}', attributes)
  raise ValueError(f'groups of devices in an unknown notation: {found[0] if found else attributes[:80]}')


def _ids(written: str) -> np.ndarray:
  """`0,2,1,3`; or `[4,2]T(1,0)`: 0, 1, 2, … in that shape, transposed. ValueError for another notation."""
  iota = re.fullmatch(r'\[([\d,]+)\](?:T\(([\d,]+)\))?', written)
  if iota is None:
    return np.array(_numbers(written))
  shape = _numbers(iota[1])
  numbers = np.arange(math.prod(shape)).reshape(shape)
  return numbers.transpose(_numbers(iota[2])) if iota[2] else numbers


def _numbers(written: str) -> tuple[int, ...]:
  return tuple(map(int, written.split(',')))


def _called(instruction: Instruction, *attributes: str) -> list[str]:
  for attribute in attributes:
    if found := re.search(rf'\b{attribute}=(?:\{{([^}}]*)\}}|(%?[\w.\-]+))', instruction.attributes):
      return [name.strip().lstrip('%') for name in (found[1] or found[2]).split(',')]
  return []


def _bytes(shapes: str, *, hbm_only: bool) -> tuple[float, ...]:
  sizes = []
  for dtype, dimensions, layout in _SHAPE.findall(shapes):
    digits = re.search(r'\d+', dtype)
    bits = _BITS.get(dtype, int(digits[0]) if digits else 0)
    is_on_chip = hbm_only and re.search(r'S\([1-9]\d*\)', layout) is not None
    elements = math.prod(int(size) for size in dimensions.split(',') if size)
    sizes.append(0.0 if is_on_chip else elements * bits / 8)
  return tuple(sizes)


def _parse(text: str) -> tuple[dict[str, Computation], str]:
  computations: dict[str, Computation] = {}
  entry, current = '', {}
  for line in text.splitlines():
    if line.endswith('{') and not line.startswith((' ', 'HloModule')):
      name = line.removeprefix('ENTRY ').split(' ')[0].split('(')[0].lstrip('%')
      current = computations[name] = {}
      entry = name if line.startswith('ENTRY') else entry
    elif match := _INSTRUCTION.match(line):
      root, name, shapes, opcode, rest = match.groups()
      end = _closing(rest)
      current[name] = Instruction(name, shapes, opcode, rest[:end], rest[end:], root is not None)
  return computations, entry


def _closing(text: str) -> int:
  """Index of the first closing parenthesis without an opening one."""
  depths = itertools.accumulate({'(': 1, ')': -1}.get(character, 0) for character in text)
  return next((index for index, depth in enumerate(depths) if depth < 0), len(text))
