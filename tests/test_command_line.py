import os
import signal
import sys

import pytest

from rembert.command_line import import_modules, run_command, without_modules
from rembert.errors import RunError, UsageError
from rembert.main import main


def fail(error):
  raise error


def test_errors_of_users_are_one_message_and_an_exit_code(capsys):
  assert run_command('program', lambda: None) == 0
  assert run_command('program', lambda: fail(UsageError('no file', where='here', fix='name one'))) == 2
  assert capsys.readouterr().err == 'program: no file\n  where  here\n  fix    name one\n'
  assert run_command('program', lambda: fail(RunError('the disk is full'))) == 1


def test_errors_of_ours_are_not_hidden_and_a_traceback_can_be_asked_for():
  with pytest.raises(KeyError):
    run_command('program', lambda: fail(KeyError()))
  with pytest.raises(UsageError):
    run_command('program', lambda: fail(UsageError('no file')), show_traceback=True)


def test_what_the_system_says_of_a_file_is_one_message(tmp_path, capsys):
  assert run_command('program', lambda: open(tmp_path / 'absent').close()) == 1
  assert capsys.readouterr().err.startswith(f'program: No such file or directory\n  where  {tmp_path}/absent\n')
  with pytest.raises(OSError, match='of no file'):
    run_command('program', lambda: fail(OSError('of no file')))


def test_a_command_ends_at_signals_with_their_exit_codes():
  assert run_command('program', lambda: fail(KeyboardInterrupt())) == 130
  before = signal.getsignal(signal.SIGTERM)
  left = []

  def work():
    try:
      os.kill(os.getpid(), signal.SIGTERM)
    finally:
      left.append('half-written files are removed')

  with pytest.raises(SystemExit) as end:
    run_command('program', work)
  assert (end.value.code, len(left), signal.getsignal(signal.SIGTERM)) == (143, 1, before)


# --- modules of users -------------------------------------------------------------------------------------------------


@pytest.fixture
def in_directory(tmp_path, monkeypatch):
  """An empty current directory that Python does not search yet."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [path for path in sys.path if path])
  yield tmp_path
  for name in [name for name in sys.modules if name.startswith('module_test')]:
    del sys.modules[name]


def test_modules_of_the_current_directory_are_imported_in_order(in_directory):
  (in_directory / 'module_test_a.py').write_text('import os\nassert "module_test_b" not in __import__("sys").modules\n')
  (in_directory / 'module_test_b.py').write_text('import module_test_a\n')
  import_modules(['module_test_a', 'module_test_b'])
  assert {'module_test_a', 'module_test_b'} <= set(sys.modules)


@pytest.mark.parametrize(
  ('text', 'what', 'line'),
  [
    ('x = 1\ny = x / 0\n', 'ZeroDivisionError: division by zero', 'line 2'),
    ('x = 1\n\nx = = 2\n', 'SyntaxError: invalid syntax', 'line 3'),
    ('import module_that_is_missing\n', "No module named 'module_that_is_missing'", 'line 1'),
    ('import json\n\njson.loads("{")\n', 'JSONDecodeError', 'line 3'),
    ('from rembert.errors import UsageError\nraise UsageError("no corpus", fix="make one")', 'no corpus', 'line 2'),
  ],
)
def test_a_module_that_does_not_import_is_an_error_with_its_own_line(text, what, line, in_directory):
  (in_directory / 'module_test.py').write_text(text)
  with pytest.raises(UsageError, match="the module 'module_test' cannot be imported") as error:
    import_modules(['module_test'])
  assert what in error.value.what
  assert error.value.where == f'--module=module_test: {in_directory}/module_test.py, {line}'


@pytest.mark.parametrize('name', ['module_test', 'module_test.more', 'os.module_test'])
def test_a_module_that_is_not_there_is_an_error_with_where_it_was_looked_for(name, in_directory):
  with pytest.raises(UsageError, match=f"there is no module '{name}'|'{name}' cannot be imported") as error:
    import_modules([name])
  assert str(in_directory) in error.value.where


def test_the_program_imports_modules_before_anything_else(in_directory, capsys):
  (in_directory / 'module_test.py').write_text('raise ValueError("as far as this")')
  assert main(['--module=module_test', '--gin_file=no_such_file.gin']) == 2
  assert "rembert: the module 'module_test' cannot be imported: ValueError: as far as this" in capsys.readouterr().err


def test_modules_are_hidden_from_the_imports_within_unless_they_are_there(monkeypatch):
  monkeypatch.delitem(sys.modules, 'colorsys', raising=False)
  with without_modules('colorsys', 'os'):
    import os as again

    assert again is os
    with pytest.raises(ImportError):
      import colorsys
  import colorsys

  assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)
