import pytest

from rembert.command_line import run_command
from rembert.errors import RunError, UsageError


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
