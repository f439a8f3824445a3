"""One look for everything that a user can put right: what happened, where, what to do."""

from collections.abc import Sequence


class UsageError(Exception):
  """Something in the input or the configuration does not fit; the program ends with exit code 2 and no traceback.

  Args:
    what: one line saying what is wrong.
    where: the file, field or folder that it was found in.
    fix: what to do, best as a command or a binding to paste.
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
  """The run itself went wrong (a loss that is not finite, a full disk); exit code 1."""

  exit_code = 1


def joined(errors: Sequence[UsageError]) -> UsageError:
  """One error that says what several do, each thing once; of many, the first."""
  lines = lambda name: list(dict.fromkeys(value for error in errors if (value := getattr(error, name))))
  what, where = lines('what'), lines('where')
  more = [f'and {len(what) - 8} more'] if len(what) > 8 else []
  fixes = list(dict.fromkeys(fix for error in errors for fix in error.fix))
  return UsageError('; '.join([*what[:8], *more]), where='; '.join(where[:8]), fix=fixes[:4])


def first_line(error: BaseException) -> str:
  """What an exception of somebody else's says, in one line: the first that is not blank, or else its type."""
  return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
