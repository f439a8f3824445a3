"""BUCC 2018: the published sample is XTREME's dev split, the published training set its test split."""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.errors import UsageError
from tasks.xtreme.bucc2018 import LANGUAGES
from tasks.xtreme.conversion.archives import lines, members
from tasks.xtreme.conversion.converted import Converted

_SPLITS = {'sample': 'dev', 'training': 'test'}


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`bucc2018/LL-en.{dev,test}.{LL,en}`, `bucc2018/LL-en.dev.gold`, and the pairs of test as labels."""
  for language in LANGUAGES:
    for published, split in _SPLITS.items():
      archive = archives[f'bucc2018-{language}-en.{published}-gold.tar.bz2']
      names = {f'{language}-en.{published}.{side}': side for side in (language, 'en', 'gold')}
      missing = set(names)
      for name, content in members(archive, lambda name, names=names: pathlib.PurePosixPath(name).name in names):
        file = pathlib.PurePosixPath(name).name
        missing.discard(file)
        text = ''.join(f'{line}\n' for line, _ in lines(content, f'{archive}:{name}'))
        is_label = split == 'test' and names[file] == 'gold'
        path = f'labels/bucc2018/test-{language}.tsv' if is_label else f'bucc2018/{language}-en.{split}.{names[file]}'
        yield Converted(path, text)
      if missing:
        raise UsageError(f'the archive has no {", ".join(sorted(missing))}', where=str(archive), fix='fetch it again')
