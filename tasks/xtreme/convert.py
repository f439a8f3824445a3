"""Published archives to XTREME's layout: what XTREME's own preprocessing writes, by other means.

`CONVERSIONS` has a function for each task, from archives by file name to the files of the layout. Nothing is fetched or
written here.
"""

import collections
import contextlib
import csv
import io
import itertools
import json
import operator
import pathlib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.xtreme.archives import columns, members, nested_tar
from tasks.xtreme.benchmark import LANGUAGES, PUBLISHED_NAMES, TASKS
from tasks.xtreme.files import known_label, split_lines

_FETCH = 'fetch the file again'

T = TypeVar('T')
Archives = Mapping[str, pathlib.Path]
Sentence = Sequence[tuple[str, str]]  # tokens with their tags


class Converted(NamedTuple):
  """One file of XTREME's layout: `xnli/dev-de.tsv` in the root of the data."""

  path: str
  content: str


def _plain_file(archives: Archives, name: str) -> tuple[bytes, str]:
  """Content and place of a file that is no archive."""
  return archives[name].read_bytes(), str(archives[name])


def _members(archive: pathlib.Path, wanted: Mapping[str, T]) -> Iterator[tuple[T, bytes, str]]:
  """Of the members whose paths end with a key of `wanted`: what that stands for, the content and its place."""
  ending = lambda name: next((end for end in wanted if f'/{name}'.endswith(f'/{end}')), '')
  for name, content in members(archive, lambda name: bool(ending(name))):
    yield wanted[ending(name)], content, f'{archive}:{name}'


# --- pairs of sentences -----------------------------------------------------------------------------------------------


def pairs_files(task: str, split: str, language: str, rows: Iterable[Sequence[str]]) -> Iterator[Converted]:
  """Files of a task of sentence pairs: `sentence1 TAB sentence2 [TAB label]`, CSV quotes, CRLF.

  Of a test split the labels are in a file of their own, `labels/TASK/test-LL.tsv`, one a line.
  """
  rows = list(rows)
  table = io.StringIO(newline='')
  csv.writer(table, delimiter='\t').writerows(row[:2] if split == 'test' else row for row in rows)
  yield Converted(f'{task}/{split}-{language}.tsv', table.getvalue())
  if split == 'test':
    yield Converted(f'labels/{task}/{split}-{language}.tsv', ''.join(f'{label}\n' for *_, label in rows))


def _pairs(
  task: str, archive: pathlib.Path, wanted: Mapping[str, tuple[str, str | None]], texts: slice, label: int
) -> Iterator[Converted]:
  """Files of tables whose `texts` columns are the pair; `wanted` has split and language, None if it is column 0."""
  for (split, language), content, place in _members(archive, wanted):
    by_language: dict[str, list] = {language: []} if language else {}
    for row, where in columns(content, place, max(texts.stop, label + 1)):
      name = 'contradiction' if row[label] == 'contradictory' else row[label]  # XNLI's files have both
      pair = (*row[texts], known_label(name, TASKS[task].labels, where))
      by_language.setdefault(language or row[0], []).append(pair)
    for of_language, pairs in by_language.items():
      yield from pairs_files(task, split, of_language, pairs)


def _xnli(archives: Archives) -> Iterator[Converted]:
  """XNLI 1.0 split by language, and its English training set, MultiNLI as XNLI-MT 1.0 has it."""
  judged = {f'xnli.{split}.tsv': (split, None) for split in ('dev', 'test')}
  yield from _pairs('xnli', archives['XNLI-1.0.zip'], judged, slice(6, 8), 1)
  learned = {'multinli/multinli.train.en.tsv': ('train', 'en')}
  yield from _pairs('xnli', archives['XNLI-MT-1.0.zip'], learned, slice(0, 2), 2)


def _pawsx(archives: Archives) -> Iterator[Converted]:
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


