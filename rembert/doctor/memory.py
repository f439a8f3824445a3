"""Whether the model of a gin file has room in the memory of this machine."""

from collections.abc import Iterator

from rembert.doctor.devices import plugged_in
from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, problem, warning, well
from rembert.tracking.console import human_bytes

_FLOAT32 = 4


def check_memory(examined: Examined) -> Iterator[Finding]:
  """Parameters, gradients and Adam's two moments, against what is free; activations come on top."""
  from rembert import configuration
  from rembert.model.config import RemBertConfig
  from rembert.model.parameter_count import count_parameters
  from rembert.train.optimizer import OptimizerConfig

  available = examined.available_bytes()
  if not examined.gin_files:
    yield well('unknown' if available is None else f'{human_bytes(available)} available')
    return
  configuration.load(examined.gin_files, examined.bindings)
  run = configuration.build(configuration.RunConfig)
  counts = count_parameters(configuration.build(RemBertConfig))
  parameters = counts.pre_training if run.mode == 'pretrain' else counts.fine_tuning
  moments = _FLOAT32 + (2 if configuration.build(OptimizerConfig).mu_dtype == 'bfloat16' else _FLOAT32)
  per_parameter = 2 * _FLOAT32 + moments if run.mode in ('pretrain', 'finetune') else _FLOAT32
  needed = parameters * per_parameter
  in_words = f'{parameters:,} parameters take {human_bytes(needed)} with gradients and optimizer'
  if plugged_in(examined):
    yield well(f'{in_words}, over all devices (--mode=compile --topology=… has the exact figure)')
  elif available is None:
    yield well(f'{in_words}; how much memory is free is unknown')
  elif needed > available:
    yield problem(
      f'{in_words}, and {human_bytes(available)} are available',
      'a smaller model (gin/pretrain_base.gin, gin/pretrain_smoke.gin), more memory, or several hosts with mesh.fsdp',
    )
  elif needed > available / 2:
    yield warning(
      f'{in_words}, of {human_bytes(available)}: activations may not fit',
      'fewer rows at a time: --gin.train.accumulation_steps=4 --gin.execution.remat=full',
    )
  else:
    yield well(f'{in_words}, of {human_bytes(available)} available')
