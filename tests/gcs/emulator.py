"""gcp-storage-emulator with what it lacks: generations in answers, conditional writes, and moves within a bucket.

TensorStore relies on the first two: without them two writers of one OCDBT manifest overwrite each other, which Google
Cloud Storage does not let happen. gcsfs renames by `moveTo`, and asks again for minutes where that has no answer.

    python tests/gcs/emulator.py PORT BUCKET
"""

import http
import sys
import threading

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_lock = threading.RLock()
_download, _media_upload = objects.download, objects._media_upload


def _generation(storage, bucket: str, name: str) -> str:
  """Of an object as it is; 0 is none."""
  try:
    return str(storage.get_file_obj(bucket, name)['generation'])
  except NotFound:
    return '0'


def download(request, response, storage, *arguments, **options):
  """As before, with the generation in the headers."""
  with _lock:
    generation = _generation(storage, request.params['bucket_name'], request.params['object_id'])
    if generation != '0':
      response['x-goog-generation'] = generation
    return _download(request, response, storage, *arguments, **options)


def media_upload(request, response, storage):
  """As before, unless the object is no longer the one that the writer had read."""
  with _lock:
    wanted = request.query.get('ifGenerationMatch')
    found = _generation(storage, request.params['bucket_name'], request.query['name'][0])
    if wanted and wanted[0] != found:
      response.status = http.HTTPStatus.PRECONDITION_FAILED
      return
    _media_upload(request, response, storage)


def move(request, response, storage):
  """Gives an object another name in its bucket; answers with what it then is."""
  with _lock:
    bucket, name = request.params['bucket_name'], request.params['object_id']
    request.params['dest_bucket_name'] = bucket
    objects.copy(request, response, storage)
    if response.status == http.HTTPStatus.OK:
      storage.delete_file(bucket, name)


# A path of the JSON interface, and what answers it.
MOVE = (
  r'^/storage/v1/b/(?P<bucket_name>[-.\w]+)/o/(?P<object_id>.+)/moveTo/o/(?P<dest_object_id>.+)$',
  {'POST': move},
)


def main(port: int, bucket: str) -> None:
  """Serves until it is ended."""
  objects.download, objects._media_upload = download, media_upload
  from gcp_storage_emulator import server  # builds its table of handlers when it is imported

  server.HANDLERS = (MOVE, *server.HANDLERS)
  server.create_server('127.0.0.1', port, in_memory=True, default_bucket=bucket).run()


if __name__ == '__main__':
  main(int(sys.argv[1]), sys.argv[2])
