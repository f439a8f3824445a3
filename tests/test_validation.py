"""Every number that can be configured has a range: values outside are rejected by name, values inside accepted."""

import argparse
import importlib
import math
import re
import typing

import pytest

from rembert import configuration, validation
from rembert.errors import UsageError
from rembert.main import main
from rembert.validation import Count, CountOrZero, Fraction, FractionBelowOne, OneOf, Positive, Range

CLASSES = configuration.CONFIGURABLES


def hints(cls):
  return typing.get_type_hints(cls, include_extras=True)


def fields(*kinds):
  """(group, class, field, type) of each field of these kinds."""
  return [
    pytest.param(group, cls, field, hint, id=f'{group}.{field}')
    for group, cls in CLASSES.items()
    for field, hint in hints(cls).items()
    if validation._plain(hint)[0] in kinds
  ]


def outside(hint):
  kind, limits, may_be_none = validation._plain(hint)
  yield from (math.nan, math.inf, -math.inf, 'a word', (), True)
  if not may_be_none:
    yield None
  if kind is int:
    yield 1.5
  if limits.least is not None:
    yield limits.least - 1
  if limits.most is not None:
    yield limits.most + 1
  yield from (bound for bound in (limits.above, limits.below) if bound is not None)


def inside(hint):
  kind, limits, may_be_none = validation._plain(hint)
  yield from (bound for bound in (limits.least, limits.most) if bound is not None)
  low = next(bound for bound in (limits.least, limits.above) if bound is not None)
  high = next((bound for bound in (limits.most, limits.below) if bound is not None), low + 10)
  yield (low + high) // 2 if kind is int else (low + high) / 2
  if may_be_none:
    yield None


@pytest.mark.parametrize(('group', 'cls', 'field', 'hint'), fields(int, float))
def test_numbers_outside_of_their_range_are_refused_by_name_with_the_rule(group, cls, field, hint):
  assert validation._plain(hint)[1] is not None, 'no range is stated'
  for value in outside(hint):
    with pytest.raises(UsageError, match=f'{field} must be a .*number') as caught:
      cls(**{field: value})
    assert caught.value.where == f'{group}.{field} = {value!r}'
    assert caught.value.fix == [f'--gin.{group}.{field}={getattr(cls(), field)!r}']


@pytest.mark.parametrize(('group', 'cls', 'field', 'hint'), fields(int, float))
def test_numbers_inside_of_their_range_are_taken(group, cls, field, hint):
  for value in inside(hint):
    assert validation.broken_rule(value, hint) == ''


def tuples():
  """As `fields`, of tuples of numbers, with the type of their elements."""
  kinds = [validation._plain(hint)[0] for cls in CLASSES.values() for hint in hints(cls).values()]
  of_numbers = [
    kind for kind in kinds if typing.get_origin(kind) is tuple and validation._plain(typing.get_args(kind)[0])[1]
  ]
  return fields(*of_numbers)


@pytest.mark.parametrize(('group', 'cls', 'field', 'hint'), tuples())
def test_tuples_of_numbers_are_refused_for_any_element_outside_of_its_range(group, cls, field, hint):
  each = typing.get_args(validation._plain(hint)[0])[0]
  good = next(iter(inside(each)))
  for value in outside(each):
    with pytest.raises(UsageError, match=f'{field} must be a tuple, each a .*number') as caught:
      cls(**{field: (good, value)})
    assert caught.value.where == f'{group}.{field} = {(good, value)!r}'
  assert getattr(cls(**{field: [good, good]}), field) == (good, good)


@pytest.mark.parametrize(('group', 'cls', 'field', 'hint'), fields(bool, str, tuple[str, ...]))
def test_what_is_no_word_or_switch_is_refused_where_one_is_meant(group, cls, field, hint):
  with pytest.raises(UsageError, match=f'{field} must be') as caught:
    cls(**{field: 3})
  assert caught.value.where == f'{group}.{field} = 3'


