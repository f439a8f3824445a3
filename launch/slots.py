"""Where runs go that are made side by side: an accelerator each, or a share of the processor's cores."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from rembert.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Slot:
  """Room for one run at a time.

  Attributes:
    name: shown beside what runs there; empty where there is one slot only.
    environment: variables that keep the run to its device.
    cores: that the run may use; None for all.
  """

  name: str = ''
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
  cores: frozenset[int] | None = None


def device_slots(devices: Sequence[str]) -> list[Slot]:
  """A slot for each GPU or TPU chip of this machine, by its number.

  Both kinds of variables are set, for each is read by its own driver alone: `CUDA_VISIBLE_DEVICES` by CUDA, the others
  by libtpu, which takes a single chip for a slice of its own when the bounds of processes and chips are 1,1,1.
  """
  return [
    Slot(
      f'device {device}',
      {
        'CUDA_VISIBLE_DEVICES': device,
        'TPU_VISIBLE_CHIPS': device,
        'TPU_CHIPS_PER_PROCESS_BOUNDS': '1,1,1',
        'TPU_PROCESS_BOUNDS': '1,1,1',
      },
    )
    for device in devices
  ]


def core_slots(count: int) -> list[Slot]:
  """`count` slots of equally many cores; what is left over stays idle. UsageError if there are fewer cores."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))
  if count == 1:
    return [Slot()]
  if count > len(cores):
    raise UsageError(
      f'{count} runs side by side on {len(cores)} core(s)',
      where=f'--side_by_side={count}',
      fix=f'at most {len(cores)}; each would wait for the others',
    )
  each = len(cores) // count
  shares = [cores[index * each : (index + 1) * each] for index in range(count)]
  return [Slot(f'cores {share[0]}-{share[-1]}', cores=frozenset(share)) for share in shares]
