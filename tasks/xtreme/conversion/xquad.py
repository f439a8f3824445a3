"""XQuAD: SQuAD's paragraphs in eleven languages, to be judged on."""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.json_files import parsed_json
from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.conversion.archives import file_content
from tasks.xtreme.conversion.converted import Converted
from tasks.xtreme.conversion.questions import blanked_test_files


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`xquad/xquad.LL.json` without answers, and labels."""
  for language in TASKS['xquad'].languages:
    content, where = file_content(archives, f'xquad.{language}.json')
    yield from blanked_test_files(parsed_json(content, where), where, f'xquad/xquad.{language}.json', 'xquad', language)
