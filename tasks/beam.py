"""Pipelines of corpora and token stores: their steps, and how groups of languages are made in a directory."""

import collections
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from rembert.command_line import quiet_stderr
from rembert.errors import RunError, UsageError
from rembert.files import write_errors, write_whole
from rembert.tracking.console import Console

if TYPE_CHECKING:
  import apache_beam as beam

RECIPE = 'recipe.json'
_TELL_EVERY = 1000  # items

Tell = Callable[[str], None]  # shows a note on the progress


@dataclasses.dataclass(frozen=True)
class BeamRunner:
  """A runner by Beam's name, with flags for Beam; UsageError if Beam is not installed.

  `workers` are processes of the DirectRunner, on this machine. `show_traceback` raises Beam's own exceptions.
  """

  name: str
  workers: int
  flags: Sequence[str]
  show_traceback: bool

  def __post_init__(self):
    if importlib.util.find_spec('apache_beam') is None:
      raise UsageError(
        'Apache Beam is not installed', where=f'--runner={self.name}', fix='pip install "rembert[prepare]"'
      )

  def run(self, build: Callable[['beam.Pipeline'], None], where: str) -> None:
    """Runs a pipeline with the steps that `build` adds; RunError if it fails."""
    logging.getLogger().setLevel(logging.ERROR)  # Beam logs a lot, starting with its import
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    flags, runner, quiet = list(self.flags), self.name, contextlib.nullcontext()
    if runner == 'DirectRunner':
      from apache_beam.runners.portability.fn_api_runner import FnApiRunner

      # The name DirectRunner could mean one that is downloaded first.
      runner = FnApiRunner()
      mode = 'multi_processing' if self.workers > 1 else 'in_memory'
      flags += [f'--direct_num_workers={self.workers}', f'--direct_running_mode={mode}']
      if self.workers > 1 and not self.show_traceback:
        quiet = quiet_stderr()  # its processes log their start there at any log level
    elif runner == 'DaskRunner':
      runner = 'apache_beam.runners.dask.dask_runner.DaskRunner'  # Beam does not recognise its short name
    pipeline = None
    try:
      with quiet, beam.Pipeline(runner=runner, options=PipelineOptions(flags)) as pipeline:
        build(pipeline)
    except UsageError:
      raise
    except Exception as error:  # exceptions of workers are wrapped, with the traceback as text
      if self.show_traceback:
        raise
      lines = [type(error).__name__, *filter(str.strip, str(error).splitlines())]
      raise RunError(
        f'the pipeline failed: {lines[-1]}',
        where=f'{where}, {self.name}',
        fix=[
          'fix the cause and run the command again: completed languages are kept',
          'for the full traceback: --traceback',
        ],
      ) from error
    finally:
      if client := getattr(getattr(pipeline, 'result', None), 'client', None):
        client.close()  # the DaskRunner does not close it


# --- steps of a pipeline, in this process and for Apache Beam ---------------------------------------------------------


class LocalSteps:
  """Steps on lists in this process."""

  def __init__(self, tell: Tell):
    self._tell = tell

  def create(self, label: str, items: Iterable) -> Iterable:
    """The items that a pipeline begins with."""
    return items

  def spread(self, label: str, items: Iterable, function: Callable[[Any], Iterable]) -> Iterator:
    """What `function` returns for each item, one after the other; Beam spreads them over its workers."""
    for number, item in enumerate(items):
      if number % _TELL_EVERY == 0:
        self._tell(f'{label} {number:,}')
      yield from function(item)

  def regroup(self, label: str, items: Iterable, pairs_of: Callable[[Any], Iterable], reduce: Callable) -> list:
    """Groups the values of all pairs (key, value) by key; returns the items of `reduce(key, values)`."""
    groups = collections.defaultdict(list)
    for key, value in itertools.chain.from_iterable(map(pairs_of, items)):
      groups[key].append(value)
    return [result for key, values in groups.items() for result in reduce(key, values)]

  def flatten(self, label: str, *several: Iterable) -> Iterable:
    """The items of all."""
    return itertools.chain(*several)


class BeamSteps:
  """The same of a pipeline, with what every runner has: one output per step, no state, one last step for everything."""

  def __init__(self, pipeline: 'beam.Pipeline'):
    import apache_beam as beam

    self._beam, self._pipeline = beam, pipeline

  def create(self, label, items):
    """As `LocalSteps`."""
    return self._pipeline | label >> self._beam.Create(items)

  def spread(self, label, items, function):
    """As `LocalSteps`."""
    return items | f'spread to {label}' >> self._beam.Reshuffle() | label >> self._beam.FlatMap(function)

  def regroup(self, label, items, pairs_of, reduce):
    """As `LocalSteps`."""
    # Not the functions themselves: Beam would read their type hints, and enforce them.
    pairs = items | f'{label}: by key' >> self._beam.FlatMap(lambda item: pairs_of(item))
    groups = pairs | f'{label}: group' >> self._beam.GroupByKey()
    return groups | label >> self._beam.FlatMap(lambda group: reduce(*group))

  def flatten(self, label, *several):
    """As `LocalSteps`."""
    return several | label >> self._beam.Flatten()


# --- directories that are made by groups of languages -----------------------------------------------------------------


def run_in_groups(
  sizes: Mapping[str, float],
  most_bytes: float,
  console: Console,
  description: str,
  run: Callable[[list[str], Tell], None],
) -> None:
  """Calls `run` with groups of languages of up to `most_bytes` together; 0 for all at once."""
  groups: list[list[str]] = []
  filled = 0.0
  for name, size in sizes.items():
    if not groups or (most_bytes and filled + size > most_bytes):
      groups.append([])
      filled = 0.0
    groups[-1].append(name)
    filled += size
  if not groups:
    return
  with console.task(description) as progress:
    for number, group in enumerate(groups):
      tell = lambda note, number=number: progress(number / len(groups), note)
      tell(' '.join(group[:6]) + (' …' if len(group) > 6 else ''))
      run(group, tell)


def check_recipe(folder: epath.Path, recipe: Mapping, what: str) -> None:
  """Writes the recipe of a corpus or store, its first file; UsageError with the differences if it has another."""
  file = folder / RECIPE
  if not file.exists():
    with write_errors(f'the {what}', folder):
      write_whole(file, json.dumps(recipe, indent=1))
    return
  before = json.loads(file.read_text())
  different = [name for name in recipe if before.get(name) != recipe[name]]
  if different:
    raise UsageError(
      f'the directory contains a {what} built with different options: {", ".join(different)}',
      where=str(folder),
      fix=f'choose another --output or --workdir, delete that {what}, or run the old command to resume it',
    )
