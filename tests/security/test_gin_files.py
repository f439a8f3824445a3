"""A gin file sets values and includes others; it runs nothing, and nothing that is secret has a place in it."""

import contextlib
import dataclasses
import re
import sys

import pytest

from rembert import configuration
from rembert.errors import UsageError

CODE = 'open({!r}, "w").close()\n'


@pytest.fixture
def module(tmp_path, monkeypatch):
  """Name of a module that leaves a mark when it is imported; it must not be imported."""
  mark = tmp_path / 'mark'
  (tmp_path / 'hostile_module.py').write_text(CODE.format(str(mark)))
  monkeypatch.syspath_prepend(tmp_path)
  yield 'hostile_module'
  assert not mark.exists()
  assert 'hostile_module' not in sys.modules


@pytest.mark.parametrize(
  'text',
  [
    'import {}',
    'from {} import anything',
    'import {} as other',
    'from __gin__ import dynamic_registration\nimport os\nimport {}\nrun.workdir = @os.getcwd()',
  ],
)
def test_a_gin_file_cannot_import(tmp_path, module, text):
  (tmp_path / 'hostile.gin').write_text(text.format(module) + '\n')
  (tmp_path / 'including.gin').write_text(f"include '{tmp_path}/hostile.gin'\n")
  for name in ('hostile.gin', 'including.gin'):
    with pytest.raises(UsageError, match='gin files must not import modules') as error:
      configuration.load([str(tmp_path / name)], [])
    assert f'{tmp_path}/hostile.gin:1' in error.value.where


@pytest.mark.parametrize(
  'binding', ['import {}', 'import {}\nrun.workdir=3', 'run.workdir=@os.getcwd()', 'a=1\nimport {}']
)
def test_nor_can_a_binding(module, binding):
  with contextlib.suppress(UsageError):  # or it is a string with a line end in it
    configuration.load([], [binding.format(module)])


@pytest.mark.parametrize('value', ['__import__("os").getcwd()', 'open("x")', '[x for x in (1,)]', '1 + 1', '@eval()'])
def test_values_are_literals_and_not_expressions(tmp_path, value):
  (tmp_path / 'hostile.gin').write_text(f'run.workdir = {value}\n')
  with pytest.raises(UsageError):
    configuration.load([str(tmp_path / 'hostile.gin')], [])


def test_gin_itself_is_as_it_was_afterwards(tmp_path):
  import gin

  before = gin.config.ParseContext.process_import
  configuration.load([], ['run.mode=finetune'])
  assert gin.config.ParseContext.process_import is before


def test_no_field_is_made_for_a_secret():
  """The whole configuration is written to the workdir and shown to trackers."""
  secret = re.compile(r'(^|_)(token(?!_id)|key|api_key|secret|password|credentials?)($|_)')
  for name, cls in configuration.CONFIGURABLES.items():
    assert not [f'{name}.{field.name}' for field in dataclasses.fields(cls) if secret.search(field.name)]
