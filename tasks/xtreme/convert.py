"""Published archives to XTREME's layout: what XTREME's own preprocessing writes, by other means.

`CONVERSIONS` has a function for each task, from archives by file name to the files of the layout. Nothing is fetched or
written here. The archives are those of `sources.json`, of which the SHA-256 was compared: what they contain is known.
"""

import collections
import csv
import io
import itertools
import json
import pathlib
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tasks.tables import SPLITS
from tasks.tables.files import Example, parse_questions
from tasks.xtreme import BENCHMARK, LANGUAGES
from tasks.xtreme.benchmark import TASKS

T = TypeVar('T')
Archives = Mapping[str, pathlib.Path]
Converted = Iterator[tuple[str, str]]  # path in the root of the data, as `xnli/dev-de.tsv`, and content
Sentence = Sequence[tuple[str, str]]  # tokens with their tags

# Languages by what a task's published files call them.
PUBLISHED_NAMES: dict[str, dict[str, str]] = {
  task: BENCHMARK[task]['published_names'] for task in ('tydiqa', 'tatoeba')
}


def _members(archive: pathlib.Path | bytes, find: Callable[[str], T | None]) -> Iterator[tuple[T, bytes]]:
  """Of the members of a zip or tar archive for whose path `find` has something: that, and the content."""
  with io.BytesIO(archive) if isinstance(archive, bytes) else archive.open('rb') as file:
    if zipfile.is_zipfile(file):
      with zipfile.ZipFile(file) as zipped:
        for name in zipped.namelist():
          if (found := find(name)) is not None:
            yield found, zipped.read(name)
      return
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
      for info in tar:
        if info.isreg() and (found := find(info.name)) is not None:
          member = tar.extractfile(info)
          yield found, member.read() if member else b''


def _by_ending(wanted: Mapping[str, T]) -> Callable[[str], T | None]:
  """A function from paths to what `wanted` has for their last components."""
  return lambda path: next((found for end, found in wanted.items() if f'/{path}'.endswith(f'/{end}')), None)


def _lines(content: bytes) -> list[str]:
  """Lines, which end at LF or CRLF and nowhere else."""
  return [line.removesuffix('\r') for line in content.decode().removesuffix('\n').split('\n')]


def _text(lines: Iterable[object]) -> str:
  return ''.join(f'{line}\n' for line in lines)


# --- pairs of sentences -----------------------------------------------------------------------------------------------


def pairs_files(task: str, split: str, language: str, rows: Iterable[Sequence[str]]) -> Converted:
  """Files of a task of sentence pairs: `sentence1 TAB sentence2 [TAB label]`, CSV quotes, CRLF.

  Of a test split the labels are in a file of their own, `labels/TASK/test-LL.tsv`, one a line.
  """
  rows = list(rows)
  table = io.StringIO(newline='')
  csv.writer(table, delimiter='\t').writerows(row[:2] if split == 'test' else row for row in rows)
  yield f'{task}/{split}-{language}.tsv', table.getvalue()
  if split == 'test':
    yield f'labels/{task}/{split}-{language}.tsv', _text(label for *_, label in rows)


def _pairs(
  task: str, archive: pathlib.Path, wanted: Mapping[str, tuple[str, str | None]], texts: slice, label: int
) -> Converted:
  """Files of tables whose `texts` columns are the pair; `wanted` has split and language, None if it is column 0."""
  for (split, language), content in _members(archive, _by_ending(wanted)):
    by_language = collections.defaultdict(list)
    for line in _lines(content)[1:]:  # without quotes, after the header
      row = [column.strip() for column in line.strip().split('\t')]
      name = 'contradiction' if row[label] == 'contradictory' else row[label]  # XNLI's files have both
      by_language[language or row[0]].append((*row[texts], name))
    for of_language, pairs in by_language.items():
      yield from pairs_files(task, split, of_language, pairs)


