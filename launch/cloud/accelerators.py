"""Which TPUs there are: how their types are written, what software their machines want, where GKE finds them."""

import dataclasses
import math
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
    dimensions: of a slice.
    runtime: software of a TPU VM that JAX wants.
    gke_accelerator: the label of GKE's nodes.
    gke_machine: GKE's machine of four chips.
  """

  name: str
  prefix: str
  counted_per_chip: int
  dimensions: int
  runtime: str
  gke_accelerator: str
  gke_machine: str


# Runtimes: docs.cloud.google.com/tpu/docs/runtimes, "PyTorch and JAX". GKE's labels and machines: the same site,
# kubernetes-engine/docs/concepts/plan-tpus, and xpk's system_characteristics.py. Google's note of 2026 there: the Cloud
# TPU API (gcloud compute tpus) gets no new generations; what comes after v6e is in GKE alone.
GENERATIONS = (
  Generation('v4', 'v4', 2, 3, 'tpu-ubuntu2204-base', 'tpu-v4-podslice', 'ct4p-hightpu-4t'),
  Generation('v5e', 'v5litepod', 1, 2, 'v2-alpha-tpuv5-lite', 'tpu-v5-lite-podslice', 'ct5lp-hightpu-4t'),
  Generation('v5p', 'v5p', 2, 3, 'v2-alpha-tpuv5', 'tpu-v5p-slice', 'ct5p-hightpu-4t'),
  Generation('v6e', 'v6e', 1, 2, 'v2-alpha-tpuv6e', 'tpu-v6e-slice', 'ct6e-standard-4t'),
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


def type_of_slice(generation: Generation, shape: tuple[int, ...]) -> AcceleratorType:
  """The accelerator type of a slice of that shape."""
  chips = math.prod(shape)
  return AcceleratorType(f'{generation.prefix}-{chips * generation.counted_per_chip}', generation, chips)