def tagging_files(task: str, split: str, language: str, sentences: Iterable[Sentence]) -> Iterator[Converted]:
  """Files of a tagging task: `token [TAB tag]`, an empty line between sentences; labels of test as for pairs."""
  sentences = list(sentences)
  blocks = lambda line: '\n'.join(''.join(f'{line(*pair)}\n' for pair in sentence) for sentence in sentences)
  token, tag, both = (lambda token, _: token), (lambda _, tag: tag), (lambda token, tag: f'{token}\t{tag}')
  yield Converted(f'{task}/{split}-{language}.tsv', blocks(token if split == 'test' else both))
  if split == 'test':
    yield Converted(f'labels/{task}/{split}-{language}.tsv', blocks(tag))


def _panx(archives: Archives) -> Iterator[Converted]:
  """PAN-X, WikiANN in the balanced splits of Rahimi et al. 2019: a zip with `LL.tar.gz`, in it the splits."""
  names = {f'{language}.tar.gz': language for language in LANGUAGES['panx']}
  for language, content, place in _members(archives['panx_dataset.zip'], names):
    for member, text in nested_tar(place, content):
      split = posixpath.basename(member)
      if split in ('train', 'dev', 'test'):
        yield from tagging_files('panx', split, language, panx_sentences(text, f'{place}:{split}'))


def panx_sentences(content: bytes, where: str) -> list[Sentence]:
  """Sentences of one split, whose lines are `LL:token TAB tag`; UsageError with the line where a tag is none.

  The few empty tokens are left out: in a file of tokens they would end a sentence.
  """
  sentences: list[list[tuple[str, str]]] = [[]]
  for line, place in split_lines(content, where):
    token, tab, tag = line.strip().rpartition('\t')
    if not tab:
      if line.strip():
        raise UsageError('a line is a token, a tab and a tag', where=place, fix=_FETCH)
      sentences.append([])
      continue
    if tag.strip() not in TASKS['panx'].labels:
      raise UsageError(f'unknown tag {tag!r}', where=place, fix=f'one of {", ".join(TASKS["panx"].labels)}')
    token = token.partition(':')[2].strip()
    if token:
      sentences[-1].append((token, tag.strip()))
  return [sentence for sentence in sentences if sentence]


def _udpos(archives: Archives) -> Iterator[Converted]:
  """Universal Dependencies 2.5: parts of speech in all treebanks of a language, in the order of their file names."""
  archive = archives['ud-treebanks-v2.5.tgz']
  treebanks = []
  for name, content in members(archive, lambda name: _treebank(name) is not None):
    language, split = _treebank(name) or ('', '')
    sentences = udpos_sentences(content, f'{archive}:{name}', language)
    treebanks.append((language, split, posixpath.basename(name), sentences))
  for (language, split), files in itertools.groupby(sorted(treebanks), operator.itemgetter(0, 1)):
    joined = [sentence for *_, sentences in files for sentence in sentences]
    if joined:
      yield from tagging_files('udpos', split, language, joined)


def _treebank(name: str) -> tuple[str, str] | None:
  """`de`, `train` for `…/de_gsd-ud-train.conllu`; None for other languages and files."""
  file = pathlib.PurePosixPath(name)
  language = file.name.partition('_')[0]
  if file.suffix != '.conllu' or language not in LANGUAGES['udpos']:
    return None
  return next(((language, split) for split in ('train', 'dev', 'test') if split in file.stem), None)


def udpos_sentences(content: bytes, where: str, language: str) -> list[Sentence]:
  """Sentences of one treebank's file that have words; UsageError with the line where it is no CoNLL-U.

  Words lose zero-width non-joiners and spaces. Sentences without words (`_`, as some treebanks are published without
  their texts) are left out.
  """
  found: list[Sentence] = []
  rows: list[list[str]] = []
  for line, place in (*split_lines(content, where), ('', where)):
    if line.startswith('#'):
      continue
    if line:
      rows.append(line.split('\t'))
      if len(rows[-1]) != 10:
        raise UsageError(f'{len(rows[-1])} columns, and CoNLL-U has 10', where=place, fix=_FETCH)
    elif rows:
      sentence = _words(rows, language, place)
      blank = sum(form == '_' for form, _ in sentence)
      if blank == 0 or blank < len(sentence) - 1:
        found.append([(form.replace(_NON_JOINER, '').replace(' ', ''), tag) for form, tag in sentence])
      rows = []
  return found


