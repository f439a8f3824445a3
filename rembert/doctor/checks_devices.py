"""Checks of devices: those of the machine, those that JAX finds, and whether a gin file's model fits in memory."""

import json

from rembert.doctor.environment import Environment, Findings, problem, run_python, warning
from rembert.runtime.hardware import has_tpu, multiplies_bfloat16
from rembert.tracking.console import human_bytes

_SECONDS = 120
_FLOAT32 = 4
# Run in a subprocess: initialising JAX claims the TPU, and may hang.
_DEVICES = """
import json, jax
devices = jax.devices()
print(json.dumps({
  'platform': devices[0].platform, 'kind': devices[0].device_kind, 'count': len(devices),
}))
"""


def check_devices(environment: Environment) -> Findings:
  """Reports the devices that JAX finds, and a GPU or TPU that it does not use."""
  installed, variables = environment.versions(), environment.variables
  jax = installed.get('jax')
  if jax is None:
    yield problem('JAX is not installed', 'pip install --no-deps -r requirements.txt')
    return None
  there = plugged_in(environment)
  is_libtpu_there = 'libtpu' in installed or bool(variables.get('TPU_LIBRARY_PATH'))
  if there == 'tpu' and not is_libtpu_there:
    yield problem('this machine has a TPU, but libtpu is not installed', f'pip install "jax[tpu]=={jax}"')
  if there != 'tpu' and is_libtpu_there and not variables.get('JAX_PLATFORMS'):
    yield warning(
      'libtpu is installed, but there is no TPU: JAX searches for one at every start',
      'pip uninstall libtpu, or export JAX_PLATFORMS=cpu',
    )
  # Do not preallocate GPU memory for this.
  output, error = run_python(_DEVICES, environment, seconds=_SECONDS, XLA_PYTHON_CLIENT_PREALLOCATE='false')
  if error:
    yield problem(f'JAX finds no devices: {error}', 'end the process that uses them, or export JAX_PLATFORMS=cpu')
    return None
  found = json.loads(output.splitlines()[-1])
  platform = found['platform']
  text = f'{found["count"]} × {found["kind"]} ({platform}), jax {jax}'
  if there and platform == 'cpu':
    chosen = variables.get('JAX_PLATFORMS', '')
    name, extra = ('TPU', 'tpu') if there == 'tpu' else ('GPU', 'cuda12')
    if chosen:
      yield warning(f'this machine has a {name}, but JAX_PLATFORMS={chosen} excludes it', 'unset JAX_PLATFORMS')
    elif there == 'gpu' or is_libtpu_there:
      yield problem(f'this machine has a {name}, but JAX uses the CPU: {text}', f'pip install "jax[{extra}]=={jax}"')
  elif platform == 'cpu' and multiplies_bfloat16(environment.cpuinfo):
    text += ', fast in bfloat16: --gin.execution.dtype=auto takes half to two thirds of the time'
  return text


def plugged_in(environment: Environment) -> str | None:
  """`tpu` or `gpu` if the machine has one, whether or not JAX can use it; None if it has neither."""
  if has_tpu(environment.pci_devices):
    return 'tpu'
  return 'gpu' if list(environment.devices.glob('nvidia[0-9]*')) else None


def check_memory(environment: Environment) -> Findings:
  """Compares the size of parameters, gradients and Adam's two moments (without activations) with the free memory."""
  from rembert import configuration
  from rembert.model.config import RemBertConfig
  from rembert.model.parameter_count import count_parameters
  from rembert.train.optimizer import OptimizerConfig

  available = environment.available_bytes()
  if not environment.gin_files:
    return 'unknown' if available is None else f'{human_bytes(available)} available'
  configuration.load(environment.gin_files, environment.bindings)
  run = configuration.build(configuration.RunConfig)
  counts = count_parameters(configuration.build(RemBertConfig))
  parameters = counts.pre_training if run.mode == 'pretrain' else counts.fine_tuning
  moments = _FLOAT32 + (2 if configuration.build(OptimizerConfig).mu_dtype == 'bfloat16' else _FLOAT32)
  per_parameter = 2 * _FLOAT32 + moments if run.mode in ('pretrain', 'finetune') else _FLOAT32
  needed = parameters * per_parameter
  text = f'{parameters:,} parameters take {human_bytes(needed)} with gradients and optimizer'
  if plugged_in(environment):
    return f'{text}, over all devices (exact figures: --mode=compile --topology=…)'
  if available is None:
    return f'{text}; free memory is unknown'
  if needed > available:
    yield problem(
      f'{text}, but only {human_bytes(available)} are available',
      'use a smaller model (gin/pretrain_base.gin, gin/pretrain_smoke.gin), more memory, or more hosts with mesh.fsdp',
    )
  elif needed > available / 2:
    yield warning(
      f'{text}, of {human_bytes(available)}: activations may not fit',
      'use smaller micro-batches: --gin.train.accumulation_steps=4 --gin.execution.remat=full',
    )
  return f'{text}, of {human_bytes(available)} available'
