"""JSON that others wrote: what is none is told with file and line."""

import json
import os
from typing import Any

from rembert.errors import UsageError


def parsed_json(text: str | bytes, path: os.PathLike | str, *, fix: str = 'fetch the file again') -> Any:
  """The content of a JSON file.

  Args:
    text: of the file; bytes are UTF-8.
    path: for the error.
    fix: likewise.

  Raises:
    UsageError: it is cut off, no JSON, no UTF-8, or nested more deeply than Python can follow (about a thousand).
  """
  try:
    return json.loads(text)
  except json.JSONDecodeError as error:
    what, where = f'not JSON: {error.msg}', f'{os.fspath(path)}:{error.lineno}'
  except UnicodeDecodeError as error:
    what, where = f'not JSON: not UTF-8: {error.reason}', os.fspath(path)
  except RecursionError:
    what, where = 'not JSON that can be read: nested too deeply', os.fspath(path)
  raise UsageError(what, where=where, fix=fix)
