"""Freed memory stays with the process, so that the next step need not wait for the kernel."""

import subprocess
import sys

import pytest

from rembert.training.cpu_memory import is_cpu_machine

CODE = """
import resource, sys
from rembert.training.cpu_memory import keep_freed_memory

assert not int(sys.argv[1]) or keep_freed_memory()
import jax, jax.numpy as jnp

step = jax.jit(lambda x: (x @ x @ x).sum())  # temporaries of 36 MB
x = jnp.ones((3000, 3000))
for _ in range(2):
  step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
  step(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(is_kept: bool) -> int:
  command = [sys.executable, '-c', CODE, str(int(is_kept))]
  return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


def test_the_temporaries_of_a_step_are_not_fetched_anew_from_the_kernel():
  assert page_faults(is_kept=True) < 0.1 * page_faults(is_kept=False)


@pytest.mark.parametrize(('platforms', 'is_cpu'), [('cpu', True), ('tpu', False), ('cuda,cpu', False)])
def test_who_names_a_platform_is_believed(monkeypatch, platforms, is_cpu):
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  assert is_cpu_machine() == is_cpu
