"""Python and packages: are they those that work together?"""

import ast
import importlib.metadata
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from packaging.markers import Marker
from packaging.requirements import Requirement

from rembert.doctor.examined import Examined, normalised
from rembert.doctor.findings import Finding, problem, warning, well

_OLDEST, _NEWEST = (3, 11), (3, 12)
# What reads text and XTREME. A run from a token store needs none of it.
_TEXT = ('seqio', 't5', 'tensorflow', 'tensorflow-datasets', 'tensorflow-text')
# Each installs over the files of the other; the last one written wins.
_SAME_FILES = {
  'seqio-nightly': 'seqio',
  'tfds-nightly': 'tensorflow-datasets',
  'tf-nightly': 'tensorflow',
  'tensorflow-cpu': 'tensorflow',
  'tensorflow-text-nightly': 'tensorflow-text',
}
_IMPORT = (
  'from tasks.tensorflow_import import tensorflow\n'
  'import tensorflow_text, seqio, t5.data.preprocessors, t5.evaluation.metrics\n'
)


def check_python(examined: Examined) -> Iterator[Finding]:
  """The version of the interpreter."""
  version = '.'.join(map(str, examined.python))
  if examined.python[:2] < _OLDEST:
    yield problem(f'Python {version}, and rembert needs 3.11 or newer', 'make .venv PYTHON=python3.12')
  elif examined.python[:2] > _NEWEST:
    yield warning(f'Python {version}: nothing here was tried with it', 'make .venv PYTHON=python3.12')
  else:
    yield well(f'Python {version}')


def check_packages(examined: Examined) -> Iterator[Finding]:
  """What is installed, against the bounds of setup.py and the lock."""
  installed, locked = examined.versions(), _locked(examined.project / 'requirements.txt')
  wrong, absent_text = [], []
  for requirement in _requirements(examined.project):
    name = normalised(requirement.name)
    version = installed.get(name)
    wanted = f'{name}=={locked[name]}' if name in locked else f"'{requirement}'"
    if version is None and name in _TEXT:
      absent_text.append(name)
    elif version is None:
      wrong.append(name)
      yield problem(f'{name} is not installed', f'pip install --no-deps {wanted}')
    elif not requirement.specifier.contains(version, prereleases=True):
      wrong.append(name)
      yield problem(
        f'{name} {version} is installed, and {requirement.specifier} is needed', f'pip install --no-deps {wanted}'
      )
  if absent_text:
    yield warning(
      f'{", ".join(absent_text)} not installed: a token store can be trained on, text and XTREME cannot be read',
      'pip install --no-deps -r requirements.txt',
    )
  differing = [
    f'{name} {installed[name]} ({version})'
    for name, version in locked.items()
    if name in installed and installed[name].split('+')[0] != version and name not in wrong
  ]
  if differing:
    yield warning(
      f'{len(differing)} not as in the lock: {_some(differing)}', 'pip install --no-deps -r requirements.txt'
    )
  if not wrong and not differing:
    yield well(f'{len(installed)} installed, ' + ('all as in the lock' if locked else 'all within the bounds'))


def check_tensorflow(examined: Examined) -> Iterator[Finding]:
  """TensorFlow, SeqIO, t5: one of each, made for each other."""
  installed, locked = examined.versions(), _locked(examined.project / 'requirements.txt')
  is_well = True
  for other, name in _SAME_FILES.items():
    if other in installed and name in installed:
      is_well = False
      pinned = f'{name}=={locked.get(name, installed[name])}'
      yield problem(
        f'{other} and {name} are both installed, and overwrite each other’s files',
        f'pip uninstall --yes {other} {name} && pip install --no-deps {pinned}',
      )
    elif other in installed:
      is_well = False
      yield warning(f'{other} stands in for {name}', f'pip uninstall --yes {other}, then make .venv from the lock')
  for first, second in (('tensorflow', 'tensorflow-text'), ('jax', 'jaxlib')):
    versions = [installed.get(name, '') for name in (first, second)]
    if all(versions) and versions[0].split('.')[:2] != versions[1].split('.')[:2]:
      is_well = False
      yield problem(
        f'{first} {versions[0]} and {second} {versions[1]} were not made for each other',
        f'pip install --no-deps {second}=={locked.get(second, versions[0])}',
      )
  if examined.imports_tensorflow:
    done = subprocess.run(
      [sys.executable, '-c', _IMPORT], cwd=examined.project, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
      is_well = False
      reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f'exit code {done.returncode}'
      yield problem(f'they cannot be imported: {reason}', 'pip install --no-deps -r requirements.txt')
  if is_well:
    there = [f'{name} {installed[name]}' for name in ('tensorflow', 'seqio', 't5') if name in installed]
    tried = ', imported' if examined.imports_tensorflow else ''
    yield well(', '.join(there) + tried if there else 'none installed')


def _requirements(project: pathlib.Path) -> list[Requirement]:
  """Bounds that hold here: of setup.py in a checkout, of the metadata of an installed copy."""
  if (project / 'setup.py').is_file():
    # Read, not run: it would begin to build.
    tree = ast.parse((project / 'setup.py').read_text())
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    texts = ast.literal_eval(assigned['REQUIREMENTS'])
  else:
    texts = importlib.metadata.requires('rembert') or []
  requirements = [Requirement(text) for text in texts]
  return [each for each in requirements if each.marker is None or each.marker.evaluate({'extra': ''})]


def _locked(file: pathlib.Path) -> dict[str, str]:
  """Versions of the lock that are meant for this interpreter and system; none where there is no lock."""
  versions = {}
  for line in file.read_text().splitlines() if file.is_file() else ():
    pin, _, marker = line.partition(';')
    name, is_pin, version = pin.strip().partition('==')
    if is_pin and (not marker.strip() or Marker(marker.strip()).evaluate()):
      versions[normalised(name)] = version.split()[0]
  return versions


def _some(items: list[str]) -> str:
  return ', '.join(items[:4]) + (' …' if len(items) > 4 else '')
