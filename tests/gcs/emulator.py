"""gcp-storage-emulator with what it lacks and TensorStore relies on: generations in answers, and conditional writes.

Without them two writers of one OCDBT manifest overwrite each other, which Google Cloud Storage does not let happen.

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


def main(port: int, bucket: str) -> None:
  """Serves until it is ended."""
  objects.download, objects._media_upload = download, media_upload
  from gcp_storage_emulator.server import create_server  # builds its table of handlers when it is imported

  create_server('127.0.0.1', port, in_memory=True, default_bucket=bucket).run()


if __name__ == '__main__':
  main(int(sys.argv[1]), sys.argv[2])
