"""Web servers on this machine: any handler of requests; and files to fetch, which can be refused and broken off."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Content = TypeVar('Content')


class _Server(http.server.ThreadingHTTPServer):
  def handle_error(self, request, client_address):
    pass  # a client that has seen enough hangs up


class Handler(http.server.BaseHTTPRequestHandler):
  """Answers requests, silently; `self.server.content` is what `serve` yields."""

  def log_message(self, *_):
    """Nothing on standard error."""


@contextlib.contextmanager
def serve(handler: type[Handler], make: Callable[[str], Content]) -> Iterator[Content]:
  """A server at a free port of this machine; yields `make(url)`."""
  server = _Server(('127.0.0.1', 0), handler)
  server.content = make(f'http://127.0.0.1:{server.server_port}')
  thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
  thread.start()
  try:
    yield server.content
  finally:
    server.shutdown()
    server.server_close()
    thread.join()


# --- files ------------------------------------------------------------------------------------------------------------


class FileServer:
  """What a server has, and what it was asked.

  Attributes:
    files: content by path, `/name`.
    breaks_after: bytes of a file after which the connection ends, once for each number.
    status: HTTP status by path, where it is an error.
    requests: paths asked for, in order.
  """

  def __init__(self, url: str):
    self.url = url
    self.files: dict[str, bytes] = {}
    self.breaks_after: list[int] = []
    self.status: dict[str, int] = {}
    self.requests: list[str] = []


class _FileHandler(Handler):
  def do_GET(self):
    files = self.server.content
    files.requests.append(self.path)
    status = files.status.get(self.path, 200 if self.path in files.files else 404)
    if status != 200:
      self.send_error(status)
      return
    content = files.files[self.path]
    self.send_response(200)
    self.end_headers()
    self.wfile.write(content[: files.breaks_after.pop(0)] if files.breaks_after else content)


def serve_files() -> contextlib.AbstractContextManager[FileServer]:
  """A server of files."""
  return serve(_FileHandler, FileServer)
