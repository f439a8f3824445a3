"""What the checks look at: everything that they know of the machine comes from here, so that a test can plant it."""

import dataclasses
import importlib.metadata
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping

import rembert
from rembert.runtime.hardware import available_bytes

PROJECT = pathlib.Path(rembert.__file__).parent.parent


def installed_versions() -> dict[str, str]:
  """Version of every distribution that can be imported, by normalised name; the first on the path counts."""
  versions: dict[str, str] = {}
  for distribution in importlib.metadata.distributions():
    if name := distribution.metadata['Name']:  # a half-deleted one has none
      versions.setdefault(normalised(name), distribution.version)
  return versions


def normalised(name: str) -> str:
  """A distribution's name as packaging compares them."""
  return re.sub(r'[-_.]+', '-', name).lower()


@dataclasses.dataclass(frozen=True)
class Examined:
  """The machine, the environment, and what the command line names.

  Attributes:
    vocabulary: a SentencePiece model; None for that of the workdir or the store, if they have one.
    data_dir: root of XTREME's data.
    store: a token store.
    dumps: a folder or glob of MediaWiki dumps.
    workdir: of a run, there or to be.
    gin_files: what is to be run.
    bindings: of gin, after the files.
    imports_tensorflow: whether TensorFlow, SeqIO and t5 may be imported to see if they can.
    show_traceback: of a check that fails.
    folder: where commands are started.
    project: what holds the packages `rembert` and `tasks`.
    path: where modules are looked for.
    python: this interpreter's version.
    versions: gives what is installed.
    environment: variables.
    devices: folder of device files.
    pci_devices: of the PCI bus.
    cpuinfo: what the kernel says of the processor.
    available_bytes: gives the memory that is left.
    free_bytes: gives the room on the disk of a folder; None asks the disk.
    open_files: limit of this process; None asks the kernel.
    now: gives seconds since 1970.
  """

  vocabulary: str | None = None
  data_dir: str | None = None
  store: str | None = None
  dumps: str | None = None
  workdir: str | None = None
  gin_files: tuple[str, ...] = ()
  bindings: tuple[str, ...] = ()
  imports_tensorflow: bool = False
  show_traceback: bool = False
  folder: pathlib.Path = dataclasses.field(default_factory=pathlib.Path.cwd)
  project: pathlib.Path = PROJECT
  path: tuple[str, ...] = dataclasses.field(default_factory=lambda: tuple(sys.path))
  python: tuple[int, ...] = tuple(sys.version_info[:3])
  versions: Callable[[], Mapping[str, str]] = installed_versions
  environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
  devices: pathlib.Path = pathlib.Path('/dev')
  pci_devices: pathlib.Path = pathlib.Path('/sys/bus/pci/devices')
  cpuinfo: pathlib.Path = pathlib.Path('/proc/cpuinfo')
  available_bytes: Callable[[], int | None] = available_bytes
  free_bytes: Callable[[pathlib.Path], int] | None = None
  open_files: int | None = None
  now: Callable[[], float] = time.time