def _xnli(archives: Archives) -> Converted:
  """XNLI 1.0 split by language, and its English training set, MultiNLI as XNLI-MT 1.0 has it."""
  evaluated = {f'xnli.{split}.tsv': (split, None) for split in ('dev', 'test')}
  yield from _pairs('xnli', archives['XNLI-1.0.zip'], evaluated, slice(6, 8), 1)
  train = {'multinli/multinli.train.en.tsv': ('train', 'en')}
  yield from _pairs('xnli', archives['XNLI-MT-1.0.zip'], train, slice(0, 2), 2)


def _pawsx(archives: Archives) -> Converted:
  """PAWS-X: pairs in seven languages, trained on in English. Nothing is left out."""
  files = {f'{code}/{split}_2k.tsv': (split, code) for code in LANGUAGES['pawsx'] for split in ('dev', 'test')}
  yield from _pairs('pawsx', archives['x-final.tar.gz'], files | {'en/train.tsv': ('train', 'en')}, slice(1, 3), 3)


# --- tagging ----------------------------------------------------------------------------------------------------------

# Of a multiword token's words, the one whose tag stands first here gives the token its tag.
_RANKS = {
  'es': 'VERB AUX PRON ADP DET',
  'fr': 'VERB AUX PRON NOUN ADJ ADV ADP DET PART SCONJ',
  'it': 'VERB AUX ADV PRON ADP DET INTJ',
}
_RANKS_ELSEWHERE = 'VERB NOUN PROPN PRON ADJ NUM ADV INTJ AUX ADP DET PART CCONJ SCONJ X PUNCT'
_NON_JOINER = '\u200c'
_ID, _FORM, _TAG, _HEAD, _ENHANCED = 0, 1, 3, 6, 8  # columns of CoNLL-U


def tagging_files(task: str, split: str, language: str, sentences: Iterable[Sentence]) -> Converted:
  """Files of a tagging task: `token [TAB tag]`, an empty line between sentences; labels of test as for pairs."""
  sentences = list(sentences)
  blocks = lambda line: '\n'.join(_text(itertools.starmap(line, sentence)) for sentence in sentences)
  if split == 'test':
    yield f'{task}/test-{language}.tsv', blocks(lambda token, tag: token)
    yield f'labels/{task}/test-{language}.tsv', blocks(lambda token, tag: tag)
  else:
    yield f'{task}/{split}-{language}.tsv', blocks(lambda token, tag: f'{token}\t{tag}')


def _panx(archives: Archives) -> Converted:
  """PAN-X, WikiANN in the balanced splits of Rahimi et al. 2019: a zip with `LL.tar.gz`, in it the splits."""
  names = {f'{language}.tar.gz': language for language in LANGUAGES['panx']}
  splits = {split: split for split in SPLITS}
  for language, of_language in _members(archives['panx_dataset.zip'], _by_ending(names)):
    for split, content in _members(of_language, _by_ending(splits)):
      yield from tagging_files('panx', split, language, panx_sentences(content))


def panx_sentences(content: bytes) -> list[Sentence]:
  """Sentences of one split, whose lines are `LL:token TAB tag`.

  The few empty tokens are left out: in a file of tokens they would end a sentence.
  """
  sentences: list[list[tuple[str, str]]] = [[]]
  for line in _lines(content):
    token, tab, tag = line.strip().rpartition('\t')
    if not tab:
      sentences.append([])
    elif token := token.partition(':')[2].strip():
      sentences[-1].append((token, tag.strip()))
  return [sentence for sentence in sentences if sentence]


def _udpos(archives: Archives) -> Converted:
  """Universal Dependencies 2.5: parts of speech in all treebanks of a language, in the order of their file names."""
  treebanks = sorted(_members(archives['ud-treebanks-v2.5.tgz'], _treebank))
  for (language, split), files in itertools.groupby(treebanks, lambda treebank: treebank[0][:2]):
    if sentences := [sentence for _, content in files for sentence in udpos_sentences(content, language)]:
      yield from tagging_files('udpos', split, language, sentences)


def _treebank(path: str) -> tuple[str, str, str] | None:
  """`de`, `train` and the name of the file for `…/de_gsd-ud-train.conllu`; None for other languages and files."""
  file = pathlib.PurePosixPath(path)
  language = file.name.partition('_')[0]
  if file.suffix != '.conllu' or language not in LANGUAGES['udpos']:
    return None
  return next(((language, split, file.name) for split in SPLITS if split in file.stem), None)


