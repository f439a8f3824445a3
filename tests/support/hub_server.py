"""A Hugging Face Hub on this machine: what `huggingface_hub` asks for to download and upload models, without Xet.

Models are downloaded by redirects to a path of storage, as at the Hub; safetensors are uploaded by Git LFS. What is
asked for as a data set is found among the models.
"""

import base64
import contextlib
import hashlib
import json
import re
import urllib.parse

import pytest
from local_server import Handler, serve

TOKEN = 'hf_token_of_a_test'


class Hub:
  """What a Hub has, and what it was asked.

  Attributes:
    url: its address.
    models: files by name, by commit, by id; `main` is the newest commit.
    private: ids that are seen with the token alone.
    gated: ids whose files are never given out.
    breaks_after: bytes of a file after which the connection ends, once for each number.
    requests: method and path of each request, in order.
  """

  def __init__(self, url: str):
    self.url = url
    self.models: dict[str, dict[str, dict[str, bytes]]] = {}
    self.private: set[str] = set()
    self.gated: set[str] = set()
    self.stored: dict[str, bytes] = {}
    self.breaks_after: list[int] = []
    self.requests: list[str] = []

  def add(self, name: str, files: dict[str, bytes]) -> str:
    """A commit on top of those of a model; returns its hash."""
    commits = self.models.setdefault(name, {})
    commit = hashlib.sha1(f'{name} {len(commits)}'.encode()).hexdigest()
    before = list(commits.values())[-1] if commits else {}
    commits[commit] = before | files
    return commit

  def downloads(self) -> list[str]:
    """Names of the files whose content was asked for, in order."""
    return [path.split('?name=')[1] for path in self.requests if path.startswith('GET /storage/')]


