"""Checks of packages, of module names that shadow ours, and of the disk."""

import ast
import importlib.machinery
import importlib.metadata
import pathlib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rembert.doctor.environment import Environment, Findings, problem, run_python, warning
from rembert.files import is_remote
from rembert.tracking.console import human_bytes

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
