"""Ranges of numbers, stated once with the type of a field or flag, and checked when a configuration is built.

steps: Annotated[int, Range(1)]                         # or its short name, `Count`
max_share: Annotated[float, Range(above=0, most=1)] | None
dtype: Annotated[str, OneOf(DTYPES)]
"""

import argparse
import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Callable, Hashable
from typing import Annotated, Any

from rembert.errors import Setting, UsageError


@dataclasses.dataclass(frozen=True)
class Range:
  """Finite numbers between bounds.

  Attributes:
    least: smallest number allowed.
    most: largest number allowed.
    above: numbers must be larger.
    below: numbers must be smaller.
  """

  least: float | None = None
  most: float | None = None
  _: dataclasses.KW_ONLY
  above: float | None = None
  below: float | None = None

  def __contains__(self, value: Any) -> bool:
    return (
      math.isfinite(value)
      and (self.least is None or value >= self.least)
      and (self.most is None or value <= self.most)
      and (self.above is None or value > self.above)
      and (self.below is None or value < self.below)
    )

  def __str__(self) -> str:
    low = f'[{self.least:,}' if self.least is not None else f'({self.above:,}' if self.above is not None else ''
    high = f'{self.most:,}]' if self.most is not None else f'{self.below:,})' if self.below is not None else ''
    if low and high:
      return f'in {low}, {high}'
    signs = {'≥': self.least, '≤': self.most, '>': self.above, '<': self.below}
    return ' and '.join(f'{sign} {bound:,}' for sign, bound in signs.items() if bound is not None)


@dataclasses.dataclass(frozen=True)
class OneOf:
  """Names that a field may have."""

  names: tuple[str, ...]


Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]
FractionBelowOne = Annotated[float, Range(0, below=1)]

_ANY = Range()
_NOTHING = object()  # what no type allows


def check_fields(config: Any, group: str) -> None:
  """Checks each field of a dataclass by its type: numbers, booleans, strings, and tuples of these.

  A list given for a tuple is made one, and a string given for a tuple of strings is split at its commas. Fields of
  other types are not checked.

  Args:
    config: the instance; call this in `__post_init__`.
    group: its name in a gin file, for messages; '' for none.

  Raises:
    UsageError: the first field with a value that its type does not allow.
  """
  hints = _hints(type(config))  # type: ignore[arg-type]
  for field in dataclasses.fields(config):
    name = f'{group}.{field.name}' if group else field.name
    value = getattr(config, field.name)
    hint = hints[field.name]
    if typing.get_origin(kind := _plain(hint)[0]) is tuple:
      value = _as_tuple(value, splits=kind == tuple[str, ...])
      object.__setattr__(config, field.name, value)
    if rule := broken_rule(value, hint):
      fix = Setting(name, repr(field.default)) if group else f'the default is {field.default!r}'
      has_default = field.default is not dataclasses.MISSING
      raise UsageError(f'{field.name} must be {rule}', where=f'{name} = {value!r}', fix=fix if has_default else '')


def broken_rule(value: Any, hint: Any) -> str:
  """The rule that a value of this type breaks, such as 'a whole number ≥ 1'; '' if it breaks none."""
  kind, limits, may_be_none = _plain(hint)
  if value is None and may_be_none:
    return ''
  rule, is_kept = '', True
  if kind in (int, float):
    limits = limits or _ANY
    of_kind = numbers.Integral if kind is int else numbers.Real
    is_kept = isinstance(value, of_kind) and not isinstance(value, bool) and value in limits
    rule = ' '.join(filter(None, ('a whole number' if kind is int else 'a finite number', str(limits))))
  elif kind is bool:
    rule, is_kept = 'True or False', isinstance(value, bool)
  elif isinstance(limits, OneOf):
    rule, is_kept = f'one of {", ".join(limits.names)}', isinstance(value, str) and value in limits.names
  elif kind is str:
    rule, is_kept = 'a string', isinstance(value, str)
  elif kind == tuple[str, ...]:
    rule, is_kept = 'a tuple of strings', isinstance(value, tuple) and all(isinstance(each, str) for each in value)
  elif typing.get_origin(kind) is tuple:
    each = typing.get_args(kind)[0]
    rule = f'a tuple, each {broken_rule(_NOTHING, each)}'
    is_kept = isinstance(value, tuple) and not any(broken_rule(part, each) for part in value)
  return '' if is_kept else rule + (', or None' if may_be_none else '')


def number(hint: Any) -> Callable[[str], Any]:
  """Returns a `type=` for argparse that parses a number of an annotated type, such as `Count`."""
  kind = _plain(hint)[0]

  def parse(text: str) -> Any:
    try:
      value = kind(text)
    except ValueError:
      value = text
    if rule := broken_rule(value, hint):
      raise argparse.ArgumentTypeError(f'must be {rule}, not {text!r}')
    return value

  return parse


def comma_separated(hint: Any) -> Callable[[str], list]:
  """Returns a `type=` for argparse that parses numbers of an annotated type separated by commas: `1,2,5`."""
  parse = number(hint)
  return lambda text: [parse(part) for part in text.split(',')]


def _as_tuple(value: Any, *, splits: bool) -> Any:
  if isinstance(value, str) and splits:
    return tuple(part.strip() for part in value.split(','))
  return tuple(value) if isinstance(value, list) else value


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
  return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _plain(hint: Any) -> tuple[Any, Any, bool]:
  """A type without None and its annotation, the annotation or None, and whether None is allowed."""
  parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
  others = [part for part in parts if part is not types.NoneType]
  if len(others) != 1:
    return None, None, True  # several types: not checked here
  limits = None
  if typing.get_origin(others[0]) is Annotated:
    others, (limits, *_) = [others[0].__origin__], others[0].__metadata__
  return others[0], limits, types.NoneType in parts