class _Handler(Handler):
  protocol_version = 'HTTP/1.1'

  def handle_request(self) -> None:
    hub = self.server.content
    length = int(self.headers.get('Content-Length') or 0)
    self.body = self.rfile.read(length)
    hub.requests.append(f'{self.command} {self.path}')
    path = urllib.parse.urlsplit(self.path).path
    token = self.headers.get('Authorization', '').removeprefix('Bearer ')
    if token and token != TOKEN:
      self.refuse(401, 'Unauthorized', 'Invalid credentials in Authorization header')
      return
    self.is_logged_in = bool(token)
    for pattern, answer in _ROUTES:
      if found := re.fullmatch(pattern, f'{self.command} {path}'):
        answer(self, *map(urllib.parse.unquote, found.groups()))
        return
    self.refuse(404, 'NotFound', f'no route for {self.command} {path}')

  do_GET = do_HEAD = do_POST = do_PUT = handle_request

  # --- answers ---------------------------------------------------------------

  def reply(self, status: int, content: bytes = b'', **headers: str) -> None:
    self.send_response(status)
    headers.setdefault('Content_Length', str(len(content)))
    for name, value in headers.items():
      self.send_header(name.replace('_', '-'), value)
    self.end_headers()
    if self.command != 'HEAD':
      self.wfile.write(content)

  def reply_json(self, content, status: int = 200) -> None:
    self.reply(status, json.dumps(content).encode(), Content_Type='application/json')

  def refuse(self, status: int, code: str, message: str = '') -> None:
    self.reply(status, json.dumps({'error': message or code}).encode(), X_Error_Code=code, X_Error_Message=message)

  def found(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
    """The commit of a revision and its files; without one, the request is refused."""
    hub = self.server.content
    if name not in hub.models or (name in hub.private and not self.is_logged_in):
      self.refuse(404 if self.is_logged_in else 401, 'RepoNotFound')
      return None
    commits = hub.models[name]
    commit = list(commits)[-1] if revision == 'main' else revision
    if commit not in commits:
      self.refuse(404, 'RevisionNotFound')
      return None
    return commit, commits[commit]

  # --- downloads -------------------------------------------------------------

  def info(self, name: str, revision: str = 'main') -> None:
    if found := self.found(name, revision):
      commit, files = found
      self.reply_json({'id': name, 'sha': commit, 'siblings': [{'rfilename': file} for file in files]})

  def tree(self, name: str, revision: str, folder: str = '') -> None:
    if found := self.found(name, revision):
      files = [file for file in found[1] if file.startswith(folder)]
      self.reply_files(found[1], files + [file.rpartition('/')[0] for file in files])

  def paths(self, name: str, revision: str) -> None:
    if found := self.found(name, revision):
      self.reply_files(found[1], urllib.parse.parse_qs(self.body.decode())['paths'])

  def reply_files(self, files: dict[str, bytes], paths: list[str]) -> None:
    """Those of the paths that are files, or folders with some."""
    of_file = lambda content: {'type': 'file', 'size': len(content), 'oid': hashlib.sha1(content).hexdigest()}
    entries = [of_file(files[path]) | {'path': path} for path in paths if path in files]
    folders = {path for path in paths if any(file.startswith(f'{path}/') for file in files)}
    self.reply_json(entries + [{'type': 'directory', 'path': path, 'oid': 'c' * 40} for path in folders])

  def resolve(self, name: str, revision: str, file: str) -> None:
    hub = self.server.content
    if name in hub.gated:
      self.refuse(403, 'GatedRepo')
      return
    if not (found := self.found(name, revision)):
      return
    commit, files = found
    if file not in files:
      self.refuse(404, 'EntryNotFound')
      return
    digest = hashlib.sha256(files[file]).hexdigest()
    hub.stored[digest] = files[file]
    # To another name of the same machine, as to the storage of the Hub.
    place = f'{hub.url.replace("127.0.0.1", "localhost")}/storage/{digest}?name={file}'
    size = str(len(files[file]))
    self.reply(302, Location=place, X_Repo_Commit=commit, X_Linked_ETag=f'"{digest}"', X_Linked_Size=size)

  def storage(self, digest: str) -> None:
    hub = self.server.content
    content = hub.stored[digest]
    start, end = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range', 'bytes=0-')).groups()
    start, stop = int(start), int(end) + 1 if end else len(content)
    end = start + hub.breaks_after.pop(0) if hub.breaks_after else stop
    self.send_response(206 if start else 200)
    if start:
      self.send_header('Content-Range', f'bytes {start}-{stop - 1}/{len(content)}')
    self.send_header('Content-Length', str(stop - start))
    self.send_header('ETag', f'"{digest}"')
    self.end_headers()
    self.wfile.write(content[start:end])
    self.close_connection = end < stop

  # --- uploads ---------------------------------------------------------------

  def create(self) -> None:
    hub, wanted = self.server.content, json.loads(self.body)
    name = f'{wanted["organization"]}/{wanted["name"]}'
    if not self.is_logged_in:
      self.refuse(401, 'Unauthorized')
      return
    is_new = name not in hub.models
    if is_new:
      hub.add(name, {})
      if wanted.get('visibility') == 'private':
        hub.private.add(name)
    self.reply_json({'url': f'{hub.url}/{name}', 'id': name}, 200 if is_new else 409)

  def validate(self) -> None:
    self.reply_json({'errors': [], 'warnings': []})

  def preupload(self, _name: str, _revision: str) -> None:
    mode = lambda path: 'lfs' if path.endswith(('.safetensors', '.model')) else 'regular'
    files = [file['path'] for file in json.loads(self.body)['files']]
    self.reply_json({'files': [{'path': file, 'uploadMode': mode(file), 'shouldIgnore': False} for file in files]})

  def lfs_batch(self, _name: str) -> None:
    wanted = json.loads(self.body)['objects']
    place = lambda oid: {'upload': {'href': f'{self.server.content.url}/lfs/{oid}'}}
    objects = [{'oid': each['oid'], 'size': each['size'], 'actions': place(each['oid'])} for each in wanted]
    self.reply_json({'transfer': 'basic', 'objects': objects})

  def lfs_upload(self, oid: str) -> None:
    assert hashlib.sha256(self.body).hexdigest() == oid
    self.server.content.stored[oid] = self.body
    self.reply(200)

  def commit(self, name: str, _revision: str) -> None:
    hub, files, deleted = self.server.content, {}, set()
    for line in self.body.splitlines():
      entry = json.loads(line)
      value = entry['value']
      if entry['key'] == 'file':
        files[value['path']] = base64.b64decode(value['content'])
      elif entry['key'] == 'lfsFile':
        files[value['path']] = hub.stored[value['oid']]
      elif entry['key'] == 'deletedFile':
        deleted.add(value['path'])
    commit = hub.add(name, files)
    for file in deleted:
      del hub.models[name][commit][file]
    self.reply_json({'success': True, 'commitOid': commit, 'commitUrl': f'{hub.url}/{name}/commit/{commit}'})


_KIND, _NAME, _REVISION = '(?:models|datasets)', '([^/]+/[^/]+)', '([^/]+)'
_ROUTES = [
  (f'GET /api/{_KIND}/{_NAME}', _Handler.info),
  (f'GET /api/{_KIND}/{_NAME}/revision/{_REVISION}', _Handler.info),
  (f'GET /api/{_KIND}/{_NAME}/tree/{_REVISION}', _Handler.tree),
  (f'GET /api/{_KIND}/{_NAME}/tree/{_REVISION}/(.+)', _Handler.tree),
  (f'POST /api/{_KIND}/{_NAME}/paths-info/{_REVISION}', _Handler.paths),
  (f'(?:GET|HEAD) /(?:datasets/)?{_NAME}/resolve/{_REVISION}/(.+)', _Handler.resolve),
  ('(?:GET|HEAD) /storage/(.+)', _Handler.storage),
  ('POST /api/repos/create', _Handler.create),
  ('POST /api/validate-yaml', _Handler.validate),
  (f'POST /api/models/{_NAME}/preupload/{_REVISION}', _Handler.preupload),
  (f'POST /{_NAME}.git/info/lfs/objects/batch', _Handler.lfs_batch),
  ('PUT /lfs/(.+)', _Handler.lfs_upload),
  (f'POST /api/models/{_NAME}/commit/{_REVISION}', _Handler.commit),
]


def serve_hub() -> contextlib.AbstractContextManager[Hub]:
  """A Hub at a free port of this machine."""
  return serve(_Handler, Hub)


@pytest.fixture
def use_hub(monkeypatch, tmp_path):
  """Makes `huggingface_hub` of this process use a Hub, with an empty cache and no token; `None` is no network."""
  import huggingface_hub
  from huggingface_hub import constants

  for name in 'HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN', 'http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY':
    monkeypatch.delenv(name, raising=False)

  def use(url: str, token: str | None = None, *, is_offline: bool = False) -> None:
    monkeypatch.setattr(constants, 'ENDPOINT', url)
    monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', url + '/{repo_id}/resolve/{revision}/{filename}')
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub-cache'))
    monkeypatch.setattr(constants, 'HF_TOKEN_PATH', str(tmp_path / 'no-token'))
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', is_offline)
    monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)
    (monkeypatch.setenv if token else monkeypatch.delenv)(*(('HF_TOKEN', token) if token else ('HF_TOKEN', False)))
    huggingface_hub.close_session()

  yield use
  huggingface_hub.close_session()
