"""A web server on this machine with files to fetch: it can resume, refuse, break off and be slow to say what it has."""

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
    resumes: whether parts can be asked for.
    states_length: whether the server says how much it sends.
    versions: whether the server names the version (ETag) of a file.
    requests: (path, first byte asked for), in order.
  """

  def __init__(self, url: str):
    self.url = url
    self.files: dict[str, bytes] = {}
    self.breaks_after: list[int] = []
    self.status: dict[str, int] = {}
    self.resumes = True
    self.versions = True
    self.states_length = True
    self.requests: list[tuple[str, int]] = []


@contextlib.contextmanager
def serve_files() -> Iterator[FileServer]:
  """A server at a free port of this machine."""

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      files = self.server.files
      start = int(self.headers.get('Range', 'bytes=0-').removeprefix('bytes=').removesuffix('-'))
      files.requests.append((self.path, start))
      status = files.status.get(self.path, 200 if self.path in files.files else 404)
      if status != 200:
        self.send_error(status)
        return
      content = files.files[self.path]
      version = f'"{hash(content)}"'
      if start and (not files.resumes or self.headers.get('If-Range') != version):
        start = 0
      if start > len(content):
        self.send_error(416)
        return
      self.send_response(206 if start else 200)
      if start:
        self.send_header('Content-Range', f'bytes {start}-{len(content) - 1}/{len(content)}')
      if files.versions:
        self.send_header('ETag', version)
      if files.states_length:
        self.send_header('Content-Length', str(len(content) - start))
      self.end_headers()
      end = start + files.breaks_after.pop(0) if files.breaks_after else len(content)
      self.wfile.write(content[start:end])

    def log_message(self, *_):
      pass

  class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
      pass  # a client that has seen enough hangs up

  server = Server(('127.0.0.1', 0), Handler)
  server.files = FileServer(f'http://127.0.0.1:{server.server_port}')
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield server.files
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
