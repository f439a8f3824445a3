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


def first_line(error: BaseException) -> str:
  """What an exception of somebody else's says, in one line: the first that is not blank, or else its type."""
  return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
