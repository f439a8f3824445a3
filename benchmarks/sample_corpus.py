"""The sample corpus, as the benchmarks of the input take it: its clean texts, and a vocabulary trained on it."""

import collections
import pathlib
import subprocess
import sys

from benchmarks.cleaning import SETTINGS as DUMPS
from benchmarks.cleaning import documents
from benchmarks.turns import NotHere
from tasks.corpus.sources import find_parts

PATTERN = DUMPS['sample'].pattern


def texts() -> list[str]:
  """The clean documents, language by language, in the order of the dumps."""
  return [document.text for document in documents(find_parts('dumps', PATTERN), collections.Counter())]


def make_vocabulary(pieces: int, file: pathlib.Path) -> None:
  """Trains one, as the smoke run does; five seconds."""
  call('tasks.vocabulary', f'--dumps={PATTERN}', f'--size={pieces}', f'--output={file}')


def call(module: str, *flags: str) -> None:
  """`python -m module flags`, unseen; NotHere with what it says if it fails."""
  done = subprocess.run([sys.executable, '-m', module, *flags], capture_output=True, text=True)
  if done.returncode:
    raise NotHere(f'python -m {module} failed: {done.stderr.strip()}')
