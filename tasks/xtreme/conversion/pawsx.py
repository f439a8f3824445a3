"""PAWS-X: pairs in seven languages, trained on in English."""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.errors import UsageError
from tasks.xtreme.conversion.archives import columns, members
from tasks.xtreme.conversion.converted import Converted, pairs_files

LABELS = ('0', '1')
_SPLITS = {'train.tsv': 'train', 'dev_2k.tsv': 'dev', 'test_2k.tsv': 'test'}


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`pawsx/train-en.tsv`, `pawsx/dev-LL.tsv`, `pawsx/test-LL.tsv` and labels. Nothing is left out."""
  archive = archives['x-final.tar.gz']
  is_wanted = lambda name: name.endswith(tuple(f'/{file}' for file in _SPLITS))
  for name, content in members(archive, is_wanted):
    language, split = pathlib.PurePosixPath(name).parent.name, _SPLITS[pathlib.PurePosixPath(name).name]
    if split == 'train' and language != 'en':
      continue
    rows = [
      (row[1].strip(), row[2].strip(), _label_of(row[3], where))
      for row, where in columns(content, f'{archive}:{name}', 4)
    ]
    yield from pairs_files('pawsx', split, language, rows)


def _label_of(text: str, where: str) -> str:
  if text.strip() not in LABELS:
    raise UsageError(f'unknown label {text!r}', where=where, fix='0 (different meaning) or 1 (paraphrase)')
  return text.strip()
