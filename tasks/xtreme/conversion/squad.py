"""SQuAD v1.1: learned from, for XQuAD and MLQA. Its files are taken as they are."""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.json_files import parsed_json
from tasks.xtreme.conversion.archives import file_content
from tasks.xtreme.conversion.converted import Converted
from tasks.xtreme.conversion.questions import each_question


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`squad/train-v1.1.json` and `squad/dev-v1.1.json`."""
  for split in ('train', 'dev'):
    content, where = file_content(archives, f'{split}-v1.1.json')
    for _ in each_question(parsed_json(content, where), where):
      pass
    yield Converted(f'squad/{split}-v1.1.json', content.decode())
