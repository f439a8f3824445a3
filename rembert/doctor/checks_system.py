"""Python, its packages, names that hide ours; and what surrounds a run: disks, open files, the clock, a proxy."""

import ast
import datetime
import importlib.machinery
import importlib.metadata
import itertools
import pathlib
import resource
import subprocess
import sys
import urllib.parse

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rembert.doctor.environment import Environment, Findings, problem, warning, well
from rembert.files import is_remote
from rembert.tracking.console import human_bytes, human_duration

_OLDEST, _NEWEST = (3, 11), (3, 12)
# For text and XTREME. A run from a token store needs none of them.
_TEXT_PACKAGES = ('seqio', 't5', 'tensorflow', 'tensorflow-datasets', 'tensorflow-text')
# Each installs over the files of the other; the last one installed wins.
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
_OPEN_FILES = 1024
_RELEASED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
_SKEW_SECONDS, _MOST_FILES = 120, 10_000
_METADATA_SERVER = 'metadata.google.internal'


# --- Python and packages ----------------------------------------------------------------------------------------------


def check_python(environment: Environment) -> Findings:
  """The version of the interpreter."""
  version = '.'.join(map(str, environment.python))
  if environment.python[:2] < _OLDEST:
    yield problem(f'Python {version}, and rembert needs 3.11 or newer', 'make .venv PYTHON=python3.12')
  elif environment.python[:2] > _NEWEST:
    yield warning(f'Python {version}: nothing here was tried with it', 'make .venv PYTHON=python3.12')
  return f'Python {version}'


def check_packages(environment: Environment) -> Findings:
  """Installed versions, compared with the bounds of setup.py and with the lock file."""
  installed, locked = environment.versions(), locked_versions(environment.project)
  wrong, missing_text = [], []
  for requirement in _requirements(environment.project):
    name = canonicalize_name(requirement.name)
    version = installed.get(name)
    if version is None and name in _TEXT_PACKAGES:
      missing_text.append(name)
    elif version is None or not requirement.specifier.contains(version, prereleases=True):
      wrong.append(name)
      yield problem(
        f'{name} {version} is installed, and {requirement.specifier} is needed'
        if version
        else f'{name} is not installed',
        'pip install --no-deps ' + (f'{name}=={locked[name]}' if name in locked else f"'{requirement}'"),
      )
  if missing_text:
    names = ', '.join(missing_text)
    yield warning(f'{names} not installed: a token store can be trained on, text and XTREME cannot be read', _FROM_LOCK)
  differing = [
    f'{name} {installed[name]} ({version})'
    for name, version in locked.items()
    if name in installed and installed[name].split('+')[0] != version and name not in wrong
  ]
  if differing:
    some = ', '.join(differing[:4]) + (' …' if differing[4:] else '')
    yield warning(f'{len(differing)} not as in the lock: {some}', _FROM_LOCK)
  if not wrong and not differing:
    yield well(f'{len(installed)} installed, ' + ('all as in the lock' if locked else 'all within the bounds'))


