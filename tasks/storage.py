"""Whether remote storage can be reached at all, found out in seconds."""

import functools
import os
import socket

_GOOGLE_STORAGE = ('storage.googleapis.com', 443)
_SECONDS = 10


@functools.cache
def why_unreachable(path: str) -> str:
  """Why a `gs://` path cannot be reached, or '' if its host answers (and for local paths).

  TensorFlow's own client repeats a refused connection for minutes before it says so. Behind a proxy nothing is asked.
  """
  if not path.startswith('gs://') or os.environ.get('https_proxy') or os.environ.get('HTTPS_PROXY'):
    return ''
  try:
    socket.create_connection(_GOOGLE_STORAGE, _SECONDS).close()
  except OSError as error:
    return f'{_GOOGLE_STORAGE[0]} cannot be reached ({error})'
  return ''
