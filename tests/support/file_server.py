"""A web server on this machine with files to fetch: it can refuse and break off."""

import contextlib
import http.server
import threading
from collections.abc import Iterator


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


@contextlib.contextmanager
def serve_files() -> Iterator[FileServer]:
  """A server at a free port of this machine."""

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      files = self.server.files
      files.requests.append(self.path)
      status = files.status.get(self.path, 200 if self.path in files.files else 404)
      if status != 200:
        self.send_error(status)
        return
      content = files.files[self.path]
      self.send_response(200)
      self.end_headers()
      self.wfile.write(content[: files.breaks_after.pop(0)] if files.breaks_after else content)

    def log_message(self, *_):
      pass

  class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
      pass  # a client that has seen enough hangs up

  server = Server(('127.0.0.1', 0), Handler)
  server.files = FileServer(f'http://127.0.0.1:{server.server_port}')
  thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
  thread.start()
  try:
    yield server.files
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
