"""Names that hide ours: `gin` and `tasks` are words that folders are called by."""

import importlib.machinery
import pathlib
from collections.abc import Iterator

from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, problem, well


def check_imports(examined: Examined) -> Iterator[Finding]:
  """Whether `gin` is gin-config, and `tasks` and `launch` are those of this project."""
  # The folder where a command `python -m …` is started comes first, unless an installation says otherwise.
  path = [str(examined.folder), *(entry or str(examined.folder) for entry in examined.path)]
  is_well = True
  spec = importlib.machinery.PathFinder.find_spec('gin', path)
  origin = spec.origin if spec is not None else None
  if origin is None:
    is_well = False
    yield problem('gin-config cannot be imported', 'pip install --no-deps gin-config==0.5.0')
  elif not (pathlib.Path(origin).parent / 'config.py').is_file():
    is_well = False
    yield problem(f'{origin} hides gin-config', _fix(pathlib.Path(origin), 'a folder of gin files needs none'))
  for name in ('tasks', 'launch'):
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    ours = examined.project / name / '__init__.py'
    if ours.is_file() and (spec is None or spec.origin is None or not ours.samefile(spec.origin)):
      is_well = False
      hiding = pathlib.Path(spec.origin) if spec is not None and spec.origin else examined.folder
      yield problem(f'{hiding} hides the package `{name}` of rembert', _fix(hiding, 'or start from another folder'))
  if is_well:
    yield well('gin, tasks and launch are what they should be')


def _fix(hiding: pathlib.Path, remark: str) -> str:
  if hiding.name == '__init__.py' and hiding.parent.name == 'gin':
    return f'rm {hiding} ({remark})'
  return f'rename {hiding.parent if hiding.name == "__init__.py" else hiding}, or start from another folder'