def _words(rows: list[list[str]], language: str, where: str) -> list[tuple[str, str]]:
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
    if not all(part in words for part in span):
      raise UsageError(f'the words of {number}-{covered} are not all there', where=where, fix=_FETCH)
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


@contextlib.contextmanager
def squad_form(where: str) -> Iterator[None]:
  """Turns whatever a file of SQuAD's form lacks into a UsageError."""
  try:
    yield
  except (KeyError, TypeError) as error:
    raise UsageError(f'not a file of SQuAD’s form: {type(error).__name__} {error}', where=where, fix=_FETCH) from None


def _questions(content: Any, where: str) -> list[tuple[str, dict]]:
  """Contexts and questions of a file; UsageError if it is of another form, or an answer is not where it says."""
  found = []
  with squad_form(where):
    for paragraph in (paragraph for article in content['data'] for paragraph in article['paragraphs']):
      context = paragraph['context']
      for question in paragraph['qas']:
        for answer in question['answers']:
          begin = answer['answer_start']
          if context[begin : begin + len(answer['text'])] != answer['text']:
            raise UsageError(
              f'question {question["id"]}: {answer["text"]!r} does not stand at character {begin} of its context',
              where=where,
              fix=_FETCH,
            )
        found.append((context, question))
  return found


def _article(context: str, question: dict, **changed) -> dict[str, Any]:
  """An article for one question, as XTREME's preprocessing writes it."""
  kept = {'answers': question['answers'], 'question': question['question'], 'id': question['id']} | changed
  return {'paragraphs': [{'context': context, 'qas': [kept]}]}


def _squad_text(articles: Sequence[dict], published: Any) -> str:
  return _json({'data': articles, 'version': published.get('version', '1.1')})


def blanked_test_files(content: Any, where: str, task: str, language: str) -> Iterator[Converted]:
  """A test file without answers, and the file itself as its labels."""
  blank = [{'answer_start': 0, 'text': ''}]
  articles = [_article(context, question, answers=blank) for context, question in _questions(content, where)]
  yield Converted(TASKS[task].file('test', language), _squad_text(articles, content))
  yield Converted(f'labels/{task}/test-{language}.json', _json(content))


def _squad(archives: Archives) -> Iterator[Converted]:
  """SQuAD v1.1: learned from, for XQuAD and MLQA. Its files are taken as they are."""
  for split in ('train', 'dev'):
    content, where = _plain_file(archives, f'{split}-v1.1.json')
    _questions(parsed_json(content, where), where)
    yield Converted(f'squad/{split}-v1.1.json', content.decode())


def _xquad(archives: Archives) -> Iterator[Converted]:
  """XQuAD: SQuAD's paragraphs in eleven languages, to be judged on."""
  for language in LANGUAGES['xquad']:
    content, where = _plain_file(archives, f'xquad.{language}.json')
    yield from blanked_test_files(parsed_json(content, where), where, 'xquad', language)


def _mlqa(archives: Archives) -> Iterator[Converted]:
  """MLQA v1: the files whose question and context are in one language; XTREME judges no others."""
  task = TASKS['mlqa']
  files = {
    task.file(split, language).removeprefix('mlqa/MLQA_V1/'): (split, language)
    for split in ('dev', 'test')
    for language in task.languages
  }
  for (split, language), content, where in _members(archives['MLQA_V1.zip'], files):
    parsed = parsed_json(content, where)
    if split == 'test':
      yield from blanked_test_files(parsed, where, 'mlqa', language)
    else:
      _questions(parsed, where)
      yield Converted(task.file(split, language), _json(parsed))


