"""The checks of the doctor. They see the machine through `Environment` only, so that tests can simulate it."""

import ast
import dataclasses
import functools
import importlib.machinery
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping

from etils import epath
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rembert
from rembert.errors import UsageError, first_line
from rembert.files import check_bucket_client, check_folder, is_remote, why_unreachable
from rembert.runtime.hardware import available_bytes, has_tpu, multiplies_bfloat16
from rembert.tracking.console import human_bytes

PROJECT = pathlib.Path(rembert.__file__).parent.parent


def installed_versions() -> dict[str, str]:
  """Version of every distribution that can be imported, by normalized name; the first on the path counts."""
  versions: dict[str, str] = {}
  for distribution in importlib.metadata.distributions():
    if name := distribution.metadata['Name']:  # a partly deleted distribution has none
      versions.setdefault(canonicalize_name(name), distribution.version)
  return versions


@dataclasses.dataclass(frozen=True)
class Environment:
  """Command line, installation and machine, as the checks see them."""

  workdir: str | None = None
  gin_files: tuple[str, ...] = ()
  bindings: tuple[str, ...] = ()
  tensorflow: bool = False
  traceback: bool = False
  folder: pathlib.Path = dataclasses.field(default_factory=pathlib.Path.cwd)  # in which commands run
  project: pathlib.Path = PROJECT  # with the package's code
  path: tuple[str, ...] = dataclasses.field(default_factory=lambda: tuple(sys.path))
  versions: Callable[[], Mapping[str, str]] = installed_versions
  variables: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
  # Files in which Linux lists hardware:
  devices: pathlib.Path = pathlib.Path('/dev')
  pci_devices: pathlib.Path = pathlib.Path('/sys/bus/pci/devices')
  cpuinfo: pathlib.Path = pathlib.Path('/proc/cpuinfo')
  available_bytes: Callable[[], int | None] = available_bytes  # of memory; None if unknown
  free_bytes: Callable[[pathlib.Path], int] = lambda folder: shutil.disk_usage(folder).free


@dataclasses.dataclass(frozen=True)
class Finding:
  """One row of the table."""

  level: str  # ok, warning or problem
  text: str
  fix: str = ''  # empty if nothing is wrong
  check: str = ''  # set by `examine`


# A check yields findings. If it yields none, the text that it returns is its finding, at level `ok`. A UsageError, with
# the message that a run would print, is a problem, after which the check cannot continue.
Findings = Generator[Finding, None, str]

warning = functools.partial(Finding, 'warning')  # (text, fix): a run may still work
problem = functools.partial(Finding, 'problem')  # (text, fix): a run would fail, or give wrong results


def run_python(code: str, environment: Environment, *, seconds: int, **variables: str) -> tuple[str, str]:
  """Runs code in a subprocess; returns its output, and why it failed, or ''."""
  variables = {**environment.variables, **variables}  # not those of this process, in which the accelerator is hidden
  command, folder = [sys.executable, '-c', code], environment.project
  try:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds, cwd=folder)
  except subprocess.TimeoutExpired:
    return '', f'no answer within {seconds} s'
  lines = [line for line in done.stderr.splitlines() if line.strip()] or [f'exit code {done.returncode}']
  return done.stdout, lines[-1].strip() if done.returncode else ''


def examine(checks: Mapping[str, Callable[[Environment], Findings]], environment: Environment) -> Iterator[Finding]:
  """Findings of all checks, in order. A check that raises an exception becomes one, and does not stop the others."""
  for name, check in checks.items():
    found: list[Finding] = []
    try:
      findings = check(environment)
      while True:
        found.append(next(findings))  # one by one, to keep findings before a failure
    except StopIteration as end:
      if not found:
        found.append(Finding('ok', end.value))
    except UsageError as error:
      text = f'{error.what} ({error.where})' if error.where else error.what
      found.append(problem(text, ' · '.join(error.fix)))
    except Exception as error:
      reason = f'{type(error).__name__}: {first_line(error)}'
      found.append(problem(f'the check failed with {reason}', f'--only={name} --traceback prints the traceback'))
      if environment.traceback:
        raise
    for finding in found:
      yield dataclasses.replace(finding, check=name)


# --- packages, modules and the disk -----------------------------------------------------------------------------------

# For text and XTREME; training on a token store needs none of them.
_TEXT_PACKAGES = ('seqio', 't5', 'tensorflow', 'tensorflow-datasets', 'tensorflow-text')
# Each overwrites the files of the other when it is installed.
_SAME_FILES = {
  'seqio-nightly': 'seqio',
  'tfds-nightly': 'tensorflow-datasets',
  'tf-nightly': 'tensorflow',
  'tensorflow-cpu': 'tensorflow',
  'tensorflow-text-nightly': 'tensorflow-text',
}
_IMPORT_TENSORFLOW = (
  'from tasks.tensorflow_import import tensorflow\n'
  'import tensorflow_text, seqio, t5.data.preprocessors, t5.evaluation.metrics\n'
)
_FROM_LOCK = 'pip install --no-deps -r requirements.txt'