def udpos_sentences(content: bytes, language: str) -> list[Sentence]:
  """Sentences of one treebank's file, in CoNLL-U, that have words.

  Words lose zero-width non-joiners and spaces. Sentences without words (`_`, as some treebanks are published without
  their texts) are left out.
  """
  found: list[Sentence] = []
  lines = (line for line in _lines(content) if not line.startswith('#'))
  for is_row, rows in itertools.groupby(lines, bool):
    if is_row:
      sentence = _words([row.split('\t') for row in rows], language)
      blank = sum(form == '_' for form, _ in sentence)
      if blank == 0 or blank < len(sentence) - 1:
        found.append([(form.replace(_NON_JOINER, '').replace(' ', ''), tag) for form, tag in sentence])
  return found


def _words(rows: list[list[str]], language: str) -> list[tuple[str, str]]:
  """Forms and tags, each multiword token as one, in the form it is written in.

  It has the tag of its word nearest to the root; of several the one whose tag ranks first (as ud-conversion-tools
  choose, which XTREME calls).
  """
  words = {int(row[_ID]): row for row in rows if row[_ID].isdigit()}  # 8.1 is a word that is not written
  spans = {
    int(first): (int(last), row[_FORM]) for row in rows for first, dash, last in [row[_ID].partition('-')] if dash
  }
  heights = _heights(words) if spans else {}
  rank = _RANKS.get(language, _RANKS_ELSEWHERE).split()
  found, covered = [], 0
  for number, row in sorted(words.items()):
    if number <= covered:
      continue
    if number not in spans:
      found.append((row[_FORM].strip(), row[_TAG].strip()))
      continue
    covered, form = spans[number]
    span = range(number, covered + 1)
    highest = min(heights[part] for part in span)
    tags = [words[part][_TAG].strip() for part in span if heights[part] == highest]
    found.append((form.strip(), min(tags, key=lambda tag: rank.index(tag) if tag in rank else len(rank))))
  return found


def _heights(words: dict[int, list[str]]) -> dict[int, int]:
  """How many words each depends on, directly or not, by its head and by what its enhanced dependencies add."""
  heads: dict[int, set[int]] = {}
  for number, row in words.items():
    enhanced = (part.partition(':')[0] for part in row[_ENHANCED].split('|'))
    heads[number] = {int(head) for head in (row[_HEAD], *enhanced) if head.isdigit()}
  heights = {}
  for number in words:
    above: set[int] = set()
    waiting = [number]
    while waiting:
      waiting += (new := heads.get(waiting.pop(), set()) - above)
      above |= new
    heights[number] = len(above - {number})
  return heights


# --- questions --------------------------------------------------------------------------------------------------------


def _json(content: Any) -> str:
  return json.dumps(content, ensure_ascii=False)


def _squad_text(questions: Iterable[tuple[str, Example, Sequence[Mapping[str, Any]]]], published: Any) -> str:
  """A file with an article for each question, of its id, itself and answers, as XTREME's preprocessing writes it."""
  articles = []
  for name, question, answers in questions:
    asked = {'answers': answers, 'question': question.features['question'], 'id': name}
    articles.append({'paragraphs': [{'context': question.features['context'], 'qas': [asked]}]})
  return _json({'data': articles, 'version': published.get('version', '1.1')})


def blanked_test_files(content: bytes, task: str, language: str) -> Converted:
  """A test file without answers, and the file itself as its labels."""
  published, blank = json.loads(content), [{'answer_start': 0, 'text': ''}]
  blanked = [(question.features['id'], question, blank) for question in parse_questions(published, task)]
  yield TASKS[task].file('test', language), _squad_text(blanked, published)
  yield f'labels/{task}/test-{language}.json', _json(published)


def _squad(archives: Archives) -> Converted:
  """SQuAD v1.1, for training of XQuAD and MLQA. Its files are taken as they are."""
  for split in ('train', 'dev'):
    yield f'squad/{split}-v1.1.json', archives[f'{split}-v1.1.json'].read_text('utf-8')


