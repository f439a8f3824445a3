"""MLQA v1: the files whose question and context are in one language; XTREME judges no others."""

import pathlib
import re
from collections.abc import Iterator, Mapping

from rembert.json_files import parsed_json
from tasks.xtreme.conversion.archives import members
from tasks.xtreme.conversion.converted import Converted, json_text
from tasks.xtreme.conversion.questions import blanked_test_files, each_question

_NAME = re.compile(r'(?:.*/)?(?P<split>dev|test)/(?P=split)-context-(?P<language>\w+)-question-(?P=language)\.json')


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`mlqa/MLQA_V1/SPLIT/SPLIT-context-LL-question-LL.json`, of test without answers, and labels."""
  archive = archives['MLQA_V1.zip']
  for name, content in members(archive, lambda name: _NAME.fullmatch(name) is not None):
    split, language = _NAME.fullmatch(name).group('split', 'language')
    path = f'mlqa/MLQA_V1/{split}/{split}-context-{language}-question-{language}.json'
    where = f'{archive}:{name}'
    parsed = parsed_json(content, where)
    if split == 'test':
      yield from blanked_test_files(parsed, where, path, 'mlqa', language)
    else:
      for _ in each_question(parsed, where):
        pass
      yield Converted(path, json_text(parsed))