_DISK_PROBLEM, _DISK_WARNING = 1e9, 5e9


def check_packages(environment: Environment) -> Findings:
  """Compares installed versions with the bounds of setup.py and with the lock file."""
  installed, locked = environment.versions(), locked_versions(environment.project)
  wrong, missing_text = set(), []
  for requirement in _requirements(environment.project):
    name = canonicalize_name(requirement.name)
    version = installed.get(name)
    if version is None and name in _TEXT_PACKAGES:
      missing_text.append(name)
    elif version is None or not requirement.specifier.contains(version, prereleases=True):
      wrong.add(name)
      found = f'{name} {version} is installed, but {requirement.specifier} is needed'
      pinned = f'{name}=={locked[name]}' if name in locked else f"'{requirement}'"
      yield problem(found if version else f'{name} is not installed', f'pip install --no-deps {pinned}')
  if missing_text:
    names = ', '.join(missing_text)
    yield warning(f'{names} not installed: a token store can be used, text and XTREME cannot', _FROM_LOCK)
  differing = [
    f'{name} {installed[name]} ({version})'
    for name, version in locked.items()
    if name in installed and installed[name].split('+')[0] != version and name not in wrong
  ]
  if differing:
    some = ', '.join(differing[:4]) + (' …' if differing[4:] else '')
    yield warning(f'{len(differing)} version(s) differ from the lock file: {some}', _FROM_LOCK)
  return f'{len(installed)} installed, all ' + ('as in the lock file' if locked else 'within the bounds')


def check_tensorflow(environment: Environment) -> Findings:
  """Checks that TensorFlow, SeqIO and t5 are installed once each, in matching versions."""
  installed, locked = environment.versions(), locked_versions(environment.project)
  for other, name in _SAME_FILES.items():
    if other in installed and name in installed:
      pinned = f'{name}=={locked.get(name, installed[name])}'
      yield problem(
        f'{other} and {name} are both installed and overwrite each other’s files',
        f'pip uninstall --yes {other} {name} && pip install --no-deps {pinned}',
      )
    elif other in installed:
      yield warning(f'{other} is installed instead of {name}', f'pip uninstall --yes {other}, then {_FROM_LOCK}')
  for first, second in (('tensorflow', 'tensorflow-text'), ('jax', 'jaxlib')):
    versions = [installed.get(name, '') for name in (first, second)]
    if all(versions) and versions[0].split('.')[:2] != versions[1].split('.')[:2]:
      yield problem(
        f'{first} {versions[0]} and {second} {versions[1]} do not match',
        f'pip install --no-deps {second}=={locked.get(second, versions[0])}',
      )
  if environment.tensorflow:
    _, error = run_python(_IMPORT_TENSORFLOW, environment, seconds=300)
    if error:
      yield problem(f'import failed: {error}', _FROM_LOCK)
  there = [f'{name} {installed[name]}' for name in ('tensorflow', 'seqio', 't5') if name in installed]
  return ', '.join(there) + (', imported' if environment.tensorflow else '') if there else 'none installed'


def locked_versions(project: pathlib.Path) -> dict[str, str]:
  """Versions in the lock file for this interpreter and system; empty in an installed copy."""
  file = project / 'requirements.txt'
  lines = file.read_text().splitlines() if file.is_file() else ()
  pins = [Requirement(line) for line in lines if line and not line.startswith('#')]
  return {canonicalize_name(pin.name): str(pin.specifier).removeprefix('==') for pin in pins if _applies(pin)}


def _requirements(project: pathlib.Path) -> list[Requirement]:
  """Version bounds from setup.py in a checkout, which may not be installed; else from the metadata."""
  if (project / 'setup.py').is_file():
    # Parsed, not executed, which would start a build.
    tree = ast.parse((project / 'setup.py').read_text())
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    texts = ast.literal_eval(assigned['REQUIREMENTS'])
  else:
    texts = importlib.metadata.requires('rembert') or []
  return [requirement for requirement in map(Requirement, texts) if _applies(requirement)]


def _applies(requirement: Requirement) -> bool:
  return requirement.marker is None or requirement.marker.evaluate({'extra': ''})