def _xquad(archives: Archives) -> Converted:
  """XQuAD: SQuAD's paragraphs in eleven languages, for evaluation."""
  for language in LANGUAGES['xquad']:
    yield from blanked_test_files(archives[f'xquad.{language}.json'].read_bytes(), 'xquad', language)


def _mlqa(archives: Archives) -> Converted:
  """MLQA v1: the files whose question and context are in one language; XTREME evaluates no others."""
  task = TASKS['mlqa']
  files = {
    task.file(split, language).removeprefix('mlqa/MLQA_V1/'): (split, language)
    for split in ('dev', 'test')
    for language in task.languages
  }
  for (split, language), content in _members(archives['MLQA_V1.zip'], _by_ending(files)):
    if split == 'test':
      yield from blanked_test_files(content, 'mlqa', language)
    else:
      yield task.file(split, language), _json(json.loads(content))


def _tydiqa(archives: Archives) -> Converted:
  """TyDi QA GoldP v1.1: training questions by language, and the dev set for evaluation.

  As in XTREME, an id of training keeps only what is behind its last dash, and is no longer unique.
  """
  task, names, by_language = TASKS['tydiqa'], PUBLISHED_NAMES['tydiqa'], collections.defaultdict(list)
  train = json.loads(archives['tydiqa-goldp-v1.1-train.json'].read_bytes())
  for question in parse_questions(train, 'tydiqa'):
    name, _, rest = question.features['id'].partition('-')
    answers = [{'text': answer.text, 'answer_start': answer.start} for answer in question.label]
    by_language[names[name]].append((rest.rpartition('-')[2], question, answers))
  for language, of_language in by_language.items():
    yield task.file('train', language), _squad_text(of_language, train)
  files = {f'tydiqa-goldp-dev-{name}.json': language for name, language in names.items()}
  for language, content in _members(archives['tydiqa-goldp-v1.1-dev.tgz'], _by_ending(files)):
    yield from blanked_test_files(content, 'tydiqa', language)


# --- retrieval --------------------------------------------------------------------------------------------------------


def _tatoeba(archives: Archives) -> Converted:
  """Tatoeba v1 of LASER: sentences as they are, translations sorted so that line numbers tell nothing."""
  for code, language in PUBLISHED_NAMES['tatoeba'].items():
    sides = [archives[f'tatoeba.{code}-eng.{side}'].read_bytes() for side in (code, 'eng')]
    source, english = ([line.strip() for line in _lines(side)] for side in sides)
    yield from tatoeba_files(language, source, english)


def tatoeba_files(language: str, source: Sequence[str], english: Sequence[str]) -> Converted:
  """Files of a language, from sentences and their translations in the same order."""
  order = sorted(range(len(english)), key=lambda line: english[line])
  place = {line: number for number, line in enumerate(order)}
  yield f'tatoeba/{language}-en.{language}', _text(source)
  yield f'tatoeba/{language}-en.en', _text(english[line] for line in order)
  yield f'labels/tatoeba/test-{language}.tsv', _text(place[line] for line in range(len(english)))


def _bucc2018(archives: Archives) -> Converted:
  """BUCC 2018: the published sample is XTREME's dev split, the published training set its test split."""
  for language in LANGUAGES['bucc2018']:
    for published, split in (('sample', 'dev'), ('training', 'test')):
      archive = archives[f'bucc2018-{language}-en.{published}-gold.tar.bz2']
      files = {f'{language}-en.{published}.{side}': side for side in (language, 'en', 'gold')}
      for side, content in _members(archive, _by_ending(files)):
        is_label = split == 'test' and side == 'gold'
        path = f'labels/bucc2018/test-{language}.tsv' if is_label else f'bucc2018/{language}-en.{split}.{side}'
        yield path, _text(_lines(content))


# By task.
CONVERSIONS: dict[str, Callable[[Archives], Converted]] = {
  convert.__name__.removeprefix('_'): convert
  for convert in (_xnli, _pawsx, _panx, _udpos, _squad, _xquad, _mlqa, _tydiqa, _tatoeba, _bucc2018)
}
