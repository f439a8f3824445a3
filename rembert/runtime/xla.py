"""What a gin file may set of the compiler; its flags are handed over in the environment before JAX starts."""

import dataclasses
import os
from collections.abc import MutableMapping

from rembert.errors import UsageError


@dataclasses.dataclass(frozen=True)
class HardwareConfig:
  """What a hardware file sets beside mesh, batch and execution.

  Attributes:
    xla_flags: `('--xla_tpu_…=true', …)`. Those of a TPU reach its compiler by LIBTPU_INIT_ARGS, all others by
      XLA_FLAGS; `mesh.require_platform` says which they are.
    compile_cache: folder where compiled programs are kept, so that the next start finds them; `auto` is
      `~/.cache/rembert/compiled`, None keeps nothing. A pod wants one that all hosts see, such as `gs://BUCKET/compiled`:
      the first host alone writes. JAX's own settings (JAX_COMPILATION_CACHE_DIR) go first.
  """

  xla_flags: tuple[str, ...] = ()
  compile_cache: str | None = 'auto'

  def __post_init__(self):
    if self.compile_cache is not None and not (isinstance(self.compile_cache, str) and self.compile_cache):
      raise UsageError(
        'the cache of compiled programs is a folder, auto, or None',
        where=f'hardware.compile_cache = {self.compile_cache!r}',
      )
    flags = self.xla_flags
    if isinstance(flags, str) or any(not isinstance(flag, str) or not flag.startswith('--xla') for flag in flags):
      raise UsageError(
        'flags of XLA are a tuple of strings that begin with --xla',
        where=f'hardware.xla_flags = {flags!r}',
        fix="hardware.xla_flags = ('--xla_…=true',)",
      )


def apply(config: HardwareConfig, platform: str | None, environment: MutableMapping[str, str] = os.environ) -> str:
  """Adds flags to the environment, those left out that the user has set there; JAX must not have started.

  Args:
    config: the flags.
    platform: `mesh.require_platform`.
    environment: changed in place.

  Returns:
    A line that says what was added to which variable; nothing if nothing was.
  """
  variable = 'LIBTPU_INIT_ARGS' if platform == 'tpu' else 'XLA_FLAGS'
  set_by_user = environment.get(variable, '').split()
  name = lambda flag: flag.split('=')[0].lstrip('-')
  taken = {name(flag) for flag in set_by_user}
  added = [flag for flag in config.xla_flags if name(flag) not in taken]
  if added:
    environment[variable] = ' '.join([*set_by_user, *added])
  return f'{variable}: {" ".join(added)}' if added else ''