def check_tensorflow(environment: Environment) -> Findings:
  """TensorFlow, SeqIO, t5: one of each, made for each other."""
  installed, locked = environment.versions(), locked_versions(environment.project)
  for other, name in _SAME_FILES.items():
    if other in installed and name in installed:
      pinned = f'{name}=={locked.get(name, installed[name])}'
      yield problem(
        f'{other} and {name} are both installed, and overwrite each other’s files',
        f'pip uninstall --yes {other} {name} && pip install --no-deps {pinned}',
      )
    elif other in installed:
      yield warning(f'{other} stands in for {name}', f'pip uninstall --yes {other}, then make .venv from the lock')
  for first, second in (('tensorflow', 'tensorflow-text'), ('jax', 'jaxlib')):
    versions = [installed.get(name, '') for name in (first, second)]
    if all(versions) and versions[0].split('.')[:2] != versions[1].split('.')[:2]:
      yield problem(
        f'{first} {versions[0]} and {second} {versions[1]} were not made for each other',
        f'pip install --no-deps {second}=={locked.get(second, versions[0])}',
      )
  if environment.tensorflow:
    command = [sys.executable, '-c', _IMPORT_TENSORFLOW]
    done = subprocess.run(command, cwd=environment.project, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
      reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f'exit code {done.returncode}'
      yield problem(f'they cannot be imported: {reason}', _FROM_LOCK)
  there = [f'{name} {installed[name]}' for name in ('tensorflow', 'seqio', 't5') if name in installed]
  return ', '.join(there) + (', imported' if environment.tensorflow else '') if there else 'none installed'


def locked_versions(project: pathlib.Path) -> dict[str, str]:
  """Versions of the lock file for this interpreter and system; none in an installed copy."""
  file = project / 'requirements.txt'
  lines = file.read_text().splitlines() if file.is_file() else ()
  pins = [Requirement(line) for line in lines if line and not line.startswith('#')]
  return {canonicalize_name(pin.name): str(pin.specifier).removeprefix('==') for pin in pins if _applies(pin)}


def _requirements(project: pathlib.Path) -> list[Requirement]:
  """Bounds: of setup.py in a checkout, which need not be installed and then has no metadata; else of the metadata."""
  if (project / 'setup.py').is_file():
    # Parsed, not run: it would start to build.
    tree = ast.parse((project / 'setup.py').read_text())
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    texts = ast.literal_eval(assigned['REQUIREMENTS'])
  else:
    texts = importlib.metadata.requires('rembert') or []
  return [requirement for requirement in map(Requirement, texts) if _applies(requirement)]


def _applies(requirement: Requirement) -> bool:
  return requirement.marker is None or requirement.marker.evaluate({'extra': ''})


def check_imports(environment: Environment) -> Findings:
  """Whether `gin` is gin-config, and `tasks` and `launch` are those of this project: directories have such names."""
  # The current directory of `python -m …` comes first, unless an installation says otherwise.
  path = [str(environment.folder), *(entry or str(environment.folder) for entry in environment.path)]
  spec = importlib.machinery.PathFinder.find_spec('gin', path)
  origin = spec.origin if spec is not None else None
  if origin is None:
    yield problem('gin-config cannot be imported', 'pip install --no-deps gin-config==0.5.0')
  elif not (pathlib.Path(origin).parent / 'config.py').is_file():
    yield problem(f'{origin} hides gin-config', _unhide(pathlib.Path(origin)))
  for name in ('tasks', 'launch'):
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    ours = environment.project / name / '__init__.py'
    if ours.is_file() and (spec is None or spec.origin is None or not ours.samefile(spec.origin)):
      hiding = pathlib.Path(spec.origin) if spec is not None and spec.origin else environment.folder
      yield problem(f'{hiding} hides the package `{name}` of rembert', _unhide(hiding))
  return 'gin, tasks and launch are what they should be'


def _unhide(hiding: pathlib.Path) -> str:
  is_package = hiding.name == '__init__.py'
  if is_package and hiding.parent.name == 'gin':
    return f'rm {hiding} (a folder of gin files needs none)'
  return f'rename {hiding.parent if is_package else hiding}, or start from another folder'


# --- the system -------------------------------------------------------------------------------------------------------


def existing(path: str | pathlib.Path) -> pathlib.Path:
  """A path, or the nearest directory above it that exists."""
  path = pathlib.Path(path).absolute()
  return next(folder for folder in (path, *path.parents) if folder.exists())


def check_disk(environment: Environment) -> Findings:
  """Room where a run writes."""
  named = {'workdir': environment.workdir, 'data_dir': environment.data_dir, 'store': environment.store}
  places = {name: path for name, path in named.items() if path and not is_remote(path)}
  for name, path in (places or {'this folder': str(environment.folder)}).items():
    folder = existing(path)
    free = environment.free_bytes(folder)
    text, fix = f'{human_bytes(free)} free for {name}', f'make room on the disk of {folder}, or choose another'
    if free < _DISK_PROBLEM:
      yield problem(text, fix)
    else:
      yield warning(text, fix) if free < _DISK_WARNING else well(text)


def check_open_files(environment: Environment) -> Findings:
  """Files that may be open at once: a shard of a token store takes one."""
  limit, shards = environment.open_files, 0
  if limit == resource.RLIM_INFINITY:
    return 'any number of open files'
  if environment.store and not is_remote(environment.store):
    shards = sum(1 for _ in pathlib.Path(environment.store).glob('*/*.array_record'))
  if shards + _OPEN_FILES // 4 > limit:
    yield problem(f'{limit} open files are allowed, and the store has {shards} shards', 'ulimit -n 65536')
  elif limit < _OPEN_FILES:
    yield warning(f'{limit} open files are allowed; stores and checkpoints may need more', 'ulimit -n 65536')
  return f'{limit:,} open files'


def check_clock(environment: Environment) -> Findings:
  """The clock: goodput, locks in buckets, certificates and `make` depend on it."""
  now = environment.now()
  if now < _RELEASED:
    year = datetime.datetime.fromtimestamp(now, datetime.UTC).year
    yield problem(f'the clock says {year}, before this program was written', 'set it: sudo timedatectl set-ntp true')
    return None
  named = (environment.workdir, environment.store, environment.data_dir)
  roots = [pathlib.Path(path) for path in named if path and not is_remote(path)]
  ahead = [
    (file.stat().st_mtime - now, file)
    for root in roots
    for file in itertools.islice(root.rglob('*'), _MOST_FILES)
    if file.is_file() and file.stat().st_mtime > now + _SKEW_SECONDS
  ]
  if ahead:
    seconds, file = max(ahead)
    yield warning(
      f'{file} is from the future, by {human_duration(seconds)}: this clock or that of another host is wrong',
      f'set the clock (sudo timedatectl set-ntp true), then touch {file}',
    )
  return 'no file is from the future' if roots else 'set'


def check_proxy(environment: Environment) -> Findings:
  """Proxies: downloads go through them, and the hosts of a run must not."""
  variables = environment.variables
  given = {name: variables[name] for name in _spellings('https_proxy', 'http_proxy') if variables.get(name)}
  if not given:
    return 'none'
  hosts = set()
  for name, address in given.items():
    parts = urllib.parse.urlsplit(address)
    hosts.add(parts.hostname)
    try:
      is_address = parts.scheme in ('http', 'https', 'socks5', 'socks5h') and bool(parts.hostname and parts.port)
    except ValueError:  # the port is not a number
      is_address = False
    if not is_address:
      yield problem(f'{name} is not an address of a proxy', f'export {name}=http://HOST:PORT, or unset {name}')
  excepted = {host.strip() for name in _spellings('no_proxy') for host in variables.get(name, '').split(',')}
  coordinator = variables.get('JAX_COORDINATOR_ADDRESS', '').rpartition(':')[0]
  missing = [host for host in ('localhost', _METADATA_SERVER, coordinator) if host and host not in excepted]
  if missing and '*' not in excepted:
    yield warning(
      f'{", ".join(given)} is set, and {", ".join(missing)} would be asked by way of it',
      'export no_proxy=' + ','.join(sorted({*excepted, '127.0.0.1', *missing} - {''})),
    )
  return f'by way of {", ".join(sorted(filter(None, hosts)))}'  # never with user and password


def _spellings(*names: str) -> list[str]:
  return [spelling for name in names for spelling in (name, name.upper())]
