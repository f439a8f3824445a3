"""TyDi QA GoldP v1.1: training questions by language, and the dev set to be judged on.

As in XTREME, an id of a training question keeps only what stands behind its last dash, and is no longer unique.
"""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rembert.errors import UsageError
from rembert.json_files import parsed_json
from tasks.xtreme.conversion.archives import file_content, members
from tasks.xtreme.conversion.converted import Converted, json_text
from tasks.xtreme.conversion.questions import blanked_test_files, each_question

# The files write languages out.
NAMES = {
  **{'arabic': 'ar', 'bengali': 'bn', 'english': 'en', 'finnish': 'fi', 'indonesian': 'id', 'korean': 'ko'},
  **{'russian': 'ru', 'swahili': 'sw', 'telugu': 'te'},
}


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`tydiqa/tydiqa-goldp-v1.1-{train,dev}/tydiqa.goldp.LL.{train,dev}.json`, of dev without answers, and labels."""
  content, where = file_content(archives, 'tydiqa-goldp-v1.1-train.json')
  yield from train_files(parsed_json(content, where), where)
  archive = archives['tydiqa-goldp-v1.1-dev.tgz']
  files = {f'tydiqa-goldp-dev-{name}.json': language for name, language in NAMES.items()}
  for name, content in members(archive, lambda name: pathlib.PurePosixPath(name).name in files):
    language = files[pathlib.PurePosixPath(name).name]
    where = f'{archive}:{name}'
    yield from blanked_test_files(parsed_json(content, where), where, dev_path(language), 'tydiqa', language)


def dev_path(language: str) -> str:
  """Where XTREME looks for a language's questions."""
  return f'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json'


def train_files(content: Any, where: str) -> Iterator[Converted]:
  """One file a language."""
  by_language: dict[str, list] = {}
  for context, question in each_question(content, where):
    name, _, rest = question['id'].partition('-')
    if name not in NAMES:
      raise UsageError(f'unknown language in the id {question["id"]!r}', where=where, fix='fetch the file again')
    kept = {'answers': question['answers'], 'question': question['question'], 'id': rest.rpartition('-')[2]}
    by_language.setdefault(NAMES[name], []).append({'paragraphs': [{'context': context, 'qas': [kept]}]})
  for language, articles in by_language.items():
    path = f'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json'
    yield Converted(path, json_text({'data': articles, 'version': content.get('version', '1.1')}))
