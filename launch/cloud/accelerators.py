"""TPU generations: how their accelerator types are written, and the software of their machines."""

import dataclasses
import pathlib
import re

import rembert
from rembert.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Generation:
  """One generation of TPUs.

  Attributes:
    name: as `--topology` has it.
    prefix: of the accelerator type.
    counted_per_chip: what the number in the type counts of each chip: its two TensorCores on v4 and v5p.
    runtime: software of a TPU VM that JAX wants.
  """

  name: str
  prefix: str
  counted_per_chip: int
  runtime: str


# Runtimes: docs.cloud.google.com/tpu/docs/runtimes, "PyTorch and JAX". Google's note of 2026 there: the Cloud TPU API
# (gcloud compute tpus) gets no new generations; those after v6e are in GKE only.
GENERATIONS = (
  Generation('v4', 'v4', 2, 'tpu-ubuntu2204-base'),
  Generation('v5e', 'v5litepod', 1, 'v2-alpha-tpuv5-lite'),
  Generation('v5p', 'v5p', 2, 'v2-alpha-tpuv5'),
  Generation('v6e', 'v6e', 1, 'v2-alpha-tpuv6e'),
)
EXAMPLES = 'v4-128, v5litepod-64, v5p-128, v6e-64'


@dataclasses.dataclass(frozen=True)
class AcceleratorType:
  """`v5litepod-64`, taken apart.

  Attributes:
    name: as gcloud takes it.
    generation: of the chips.
    chips: how many.
  """

  name: str
  generation: Generation
  chips: int

  @property
  def gin_file(self) -> str | None:
    """The file of `gin/hardware` for so many of these chips, if there is one."""
    name = f'gin/hardware/{self.generation.name}_{self.chips}.gin'
    return name if (pathlib.Path(rembert.__file__).parent.parent / name).exists() else None

  def in_words(self) -> str:
    """What the number means, which differs between generations, and the gin file to go with it."""
    text = f'{self.name}: {self.chips} chips of {self.generation.name}'
    if self.generation.counted_per_chip > 1:
      text += ' (the number in the type counts TensorCores, two a chip)'
    return text + (f'; goes with --gin_file={self.gin_file}' if self.gin_file else '')


def accelerator_type(name: str) -> AcceleratorType:
  """An accelerator type by its name; UsageError for what is none."""
  match = re.fullmatch(r'([a-z0-9]+)-([1-9]\d*)', name)
  generation = next((each for each in GENERATIONS if match and each.prefix == match[1]), None)
  if match is None or generation is None or int(match[2]) % generation.counted_per_chip:
    hint = ' (v5e is written v5litepod-64)' if name.startswith('v5e') else ''
    raise UsageError(f'no accelerator type {name!r}{hint}', where='--type', fix=f'such as {EXAMPLES}')
  return AcceleratorType(name, generation, int(match[2]) // generation.counted_per_chip)
