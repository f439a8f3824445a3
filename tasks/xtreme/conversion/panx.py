"""PAN-X, WikiANN in the balanced splits of Rahimi et al. 2019: a zip with `LL.tar.gz`, in it `train`, `dev` and `test`.

Lines are `LL:token TAB tag`. The few empty tokens are left out: in a file of tokens they would end a sentence.
"""

import pathlib
from collections.abc import Iterator, Mapping

from rembert.errors import UsageError
from tasks.xtreme.conversion.archives import lines, members, nested_tar
from tasks.xtreme.conversion.converted import Converted, Sentence, tagging_files
from tasks.xtreme.statistics import LANGUAGES

TAGS = ('B-LOC', 'B-ORG', 'B-PER', 'I-LOC', 'I-ORG', 'I-PER', 'O')


def convert(archives: Mapping[str, pathlib.Path]) -> Iterator[Converted]:
  """`panx/train-LL.tsv`, `panx/dev-LL.tsv`, `panx/test-LL.tsv` and labels, of XTREME's forty languages."""
  archive = archives['panx_dataset.zip']
  names = {f'{language}.tar.gz': language for language in LANGUAGES['panx']}
  for name, content in members(archive, lambda name: pathlib.PurePosixPath(name).name in names):
    language = names[pathlib.PurePosixPath(name).name]
    for member, text in nested_tar(name, content, archive):
      split = pathlib.PurePosixPath(member).name
      if split in ('train', 'dev', 'test'):
        yield from tagging_files('panx', split, language, sentences_of(text, f'{archive}:{name}:{split}'))


def sentences_of(content: bytes, where: str) -> list[Sentence]:
  """Sentences of one split; UsageError with the line where a tag is none."""
  sentences: list[list[tuple[str, str]]] = [[]]
  for line, place in lines(content, where):
    token, tab, tag = line.strip().rpartition('\t')
    if not tab:
      if line.strip():
        raise UsageError('a line is a token, a tab and a tag', where=place, fix='fetch the file again')
      sentences.append([])
      continue
    if tag.strip() not in TAGS:
      raise UsageError(f'unknown tag {tag!r}', where=place, fix=f'one of {", ".join(TAGS)}')
    token = token.partition(':')[2].strip()
    if token:
      sentences[-1].append((token, tag.strip()))
  return [sentence for sentence in sentences if sentence]