def check_imports(environment: Environment) -> Findings:
  """Checks that no directory shadows the modules `gin` (gin-config), `tasks` and `launch`."""
  # `python -m …` searches the current directory first, unless an installation configures otherwise.
  path = [str(environment.folder), *(entry or str(environment.folder) for entry in environment.path)]
  for name in ('gin', 'tasks', 'launch'):
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    found = pathlib.Path(spec.origin) if spec is not None and spec.origin else None
    ours = environment.project / name / '__init__.py'
    if name == 'gin' and found is None:
      yield problem('gin-config cannot be imported', 'pip install --no-deps gin-config==0.5.0')
    elif found is not None and name == 'gin' and not (found.parent / 'config.py').is_file():
      yield problem(f'{found} shadows gin-config', f'rm {found} (a directory of gin files does not need it)')
    elif name != 'gin' and ours.is_file() and (found is None or not ours.samefile(found)):
      hiding = found or environment.folder
      hiding = hiding.parent if hiding.name == '__init__.py' else hiding
      yield problem(f'{hiding} shadows the package `{name}`', f'rename {hiding}, or start from another directory')
  return 'gin, tasks and launch are not shadowed'


def check_disk(environment: Environment) -> Findings:
  """Checks free space at the places where a run writes."""
  workdir = environment.workdir
  place = environment.folder if workdir is None or is_remote(workdir) else pathlib.Path(workdir).absolute()
  folder = next(each for each in (place, *place.parents) if each.exists())
  free = environment.free_bytes(folder)
  text, fix = f'{human_bytes(free)} free for {place}', f'free some space on the disk of {folder}, or choose another'
  if free < _DISK_PROBLEM:
    yield problem(text, fix)
  elif free < _DISK_WARNING:
    yield warning(text, fix)
  return text


# --- devices and memory -----------------------------------------------------------------------------------------------

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
    raise UsageError('JAX is not installed', fix=_FROM_LOCK)
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
    fix = 'end the process that uses them, or export JAX_PLATFORMS=cpu'
    raise UsageError(f'JAX finds no devices: {error}', fix=fix)
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


# --- a workdir --------------------------------------------------------------------------------------------------------


def check_workdir(environment: Environment) -> Findings:
  """Checks write access and the lock without modifying the workdir."""
  from rembert.jobs.workdir import holder

  named = environment.workdir or '.'
  workdir = epath.Path(named)
  if is_remote(named):
    check_bucket_client(workdir)
    if reason := why_unreachable(named):
      raise UsageError(reason, fix='check the network, or use a local directory: --workdir=DIR')
  else:
    check_folder(workdir, 'the workdir', fix='choose another: --workdir=DIR')
  if (owner := holder(workdir)) is not None:
    yield problem(
      f'the workdir is locked by process {owner.get("process", "?")} on {owner.get("host", "?")}',
      'wait for it, or stop it: kill -TERM lets it save first',
    )
  return 'writable and not locked' if workdir.exists() else 'does not exist, but can be created'


def check_checkpoints(environment: Environment) -> Findings:
  """Reads the newest checkpoint completely and verifies its checksums; reports quarantined ones."""
  folder = epath.Path(environment.workdir or '.') / 'checkpoints'
  names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
  steps = sorted((int(name) for name in names if name.isdigit()), reverse=True)
  if quarantined := [name for name in names if name.startswith('damaged-')]:
    yield warning(
      f'quarantined checkpoints: {", ".join(quarantined)}', f'check the storage, then rm -r {folder}/damaged-*'
    )
  if not steps:
    if quarantined:
      yield problem('there is no valid checkpoint', 'start a new run in another directory: --workdir=DIR')
    return 'none yet'
  newest = folder / str(steps[0])
  available = environment.available_bytes()
  size = sum((parent / name).stat().length for parent, _, names in (newest / 'state').walk() for name in names)
  if available is not None and 3 * size > available:  # it is read into memory and uncompressed
    yield warning(
      f'step {steps[0]} takes {human_bytes(size)}, too large to read on this machine',
      f'on a machine with more memory: python -m rembert.doctor --workdir={environment.workdir} --only=checkpoints',
    )
  elif reason := _damage(newest):
    before = f'a run will resume from {steps[1]}' if len(steps) > 1 else 'there is no earlier one'
    yield problem(
      f'the newest checkpoint, {newest}, is corrupt: {reason}; {before}',
      'check the storage; restore a copy' + (', or run the same command again' if steps[1:] else ''),
    )
  return f'step {steps[0]} is valid, {len(steps)} in total'


def _damage(folder: epath.Path) -> str:
  """Why a checkpoint is corrupt, or ''."""
  # This process only reads, and must not claim the accelerator.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rembert.checkpoint.integrity import describe, format_altered, in_one_line
  from rembert.checkpoint.load import altered_arrays

  try:
    describe(folder)
    return format_altered(altered_arrays(folder))
  except Exception as error:  # Orbax and TensorStore have their own exception types
    return in_one_line(error)
