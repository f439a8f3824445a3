"""Freed memory stays with the process, so that the next step need not wait for the kernel."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks.settings import BASE
from rembert.aot.flops import heap_bytes

CODE = """
import resource, sys
import jax, jax.numpy as jnp
from rembert.aot.flops import heap_bytes
from rembert.model.config import RemBertConfig
from rembert.runtime.cpu_memory import keep_freed_memory_if_it_fits

fits = bool(int(sys.argv[1]))
config = RemBertConfig(vocab_size=1000, num_hidden_layers=1)  # 0.7 GB
assert keep_freed_memory_if_it_fits(heap_bytes(config, 1000), available=3 * 10**9 if fits else 10**9) == fits
step = jax.jit(lambda x, y: ((x @ y) @ x).sum())  # a temporary of 144 MB, and little to compute
x, y = jnp.ones((6000, 8)), jnp.ones((8, 6000))
for _ in range(8):  # the heap grows until its gaps fit
  step(x, y).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
  step(x, y).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
with open('/proc/self/smaps_rollup') as lines:
  print(next(line.split()[1] for line in lines if line.startswith('AnonHugePages')))
"""
KERNEL = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')


@functools.cache
def measured(fits: bool) -> tuple[int, int]:
  """Page faults of eight steps, and the kilobytes of pages of 2 MB after them."""
  command = [sys.executable, '-c', CODE, str(int(fits))]
  environment = os.environ | {'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
  faults, kilobytes = map(int, done.stdout.split())
  return faults, kilobytes


def test_a_heap_is_as_large_as_what_was_seen_of_a_base_step():
  assert 6.7e9 < heap_bytes(BASE, 1024) < 12e9
  assert heap_bytes(BASE, 4096) - heap_bytes(BASE, 1024) == 3 * (heap_bytes(BASE, 2048) - heap_bytes(BASE, 1024))


@pytest.mark.slow
def test_temporaries_with_enough_memory_are_not_mapped_again():
  assert measured(fits=True)[0] < 0.1 * measured(fits=False)[0]


@pytest.mark.slow
def test_kept_memory_is_in_huge_pages_and_other_memory_is_not():
  if not KERNEL.exists() or '[madvise]' not in KERNEL.read_text():
    pytest.skip('this kernel has no large pages for those who ask')
  # The temporary, and the memory around it.
  assert measured(fits=True)[1] > 100_000
  assert measured(fits=False)[1] < 10_000
