"""XNLI 1.0 split by language, and its English training set, MultiNLI as XNLI-MT 1.0 has it."""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.errors import UsageError
from tasks.xtreme.conversion.archives import columns, members
from tasks.xtreme.conversion.converted import Converted, pairs_files

LABELS = ('contradiction', 'entailment', 'neutral')
_TRAIN = 'multinli/multinli.train.en.tsv'


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`xnli/train-en.tsv`, `xnli/dev-LL.tsv`, `xnli/test-LL.tsv` and labels."""
  archive = archives['XNLI-1.0.zip']
  for name, content in members(archive, lambda name: name.endswith(('xnli.dev.tsv', 'xnli.test.tsv'))):
    by_language: dict[str, list] = {}
    for row, where in columns(content, f'{archive}:{name}', 8):
      by_language.setdefault(row[0], []).append((row[6].strip(), row[7].strip(), label_of(row[1], where)))
    split = 'test' if name.endswith('test.tsv') else 'dev'
    for language, rows in by_language.items():
      yield from pairs_files('xnli', split, language, rows)
  archive = archives['XNLI-MT-1.0.zip']
  for name, content in members(archive, lambda name: name.endswith(_TRAIN)):
    rows = columns(content, f'{archive}:{name}', 3)
    pairs = ((row[0].strip(), row[1].strip(), label_of(row[2], where)) for row, where in rows)
    yield from pairs_files('xnli', 'train', 'en', pairs)


def label_of(text: str, where: str) -> str:
  """The label; the files write `contradictory` in places."""
  label = 'contradiction' if text.strip() == 'contradictory' else text.strip()
  if label not in LABELS:
    raise UsageError(f'unknown label {label!r}', where=where, fix=f'one of {", ".join(LABELS)}')
  return label
