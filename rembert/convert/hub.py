"""Models of the Hugging Face Hub by id, `org/name` or `org/name@revision`: downloaded, and uploaded.

`huggingface_hub` does the transfers, with its cache, tokens and environment variables (`HF_HOME`, `HF_TOKEN`,
`HF_ENDPOINT`, `HF_HUB_OFFLINE`); each host of a run downloads into a cache of its own.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

import rembert
from rembert.errors import UsageError, first_line

_ID = re.compile(r'(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?', re.ASCII)
_WEIGHTS = ['model*.safetensors', 'model.safetensors.index.json']
_FILES = ['config.json', *_WEIGHTS, 'sentencepiece.model', 'tokenizer*.json']
_NAME_A_PATH = 'or name a workdir with checkpoints/, one checkpoint in it, or a Hugging Face model directory'
# With transformers and torch, for models that have other weights.
TO_SAFETENSORS = "transformers.AutoModelForMaskedLM.from_pretrained('MODEL').save_pretrained('FOLDER')"
_LOG_IN = 'hf auth login, or HF_TOKEN=TOKEN'


def is_at_hub(path: str | os.PathLike) -> bool:
  """Whether a path is an id, and nothing local has this name."""
  return _ID.fullmatch(os.fspath(path)) is not None and not os.path.lexists(path)


def download(name: str, *, config_only: bool = False) -> pathlib.Path:
  """The folder, in the cache, of a model of the Hub: `config.json`, and unless `config_only`, weights and tokenizer.

  Raises:
    UsageError: no such model or revision, no permission, no safetensors; or not in the cache, and no network.
  """
  repository, revision = _parsed(name)
  patterns = _FILES[:1] if config_only else _FILES
  with _usage_errors('no model found: no local directory has this name, and', name, _NAME_A_PATH):
    from huggingface_hub import snapshot_download

    folder = pathlib.Path(snapshot_download(repository, revision=revision, allow_patterns=patterns))
  lacking = [pattern for pattern in patterns[:2] if not any(folder.glob(pattern))]
  if lacking:
    raise UsageError(
      f'the model has no {lacking[0]}',
      where=f'{name} at the Hugging Face Hub',
      fix=[
        f'a revision that has them: {repository}@REVISION',
        f'or a directory of your own: {TO_SAFETENSORS}',
      ],
    )
  return folder


def check_upload(name: str) -> None:
  """UsageError, before anything is written, if `name` is no id, or there is no token to upload with."""
  from huggingface_hub import get_token

  if _parsed(name)[1]:
    raise UsageError('models are uploaded to the main branch', where=name, fix='leave the revision out: ORG/NAME')
  if get_token() is None:
    raise UsageError('uploading to the Hugging Face Hub requires a token', where=name, fix=f'log in: {_LOG_IN}')


def upload(folder: pathlib.Path, name: str, *, private: bool = False) -> str:
  """Uploads the files of a folder as one commit, to a repository that is created unless it exists; returns its URL.

  Raises:
    UsageError: the token may not, or the Hub cannot be reached.
  """
  with _usage_errors('not uploaded:', name):
    import huggingface_hub

    api = huggingface_hub.HfApi()
    url = api.create_repo(name, private=private, exist_ok=True)
    # Weights of an earlier export, in other shards, would be read instead.
    api.upload_folder(
      repo_id=name,
      folder_path=folder,
      delete_patterns=_WEIGHTS,
      commit_message=f'Export of rembert {rembert.__version__}',
    )
  return str(url)


def _parsed(name: str) -> tuple[str, str | None]:
  """Repository and revision of an id."""
  found = _ID.fullmatch(name)
  if not found:
    raise UsageError('not an id of the Hugging Face Hub', where=name, fix='org/name, or org/name@revision to download')
  return found[1], found[2]


@contextlib.contextmanager
def _usage_errors(what: str, name: str, fix: str = '') -> Iterator[None]:
  """Turns what `huggingface_hub` and its HTTP client raise into a UsageError that begins with `what`."""
  from huggingface_hub import constants, errors

  try:
    yield
  except Exception as error:  # of httpx, the operating system and huggingface_hub
    repository, revision = _parsed(name)
    page = f'{constants.ENDPOINT}/{repository}'
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    match error:
      case errors.GatedRepoError():
        why = 'the Hub asks to accept conditions for this model first'
        first = f'accept them at {page}, and log in: {_LOG_IN}'
      case errors.RepositoryNotFoundError():
        why, first = 'the Hub has no such model, or it is private', f'check the id; if it is private, log in: {_LOG_IN}'
      case errors.RevisionNotFoundError():
        why, first = f'the model has no revision {revision}', f'a branch, a tag or a commit of {page}'
      case errors.HFValidationError():
        why, first = f'it is not an id of the Hub: {first_line(error)}', 'org/name, or org/name@revision'
      case errors.LocalEntryNotFoundError() if constants.is_offline_mode():
        why, first = 'it is not completely in the cache, and HF_HUB_OFFLINE is set', 'unset HF_HUB_OFFLINE'
      case errors.LocalEntryNotFoundError():
        reason = first_line(error.__cause__ or error)
        why = f'it is not completely in the cache, and the Hub cannot be reached: {reason}'
        first = f'connect to {constants.ENDPOINT}'
      case _ if status in (401, 403):
        why, first = 'the Hub refuses the token', f'log in with one that has the permission: {_LOG_IN}'
      case _:
        why, first = first_line(error), 'try again later'
    raise UsageError(f'{what} {why}', where=f'{name} ({constants.ENDPOINT})', fix=[first, fix]) from error
