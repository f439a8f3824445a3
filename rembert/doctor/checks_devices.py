"""Devices: those plugged in, those that JAX finds, and whether their memory holds the model of a gin file."""

import json

from rembert.doctor.environment import Environment, Findings, problem, run_python, warning
from rembert.runtime.hardware import has_tpu, multiplies_bfloat16
from rembert.tracking.console import human_bytes

_SECONDS = 120
_FLOAT32 = 4
# In a process of its own: asking JAX for a TPU takes it, and there may never be an answer.
_DEVICES = """
import json, jax
devices = jax.devices()
print(json.dumps({
  'platform': devices[0].platform, 'kind': devices[0].device_kind, 'count': len(devices),
}))
"""


def check_devices(environment: Environment) -> Findings:
  """Which devices JAX finds, and whether a GPU or TPU is not used."""
  installed, variables = environment.versions(), environment.variables
  jax = installed.get('jax')
  if jax is None:
    yield problem('JAX is not installed', 'pip install --no-deps -r requirements.txt')
    return None
  there = plugged_in(environment)
  is_libtpu_there = 'libtpu' in installed or bool(variables.get('TPU_LIBRARY_PATH'))
  if there == 'tpu' and not is_libtpu_there:
    yield problem('a TPU is plugged in, and libtpu is not installed', f'pip install "jax[tpu]=={jax}"')
  if there != 'tpu' and is_libtpu_there and not variables.get('JAX_PLATFORMS'):
    yield warning(
      'libtpu is installed, and there is no TPU: every start of JAX looks for one first',
      'pip uninstall libtpu, or export JAX_PLATFORMS=cpu',
    )
  # A GPU's memory is not to be allocated for it.
  output, error = run_python(_DEVICES, environment, seconds=_SECONDS, XLA_PYTHON_CLIENT_PREALLOCATE='false')
  if error:
    yield problem(f'JAX finds no devices: {error}', 'end the process that holds them, or export JAX_PLATFORMS=cpu')
    return None
  found = json.loads(output.splitlines()[-1])
  platform = found['platform']
  text = f'{found["count"]} × {found["kind"]} ({platform}), jax {jax}'
  if there and platform == 'cpu':
    chosen = variables.get('JAX_PLATFORMS', '')
    name, extra = ('TPU', 'tpu') if there == 'tpu' else ('GPU', 'cuda12')
    if chosen:
      yield warning(f'a {name} is plugged in, and JAX_PLATFORMS={chosen} keeps JAX from it', 'unset JAX_PLATFORMS')
    elif there == 'gpu' or is_libtpu_there:
      yield problem(f'a {name} is plugged in, and JAX uses the CPU: {text}', f'pip install "jax[{extra}]=={jax}"')
  elif platform == 'cpu' and multiplies_bfloat16(environment.cpuinfo):
    text += ', good at bfloat16: --gin.execution.dtype=bfloat16 takes half to two thirds of the time'
  return text


def plugged_in(environment: Environment) -> str | None:
  """`tpu` or `gpu`, whether JAX can use it or not; None if there is neither."""
  if has_tpu(environment.pci_devices):
    return 'tpu'
  return 'gpu' if list(environment.devices.glob('nvidia[0-9]*')) else None


def check_memory(environment: Environment) -> Findings:
  """Parameters, gradients and Adam's two moments, compared with the free memory; activations come in addition."""
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
    return f'{text}, over all devices (--mode=compile --topology=… has the exact figure)'
  if available is None:
    return f'{text}; how much memory is free is unknown'
  if needed > available:
    yield problem(
      f'{text}, and {human_bytes(available)} are available',
      'a smaller model (gin/pretrain_base.gin, gin/pretrain_smoke.gin), more memory, or several hosts with mesh.fsdp',
    )
  elif needed > available / 2:
    yield warning(
      f'{text}, of {human_bytes(available)}: activations may not fit',
      'fewer rows at a time: --gin.train.accumulation_steps=4 --gin.execution.remat=full',
    )
  return f'{text}, of {human_bytes(available)} available'