def _tydiqa(archives: Archives) -> Iterator[Converted]:
  """TyDi QA GoldP v1.1: training questions by language, and the dev set to be judged on.

  As in XTREME, an id of training keeps only what is behind its last dash, and is no longer unique.
  """
  task, names, by_language = TASKS['tydiqa'], PUBLISHED_NAMES['tydiqa'], collections.defaultdict(list)
  content, where = _plain_file(archives, 'tydiqa-goldp-v1.1-train.json')
  train = parsed_json(content, where)
  for context, question in _questions(train, where):
    name, _, rest = question['id'].partition('-')
    if name not in names:
      raise UsageError(f'unknown language in the id {question["id"]!r}', where=where, fix=_FETCH)
    by_language[names[name]].append(_article(context, question, id=rest.rpartition('-')[2]))
  for language, articles in by_language.items():
    yield Converted(task.file('train', language), _squad_text(articles, train))
  files = {f'tydiqa-goldp-dev-{name}.json': language for name, language in names.items()}
  for language, content, where in _members(archives['tydiqa-goldp-v1.1-dev.tgz'], files):
    yield from blanked_test_files(parsed_json(content, where), where, 'tydiqa', language)


# --- retrieval --------------------------------------------------------------------------------------------------------


def _tatoeba(archives: Archives) -> Iterator[Converted]:
  """Tatoeba v1 of LASER: sentences as they are, translations sorted so that line numbers tell nothing."""
  for code, language in PUBLISHED_NAMES['tatoeba'].items():
    sides = [_plain_file(archives, f'tatoeba.{code}-eng.{side}') for side in (code, 'eng')]
    source, english = ([line.strip() for line, _ in split_lines(*side)] for side in sides)
    if len(source) != len(english):
      raise UsageError(
        f'{len(source)} sentences and {len(english)} translations', where=sides[0][1], fix='fetch both files again'
      )
    yield from tatoeba_files(language, source, english)


def tatoeba_files(language: str, source: Sequence[str], english: Sequence[str]) -> Iterator[Converted]:
  """Files of a language, from sentences and their translations in the same order."""
  order = sorted(range(len(english)), key=lambda line: english[line])
  place = {line: number for number, line in enumerate(order)}
  text = lambda texts: ''.join(f'{each}\n' for each in texts)
  yield Converted(f'tatoeba/{language}-en.{language}', text(source))
  yield Converted(f'tatoeba/{language}-en.en', text(english[line] for line in order))
  yield Converted(f'labels/tatoeba/test-{language}.tsv', text(place[line] for line in range(len(english))))


def _bucc2018(archives: Archives) -> Iterator[Converted]:
  """BUCC 2018: the published sample is XTREME's dev split, the published training set its test split."""
  for language in LANGUAGES['bucc2018']:
    for published, split in (('sample', 'dev'), ('training', 'test')):
      archive = archives[f'bucc2018-{language}-en.{published}-gold.tar.bz2']
      files = {f'{language}-en.{published}.{side}': side for side in (language, 'en', 'gold')}
      missing = set(files)
      for side, content, place in _members(archive, files):
        missing.discard(f'{language}-en.{published}.{side}')
        is_label = split == 'test' and side == 'gold'
        path = f'labels/bucc2018/test-{language}.tsv' if is_label else f'bucc2018/{language}-en.{split}.{side}'
        yield Converted(path, ''.join(f'{line}\n' for line, _ in split_lines(content, place)))
      if missing:
        raise UsageError(f'the archive has no {", ".join(sorted(missing))}', where=str(archive), fix='fetch it again')


# By task.
CONVERSIONS: dict[str, Callable[[Archives], Iterator[Converted]]] = {
  convert.__name__.removeprefix('_'): convert
  for convert in (_xnli, _pawsx, _panx, _udpos, _squad, _xquad, _mlqa, _tydiqa, _tatoeba, _bucc2018)
}
