"""Input and output of checks. They see the machine through `Environment` only, so that tests can simulate it."""

import dataclasses
import enum
import functools
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

import rembert
from rembert.errors import UsageError, first_line
from rembert.runtime.hardware import available_bytes

PROJECT = pathlib.Path(rembert.__file__).parent.parent


def installed_versions() -> dict[str, str]:
  """Version of every distribution that can be imported, by normalized name; the first on the path counts."""
  versions: dict[str, str] = {}
  for distribution in importlib.metadata.distributions():
    if name := distribution.metadata['Name']:  # a partly deleted distribution has none
      versions.setdefault(canonicalize_name(name), distribution.version)
  return versions


@dataclasses.dataclass(frozen=True)
class Environment:
  """Command line, installation and machine, as the checks see them.

  Attributes:
    workdir, gin_files, bindings, tensorflow, traceback: the flags.
    folder: current directory of commands.
    project: directory of the package's code.
    path: search path of modules.
    versions: versions of installed packages, by name.
    variables: environment variables.
    devices, pci_devices, cpuinfo: files in which Linux lists hardware.
    available_bytes: free memory; None if unknown.
    free_bytes: free space on the disk of a directory.
  """

  workdir: str | None = None
  gin_files: tuple[str, ...] = ()
  bindings: tuple[str, ...] = ()
  tensorflow: bool = False
  traceback: bool = False
  folder: pathlib.Path = dataclasses.field(default_factory=pathlib.Path.cwd)
  project: pathlib.Path = PROJECT
  path: tuple[str, ...] = dataclasses.field(default_factory=lambda: tuple(sys.path))
  versions: Callable[[], Mapping[str, str]] = installed_versions
  variables: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
  devices: pathlib.Path = pathlib.Path('/dev')
  pci_devices: pathlib.Path = pathlib.Path('/sys/bus/pci/devices')
  cpuinfo: pathlib.Path = pathlib.Path('/proc/cpuinfo')
  available_bytes: Callable[[], int | None] = available_bytes
  free_bytes: Callable[[pathlib.Path], int] = lambda folder: shutil.disk_usage(folder).free


class Level(enum.Enum):
  """Severity of a finding."""

  WELL = 'ok'
  WARNING = 'warning'
  PROBLEM = 'problem'


@dataclasses.dataclass(frozen=True)
class Finding:
  """One row of the table: the result, how to fix it (empty if nothing is wrong), and the check, set by `examine`."""

  level: Level
  text: str
  fix: str = ''
  check: str = ''


# A check yields findings. If it yields none, the text that it returns is its finding, at level OK.
Findings = Generator[Finding, None, Any]

warning = functools.partial(Finding, Level.WARNING)  # (text, fix): a run may still work
problem = functools.partial(Finding, Level.PROBLEM)  # (text, fix): a run would fail, or give wrong results


def usage_problem(error: UsageError) -> Finding:
  """The error as a finding, with the message that a run would print."""
  return problem(f'{error.what} ({error.where})' if error.where else error.what, ' · '.join(error.fix))


def run_python(code: str, environment: Environment, *, seconds: int, **variables: str) -> tuple[str, str]:
  """Runs code in a subprocess; returns its output, and why it failed, or ''."""
  variables = {**environment.variables, **variables}  # not those of this process, in which the accelerator is hidden
  command, folder = [sys.executable, '-c', code], environment.project
  try:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds, cwd=folder)
  except subprocess.TimeoutExpired:
    return '', f'no answer within {seconds} s'
  lines = [line for line in done.stderr.splitlines() if line.strip()] or [f'exit code {done.returncode}']
  return done.stdout, lines[-1].strip() if done.returncode else ''


def examine(checks: Mapping[str, Callable[[Environment], Findings]], environment: Environment) -> Iterator[Finding]:
  """Findings of all checks, in order. A check that raises an exception becomes one, and does not stop the others."""
  for name, check in checks.items():
    found: list[Finding] = []
    try:
      findings = check(environment)
      while True:
        found.append(next(findings))  # one by one, to keep findings before a failure
    except StopIteration as end:
      if end.value and not found:
        found.append(Finding(Level.WELL, end.value))
    except UsageError as error:
      found.append(usage_problem(error))
    except Exception as error:
      reason = f'{type(error).__name__}: {first_line(error)}'
      found.append(problem(f'the check failed with {reason}', f'--only={name} --traceback prints the traceback'))
      if environment.traceback:
        raise
    for finding in found:
      yield dataclasses.replace(finding, check=name)
