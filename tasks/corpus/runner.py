"""Runs a Beam pipeline, on this machine or elsewhere, with one error in plain words if it fails."""

import contextlib
import dataclasses
import importlib.util
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rembert.errors import RunError, UsageError

if TYPE_CHECKING:
  import apache_beam as beam


@dataclasses.dataclass(frozen=True)
class BeamRunner:
  """Where a pipeline runs.

  Attributes:
    name: Beam's: `DirectRunner` (this machine), `DataflowRunner`, `FlinkRunner`, `SparkRunner`, `DaskRunner`.
    workers: processes of the DirectRunner.
    flags: passed on to Beam.
    show_traceback: raise Beam's own exception.
  """

  name: str = 'DirectRunner'
  workers: int = 1
  flags: Sequence[str] = ()
  show_traceback: bool = False

  def check(self) -> None:
    """Raises UsageError if Beam is not installed."""
    if importlib.util.find_spec('apache_beam') is None:
      raise UsageError(
        'Apache Beam is not installed', where=f'--runner={self.name}', fix='pip install "rembert[prepare]"'
      )

  def run(self, build: Callable[['beam.Pipeline'], None], where: str) -> None:
    """Runs what `build` adds to a pipeline; RunError if it fails."""
    logging.getLogger().setLevel(logging.ERROR)  # Beam logs much, from its import on
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    flags, runner = list(self.flags), self.name
    if runner == 'DirectRunner':
      from apache_beam.runners.portability.fn_api_runner import FnApiRunner

      # By name, DirectRunner may be one that is downloaded first.
      runner = FnApiRunner()
      mode = 'multi_processing' if self.workers > 1 else 'in_memory'
      flags += [f'--direct_num_workers={self.workers}', f'--direct_running_mode={mode}']
    elif runner == 'DaskRunner':
      runner = 'apache_beam.runners.dask.dask_runner.DaskRunner'  # Beam does not know it by its short name
    pipeline = None
    try:
      with self._quiet_processes(), beam.Pipeline(runner=runner, options=PipelineOptions(flags)) as pipeline:
        build(pipeline)
    except UsageError:
      raise
    except Exception as error:  # a worker's exception comes wrapped, with its traceback as text
      lines = [line for line in str(error).splitlines() if line.strip()]
      if self.show_traceback:
        raise
      raise RunError(
        f'the pipeline failed: {lines[-1] if lines else type(error).__name__}',
        where=f'{where}, {self.name}',
        fix=[
          'fix the cause and repeat the command: languages that are done are kept',
          'to see where in the code it failed: --traceback',
        ],
      ) from error
    finally:
      if client := getattr(getattr(pipeline, 'result', None), 'client', None):
        client.close()  # the DaskRunner leaves it open

  @contextlib.contextmanager
  def _quiet_processes(self) -> Iterator[None]:
    """Beam's processes on this machine log their start to standard error, whatever level they are given."""
    if self.name != 'DirectRunner' or self.workers == 1 or self.show_traceback:
      yield
      return
    kept = os.dup(2)
    with open(os.devnull, 'wb') as nowhere:
      os.dup2(nowhere.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(kept, 2)
      os.close(kept)
