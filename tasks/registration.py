"""Adds tasks and mixtures to SeqIO's registries: in place of earlier ones of ours, never in place of anybody else's."""

from tasks.tensorflow_import import tensorflow  # noqa: F401 - before SeqIO imports it

# isort: split
from collections.abc import Mapping
from typing import Any

import seqio

from rembert.errors import UsageError

_OURS: set[str] = set()


def valid_name(*parts: str) -> str:
  """Parts of a task's name joined by dots; SeqIO allows no hyphens, so `zh-min-nan` becomes `zh_min_nan`."""
  return '.'.join(part.replace('-', '_') for part in parts)


def add_task(name: str, **arguments) -> seqio.Task:
  """`seqio.TaskRegistry.add`, which may replace a task of ours; UsageError if another module registered the name."""
  _make_room(name)
  return seqio.TaskRegistry.add(name, **arguments)


def add_mixture(name: str, rates: Mapping[str, seqio.MixtureRate], **arguments: Any) -> seqio.Mixture:
  """`seqio.MixtureRegistry.add`, which may replace a mixture of ours; raises as `add_task`.

  A rate is the sampling weight of a task or mixture, or a function of the task that returns it when it is needed.
  """
  _make_room(name)
  return seqio.MixtureRegistry.add(name, list(rates.items()), **arguments)


def remove_ours(name: str) -> None:
  """Removes tasks and mixtures of ours called `name` or `name.…`."""
  for each in [each for each in _OURS if each == name or each.startswith(f'{name}.')]:
    _make_room(each)


def _make_room(name: str) -> None:
  registries = [each for each in (seqio.TaskRegistry, seqio.MixtureRegistry) if name in each.names()]
  if registries and name not in _OURS:
    raise UsageError(
      f'a SeqIO task or mixture called {name!r} is registered already, by another module',
      where=name,
      fix="register it under another name: tasks.add_wikipedia(name='…'), tasks.add_xtreme(name='…')",
    )
  for registry in registries:
    registry.remove(name)
  _OURS.add(name)


def find(name: str) -> seqio.Task | seqio.Mixture:
  """A registered task or mixture; UsageError with the nearest names if there is none."""
  try:
    return seqio.get_mixture_or_task(name)
  except ValueError:
    known = [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]
    near = seqio.dataset_providers._get_closest_names(known, name)[:3]
    raise UsageError(
      f'no SeqIO task or mixture called {name!r} is registered',
      where='data.mixture, finetune.mixture, --mixture',
      fix=[
        f'did you mean {", ".join(near)}?' if near else 'import tasks.mixtures registers those of this project',
        '--module=my_tasks imports a module of yours that registers it',
      ],
    ) from None