@pytest.mark.parametrize(('group', 'cls', 'field', 'hint'), fields(tuple[str, ...]))
def test_a_string_where_a_tuple_is_meant_is_split_at_its_commas(group, cls, field, hint):
  valid = {'evaluate_on': ('xquad', 'mlqa'), 'xla_flags': ('--xla_a=1', '--xla_b=2')}.get(field, ('de', 'sw'))
  for given in ', '.join(valid), list(valid), valid:
    assert getattr(cls(**{field: given}), field) == valid
  assert getattr(cls(**{field: valid[0]}), field) == valid[:1]


@pytest.mark.parametrize(
  ('hint', 'rule'),
  [
    (Count, 'a whole number ≥ 1'),
    (CountOrZero | None, 'a whole number ≥ 0, or None'),
    (Positive, 'a finite number > 0'),
    (Fraction, 'a finite number in [0, 1]'),
    (FractionBelowOne, 'a finite number in [0, 1)'),
    (typing.Annotated[int, Range(-1)], 'a whole number ≥ -1'),
    (typing.Annotated[str, OneOf(('a', 'b'))], 'one of a, b'),
    (bool, 'True or False'),
    (float, 'a finite number'),
  ],
)
def test_rules_are_formatted_in_words(hint, rule):
  assert validation.broken_rule(math.nan, hint) == rule


def test_a_flag_takes_numbers_of_its_range_alone():
  parse = validation.number(Count)
  assert parse('7') == 7
  for text in ('0', '1.5', 'many', ''):
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f'must be a whole number ≥ 1, not {text!r}')):
      parse(text)
  assert validation.number(FractionBelowOne)('0.5') == 0.5
  with pytest.raises(argparse.ArgumentTypeError, match='must be a finite number'):
    validation.number(float)('nan')


@pytest.mark.parametrize('binding', ['optimizer.learning_rate=nan', 'mesh.fsdp=x', 'execution.unroll=1.5'])
def test_a_run_is_not_begun_with_a_number_out_of_its_range(binding, tmp_path, capsys):
  workdir = tmp_path / 'workdir'
  assert main(['--gin_file=gin/pretrain_smoke.gin', f'--workdir={workdir}', f'--gin.{binding}']) == 2
  assert binding.partition('=')[0] in capsys.readouterr().err
  assert not workdir.exists()


@pytest.mark.parametrize(
  ('module', 'arguments', 'refused'),
  [
    (
      'tasks.corpus.__main__',
      '--dumps=sample --output=OUT',
      'held_out=1 min_characters=0 shard_mb=0 group_mb=-1 workers=0',
    ),
    (
      'tasks.token_store.__main__',
      '--dumps=sample --vocabulary=V --output=OUT',
      'sequence_length=x short_rows=2 held_out=nan',
    ),
    ('tasks.vocabulary', '--size=2000 --output=OUT', 'size=0 alpha=-1 coverage=0 characters=0'),
    ('rembert.jobs.predict', 'fill_mask RUN [MASK]', 'top_k=0 step=-1'),
    ('rembert.jobs.predict', 'embed RUN LINES OUT', 'layer=-1 batch_size=0'),
    ('rembert.convert.__main__', 'to_hf RUN OUT', 'shard_gb=0 step=1.5'),
    ('launch.local_cluster', '-- true', 'processes=0 devices=0'),
    ('launch.supervise', '-- true', 'max_restarts=-1'),
    ('benchmarks.run', '', 'rounds=4'),
  ],
)
def test_a_flag_out_of_its_range_is_refused_and_nothing_is_written(
  module, arguments, refused, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  command = importlib.import_module(module).main
  for flag in refused.split():
    first, _, rest = arguments.partition('--')
    with pytest.raises(SystemExit) as caught:
      command([*first.split(), f'--{flag}', *(f'--{rest}'.split() if rest else [])])
    assert caught.value.code == 2
    assert f'--{flag.partition("=")[0]}: must be a' in capsys.readouterr().err
  assert not list(tmp_path.iterdir())
