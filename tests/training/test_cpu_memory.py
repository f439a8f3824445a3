"""Freed memory stays with the process, so that the next step need not wait for the kernel."""

import os
import subprocess
import sys

CODE = """
import resource, sys
import jax, jax.numpy as jnp
from rembert.model.config import RemBertConfig
from rembert.training.cpu_memory import keep_freed_memory_if_small

is_small = bool(int(sys.argv[1]))
config = RemBertConfig(vocab_size=1000, num_hidden_layers=1) if is_small else RemBertConfig()
assert keep_freed_memory_if_small(config) == is_small
step = jax.jit(lambda x: (x @ x @ x).sum())  # temporaries of 36 MB
x = jnp.ones((3000, 3000))
for _ in range(8):  # the heap grows until its gaps fit
  step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
  step(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(is_small: bool) -> int:
  command = [sys.executable, '-c', CODE, str(int(is_small))]
  environment = os.environ | {'JAX_PLATFORMS': 'cpu'}
  return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment).stdout)


def test_the_temporaries_of_a_small_model_s_step_are_not_fetched_anew_from_the_kernel():
  assert page_faults(is_small=True) < 0.1 * page_faults(is_small=False)
