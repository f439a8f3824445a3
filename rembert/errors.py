"""Errors that a user can fix, in one format: what is wrong, where, and how to fix it."""

import errno
import os
from collections.abc import Sequence


class Setting(str):
  """A fix that sets a gin field, in the form to paste: `--gin.train.batch_size=32`."""

  def __new__(cls, name: str, value: object) -> 'Setting':
    """`name` as in a gin file, `train.batch_size`."""
    setting = super().__new__(cls, f'--gin.{name}={value}')
    setting.name, setting.value = name, value
    return setting

  name: str
  value: object


class UsageError(Exception):
  """An error in the input or the configuration; the program exits with code 2, without a traceback.

  Args:
    what: one line saying what is wrong.
    where: the file, field or directory at fault.
    fix: how to fix it, preferably a command to paste, or a `Setting`.
  """

  exit_code = 2

  def __init__(self, what: str, *, where: str = '', fix: str | Sequence[str] = ''):
    self.what, self.where = what, where
    self.fix = [fix] if isinstance(fix, str) else list(fix)
    super().__init__(what)

  def __str__(self) -> str:
    lines = [self.what]
    if self.where:
      lines.append(f'  where  {self.where}')
    lines += [f'  fix    {fix}' for fix in self.fix if fix]
    return '\n'.join(lines)


class RunError(UsageError):
  """A run failed (non-finite loss, full disk); exit code 1."""

  exit_code = 1


def joined(errors: Sequence[UsageError]) -> UsageError:
  """Merges several errors into one, without repetitions; of many, only the first."""
  lines = lambda name: list(dict.fromkeys(value for error in errors if (value := getattr(error, name))))
  what, where = lines('what'), lines('where')
  more = [f'and {len(what) - 8} more'] if len(what) > 8 else []
  fixes = list(dict.fromkeys(fix for error in errors for fix in error.fix))
  return UsageError('; '.join([*what[:8], *more]), where='; '.join(where[:8]), fix=fixes[:4])


def first_line(error: BaseException) -> str:
  """First non-blank line of an exception's message, or the name of its type."""
  return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def storage_fix(error: BaseException, where: str | os.PathLike) -> str:
  """How to fix an error of a file system or bucket."""
  if not isinstance(error, OSError):
    return 'check that the storage has room and can be written to'
  if error.errno in (errno.ENOSPC, errno.EDQUOT):
    return f'free some space (df -h {os.fspath(where)}), then run the command again'
  if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
    return f'get write permission (ls -ld {os.fspath(where)}), or write elsewhere'
  if error.errno in (errno.EISDIR, errno.ENOTDIR):
    return 'choose another name'
  if error.errno == errno.ELOOP:
    return f'remove the circular symbolic link: rm {os.fspath(where)}'
  if error.errno == errno.ENOENT:
    return 'check the path'
  return 'check that the storage has room and can be read and written'


def as_usage_error(error: UsageError | OSError) -> UsageError | None:
  """The error as a UsageError, if it is one or an operating system's error that names a file; else None."""
  if isinstance(error, UsageError):
    return error
  if error.filename is None or not isinstance(error.filename, str | bytes | os.PathLike):
    return None
  file = os.fsdecode(error.filename)
  return RunError(f'{error.strerror or type(error).__name__}', where=file, fix=storage_fix(error, file))
