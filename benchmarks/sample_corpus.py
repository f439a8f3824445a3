"""The sample corpus, as the benchmarks of the input take it: its clean texts, and a vocabulary trained on it."""

import pathlib
import subprocess
import sys

from benchmarks.cleaning import SETTINGS as DUMPS
from benchmarks.turns import NotHere
from tasks.wikipedia.documents import read_documents
from tasks.wikipedia.dumps import find_dumps

PATTERN = DUMPS['sample'].pattern


def texts() -> list[str]:
  """The documents that streaming gives, language by language."""
  languages = find_dumps(PATTERN).values()
  return [document.text for dumps in languages for document in read_documents(dumps, split='all', held_out=0.0)]


def make_vocabulary(pieces: int, file: pathlib.Path) -> None:
  """Trains one, as the smoke run does; five seconds."""
  call('tasks.vocabulary', f'--dumps={PATTERN}', f'--size={pieces}', f'--output={file}')


def call(module: str, *flags: str) -> None:
  """`python -m module flags`, unseen; NotHere with what it says if it fails."""
  done = subprocess.run([sys.executable, '-m', module, *flags], capture_output=True, text=True)
  if done.returncode:
    raise NotHere(f'python -m {module} failed: {done.stderr.strip()}')
