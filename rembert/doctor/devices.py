"""Devices: what is plugged in, and what JAX makes of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, problem, warning, well
from rembert.runtime.hardware import has_tpu, multiplies_bfloat16
from rembert.tracking.console import human_bytes

_SECONDS = 120
# In a process of its own: whoever asks JAX for a TPU holds it, and an answer may never come.
_ASK = """
import json, jax
devices = jax.devices()
print(json.dumps({
  'platform': devices[0].platform, 'kind': devices[0].device_kind, 'count': len(devices),
  'memory': [(device.memory_stats() or {}).get('bytes_limit') for device in devices][0],
}))
"""


def check_devices(examined: Examined) -> Iterator[Finding]:
  """Which devices JAX finds, and whether a GPU or TPU is left unused."""
  installed, environment = examined.versions(), examined.environment
  jax = installed.get('jax')
  if jax is None:
    yield problem('JAX is not installed', 'pip install --no-deps -r requirements.txt')
    return
  there = plugged_in(examined)
  is_libtpu_there = 'libtpu' in installed or bool(environment.get('TPU_LIBRARY_PATH'))
  if there == 'tpu' and not is_libtpu_there:
    yield problem('a TPU is plugged in, and libtpu is not installed', f'pip install "jax[tpu]=={jax}"')
  if there != 'tpu' and is_libtpu_there and not environment.get('JAX_PLATFORMS'):
    yield warning(
      'libtpu is installed, and there is no TPU: every start of JAX looks for one first',
      'pip uninstall libtpu, or export JAX_PLATFORMS=cpu',
    )
  found, error = _asked(examined)
  if found is None:
    yield problem(f'JAX finds no devices: {error}', 'end the process that holds them, or export JAX_PLATFORMS=cpu')
    return
  platform = found['platform']
  in_words = f'{found["count"]} × {found["kind"]} ({platform}), jax {jax}'
  if found.get('memory'):
    in_words += f', {human_bytes(found["memory"])} each'
  if there and platform == 'cpu':
    chosen = environment.get('JAX_PLATFORMS', '')
    name, extra = ('TPU', 'tpu') if there == 'tpu' else ('GPU', 'cuda12')
    if chosen:
      yield warning(f'a {name} is plugged in, and JAX_PLATFORMS={chosen} keeps JAX from it', 'unset JAX_PLATFORMS')
    elif there == 'gpu' or is_libtpu_there:
      yield problem(f'a {name} is plugged in, and JAX uses the CPU: {in_words}', f'pip install "jax[{extra}]=={jax}"')
  elif platform == 'cpu' and multiplies_bfloat16(examined.cpuinfo):
    yield well(f'{in_words}, good at bfloat16: --gin.execution.dtype=bfloat16 takes half to two thirds of the time')
  else:
    yield well(in_words)


def plugged_in(examined: Examined) -> str | None:
  """`tpu` or `gpu`, whether JAX can use it or not; None where there is neither."""
  if has_tpu(examined.pci_devices):
    return 'tpu'
  return 'gpu' if list(examined.devices.glob('nvidia[0-9]*')) else None


def _asked(examined: Examined) -> tuple[dict | None, str]:
  # Only to look: a GPU's memory is not to be taken for it.
  environment = {**os.environ, **examined.environment, 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
  command = [sys.executable, '-c', _ASK]
  try:
    done = subprocess.run(
      command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=examined.project
    )
  except subprocess.TimeoutExpired:
    return None, f'no answer within {_SECONDS} s'
  lines = [line for line in done.stderr.splitlines() if line.strip()]
  if done.returncode:
    return None, lines[-1].strip() if lines else f'exit code {done.returncode}'
  return json.loads(done.stdout.splitlines()[-1]), ''
