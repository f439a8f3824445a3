"""Published archives to XTREME's layout: what XTREME's own preprocessing writes, by other means.

`CONVERSIONS` has a function for each task, from archives by file name to the files of the layout. Nothing is fetched or
written here.
"""

import csv
import io
import json
import pathlib
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rembert.errors import UsageError
from rembert.files import parsed_json
from tasks.xtreme.archives import columns, lines, members, nested_tar
from tasks.xtreme.verify import LANGUAGES

_FETCH = 'fetch the file again'

Archives = Mapping[str, pathlib.Path]
Sentence = Sequence[tuple[str, str]]  # tokens with their tags


class Converted(NamedTuple):
  """One file of XTREME's layout.

  Attributes:
    path: in the root of the data, `xnli/dev-de.tsv`.
    content: of the file.
  """

  path: str
  content: str


def _plain_file(archives: Archives, name: str) -> tuple[bytes, str]:
  """Content and place of a file that is no archive."""
  return archives[name].read_bytes(), str(archives[name])


def _is_named(files: Collection[str]) -> Callable[[str], bool]:
  """Whether a member is one of `files`, in whatever folder."""
  return lambda name: posixpath.basename(name) in files


# --- pairs of sentences -----------------------------------------------------------------------------------------------

NLI_LABELS = ('contradiction', 'entailment', 'neutral')
_PAWSX_SPLITS = {'train.tsv': 'train', 'dev_2k.tsv': 'dev', 'test_2k.tsv': 'test'}


def pairs_files(task: str, split: str, language: str, rows: Iterable[Sequence[str]]) -> Iterator[Converted]:
  """Files of a task of sentence pairs: `sentence1 TAB sentence2 [TAB label]`, CSV quotes, CRLF.

  Of a test split the labels are in a file of their own, `labels/TASK/test-LL.tsv`, one a line.
  """
  rows = list(rows)
  is_test = split == 'test'
  table = io.StringIO(newline='')
  csv.writer(table, delimiter='\t').writerows(row[:2] if is_test else row for row in rows)
  yield Converted(f'{task}/{split}-{language}.tsv', table.getvalue())
  if is_test:
    yield Converted(f'labels/{task}/{split}-{language}.tsv', ''.join(f'{label}\n' for *_, label in rows))


def _xnli(archives: Archives) -> Iterator[Converted]:
  """XNLI 1.0 split by language, and its English training set, MultiNLI as XNLI-MT 1.0 has it."""
  archive = archives['XNLI-1.0.zip']
  for name, content in members(archive, lambda name: name.endswith(('xnli.dev.tsv', 'xnli.test.tsv'))):
    by_language: dict[str, list] = {}
    for row, where in columns(content, f'{archive}:{name}', 8):
      by_language.setdefault(row[0], []).append((row[6], row[7], _nli_label(row[1], where)))
    split = 'test' if name.endswith('test.tsv') else 'dev'
    for language, pairs in by_language.items():
      yield from pairs_files('xnli', split, language, pairs)
  archive = archives['XNLI-MT-1.0.zip']
  for name, content in members(archive, lambda name: name.endswith('multinli/multinli.train.en.tsv')):
    rows = columns(content, f'{archive}:{name}', 3)
    yield from pairs_files('xnli', 'train', 'en', ((*row[:2], _nli_label(row[2], where)) for row, where in rows))


def _nli_label(text: str, where: str) -> str:
  """The label; the files write `contradictory` in places."""
  return _label('contradiction' if text == 'contradictory' else text, NLI_LABELS, where)


def _label(text: str, known: Sequence[str], where: str) -> str:
  if text not in known:
    raise UsageError(f'unknown label {text!r}', where=where, fix=f'one of {", ".join(known)}')
  return text


def _pawsx(archives: Archives) -> Iterator[Converted]:
  """PAWS-X: pairs in seven languages, trained on in English. Nothing is left out."""
  archive = archives['x-final.tar.gz']
  for name, content in members(archive, lambda name: name.endswith(tuple(f'/{file}' for file in _PAWSX_SPLITS))):
    path = pathlib.PurePosixPath(name)
    language, split = path.parent.name, _PAWSX_SPLITS[path.name]
    if split != 'train' or language == 'en':
      rows = columns(content, f'{archive}:{name}', 4)
      pairs = ((*row[1:3], _label(row[3], ('0', '1'), where)) for row, where in rows)
      yield from pairs_files('pawsx', split, language, pairs)


# --- tagging ----------------------------------------------------------------------------------------------------------

PANX_TAGS = ('B-LOC', 'B-ORG', 'B-PER', 'I-LOC', 'I-ORG', 'I-PER', 'O')
_UPOS_RANKS = {
  'es': ('VERB', 'AUX', 'PRON', 'ADP', 'DET'),
  'fr': ('VERB', 'AUX', 'PRON', 'NOUN', 'ADJ', 'ADV', 'ADP', 'DET', 'PART', 'SCONJ'),
  'it': ('VERB', 'AUX', 'ADV', 'PRON', 'ADP', 'DET', 'INTJ'),
}
_UPOS = 'VERB NOUN PROPN PRON ADJ NUM ADV INTJ AUX ADP DET PART CCONJ SCONJ X PUNCT'
_UPOS_RANK = tuple(_UPOS.split())
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
  archive = archives['panx_dataset.zip']
  names = {f'{language}.tar.gz': language for language in LANGUAGES['panx']}
  for name, content in members(archive, _is_named(names)):
    language = names[posixpath.basename(name)]
    for member, text in nested_tar(name, content, archive):
      split = posixpath.basename(member)
      if split in ('train', 'dev', 'test'):
        yield from tagging_files('panx', split, language, panx_sentences(text, f'{archive}:{name}:{split}'))


def panx_sentences(content: bytes, where: str) -> list[Sentence]:
  """Sentences of one split, whose lines are `LL:token TAB tag`; UsageError with the line where a tag is none.

  The few empty tokens are left out: in a file of tokens they would end a sentence.
  """
  sentences: list[list[tuple[str, str]]] = [[]]
  for line, place in lines(content, where):
    token, tab, tag = line.strip().rpartition('\t')
    if not tab:
      if line.strip():
        raise UsageError('a line is a token, a tab and a tag', where=place, fix=_FETCH)
      sentences.append([])
      continue
    if tag.strip() not in PANX_TAGS:
      raise UsageError(f'unknown tag {tag!r}', where=place, fix=f'one of {", ".join(PANX_TAGS)}')
    token = token.partition(':')[2].strip()
    if token:
      sentences[-1].append((token, tag.strip()))
  return [sentence for sentence in sentences if sentence]


def _udpos(archives: Archives) -> Iterator[Converted]:
  """Universal Dependencies 2.5: parts of speech, as XTREME makes them from all treebanks of a language.

  Treebanks come in the order of their file names.
  """
  archive = archives['ud-treebanks-v2.5.tgz']
  treebanks: dict[tuple[str, str], dict[str, list[Sentence]]] = {}
  for name, content in members(archive, lambda name: _treebank(name) is not None):
    if treebank := _treebank(name):
      sentences = udpos_sentences(content, f'{archive}:{name}', treebank[0])
      treebanks.setdefault(treebank, {})[posixpath.basename(name)] = sentences
  for (language, split), files in sorted(treebanks.items()):
    joined = [sentence for file in sorted(files) for sentence in files[file]]
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
  for line, place in (*lines(content, where), ('', where)):
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
  rank = _UPOS_RANKS.get(language, _UPOS_RANK)
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
      new = heads.get(waiting.pop(), set()) - above
      above |= new
      waiting += new
    heights[number] = len(above - {number})
  return heights


# --- questions --------------------------------------------------------------------------------------------------------

_MLQA_NAME = re.compile(r'(?:.*/)?((dev|test)/(?:\2)-context-(\w+)-question-\3\.json)')
# The files of TyDi QA write languages out.
TYDIQA_NAMES = {
  **{'arabic': 'ar', 'bengali': 'bn', 'english': 'en', 'finnish': 'fi', 'indonesian': 'id', 'korean': 'ko'},
  **{'russian': 'ru', 'swahili': 'sw', 'telugu': 'te'},
}


def json_text(content: Any) -> str:
  """JSON as UTF-8."""
  return json.dumps(content, ensure_ascii=False)


def _questions(content: Any, where: str) -> Iterator[tuple[str, dict]]:
  """Contexts and questions of a file of SQuAD's form, in their order.

  Raises:
    UsageError: the file is of another form, or an answer does not stand where it says.
  """
  try:
    for article in content['data']:
      for paragraph in article['paragraphs']:
        for question in paragraph['qas']:
          _check_answers(paragraph['context'], question, where)
          yield paragraph['context'], question
  except (KeyError, TypeError) as error:
    raise UsageError(f'not a file of SQuAD’s form: {type(error).__name__} {error}', where=where, fix=_FETCH) from None


def _check_answers(context: str, question: dict, where: str) -> None:
  for answer in question['answers']:
    begin = answer['answer_start']
    if context[begin : begin + len(answer['text'])] != answer['text']:
      raise UsageError(
        f'question {question["id"]}: {answer["text"]!r} does not stand at character {begin} of its context',
        where=where,
        fix=_FETCH,
      )


def _article(context: str, question: dict, **changed) -> dict[str, Any]:
  """An article for one question, as XTREME's preprocessing writes it."""
  kept = {'answers': question['answers'], 'question': question['question'], 'id': question['id']} | changed
  return {'paragraphs': [{'context': context, 'qas': [kept]}]}


def blanked_test_files(content: Any, where: str, path: str, task: str, language: str) -> Iterator[Converted]:
  """A test file without answers, and the file itself as its labels."""
  blank = [{'answer_start': 0, 'text': ''}]
  articles = [_article(context, question, answers=blank) for context, question in _questions(content, where)]
  yield Converted(path, json_text({'data': articles, 'version': content.get('version', '1.1')}))
  yield Converted(f'labels/{task}/test-{language}.json', json_text(content))


def _squad(archives: Archives) -> Iterator[Converted]:
  """SQuAD v1.1: learned from, for XQuAD and MLQA. Its files are taken as they are."""
  for split in ('train', 'dev'):
    content, where = _plain_file(archives, f'{split}-v1.1.json')
    for _ in _questions(parsed_json(content, where), where):
      pass
    yield Converted(f'squad/{split}-v1.1.json', content.decode())


def _xquad(archives: Archives) -> Iterator[Converted]:
  """XQuAD: SQuAD's paragraphs in eleven languages, to be judged on."""
  for language in LANGUAGES['xquad']:
    content, where = _plain_file(archives, f'xquad.{language}.json')
    yield from blanked_test_files(parsed_json(content, where), where, f'xquad/xquad.{language}.json', 'xquad', language)


def _mlqa(archives: Archives) -> Iterator[Converted]:
  """MLQA v1: the files whose question and context are in one language; XTREME judges no others."""
  archive = archives['MLQA_V1.zip']
  for name, content in members(archive, lambda name: _MLQA_NAME.fullmatch(name) is not None):
    match = _MLQA_NAME.fullmatch(name)
    assert match is not None
    file, split, language = match.groups()
    where = f'{archive}:{name}'
    parsed = parsed_json(content, where)
    if split == 'test':
      yield from blanked_test_files(parsed, where, f'mlqa/MLQA_V1/{file}', 'mlqa', language)
    else:
      for _ in _questions(parsed, where):
        pass
      yield Converted(f'mlqa/MLQA_V1/{file}', json_text(parsed))


def _tydiqa(archives: Archives) -> Iterator[Converted]:
  """TyDi QA GoldP v1.1: training questions by language, and the dev set to be judged on."""
  content, where = _plain_file(archives, 'tydiqa-goldp-v1.1-train.json')
  yield from tydiqa_train_files(parsed_json(content, where), where)
  archive = archives['tydiqa-goldp-v1.1-dev.tgz']
  files = {f'tydiqa-goldp-dev-{name}.json': language for name, language in TYDIQA_NAMES.items()}
  for name, content in members(archive, _is_named(files)):
    language = files[posixpath.basename(name)]
    where = f'{archive}:{name}'
    yield from blanked_test_files(parsed_json(content, where), where, tydiqa_dev_path(language), 'tydiqa', language)


def tydiqa_dev_path(language: str) -> str:
  """Where XTREME looks for a language's questions."""
  return f'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json'


def tydiqa_train_files(content: Any, where: str) -> Iterator[Converted]:
  """One file a language. As in XTREME, an id keeps only what is behind its last dash, and is no longer unique."""
  by_language: dict[str, list] = {}
  for context, question in _questions(content, where):
    name, _, rest = question['id'].partition('-')
    if name not in TYDIQA_NAMES:
      raise UsageError(f'unknown language in the id {question["id"]!r}', where=where, fix=_FETCH)
    article = _article(context, question, id=rest.rpartition('-')[2])
    by_language.setdefault(TYDIQA_NAMES[name], []).append(article)
  for language, articles in by_language.items():
    path = f'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json'
    yield Converted(path, json_text({'data': articles, 'version': content.get('version', '1.1')}))


# --- retrieval --------------------------------------------------------------------------------------------------------

# Tatoeba's files have three-letter codes (ISO 639-3).
TATOEBA_CODES = {
  **{'af': 'afr', 'ar': 'ara', 'bg': 'bul', 'bn': 'ben', 'de': 'deu', 'el': 'ell', 'es': 'spa', 'et': 'est'},
  **{'eu': 'eus', 'fa': 'pes', 'fi': 'fin', 'fr': 'fra', 'he': 'heb', 'hi': 'hin', 'hu': 'hun', 'id': 'ind'},
  **{'it': 'ita', 'ja': 'jpn', 'jv': 'jav', 'ka': 'kat', 'kk': 'kaz', 'ko': 'kor', 'ml': 'mal', 'mr': 'mar'},
  **{'nl': 'nld', 'pt': 'por', 'ru': 'rus', 'sw': 'swh', 'ta': 'tam', 'te': 'tel', 'th': 'tha', 'tl': 'tgl'},
  **{'tr': 'tur', 'ur': 'urd', 'vi': 'vie', 'zh': 'cmn'},
}


def _tatoeba(archives: Archives) -> Iterator[Converted]:
  """Tatoeba v1 of LASER: sentences as they are, translations sorted so that line numbers tell nothing."""
  for language in LANGUAGES['tatoeba']:
    code = TATOEBA_CODES[language]
    sides = [_plain_file(archives, f'tatoeba.{code}-eng.{side}') for side in (code, 'eng')]
    source, english = ([line.strip() for line, _ in lines(*side)] for side in sides)
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
      sides = {f'{language}-en.{published}.{side}': side for side in (language, 'en', 'gold')}
      missing = set(sides)
      for name, content in members(archive, _is_named(sides)):
        side = sides[posixpath.basename(name)]
        missing.discard(posixpath.basename(name))
        text = ''.join(f'{line}\n' for line, _ in lines(content, f'{archive}:{name}'))
        is_label = split == 'test' and side == 'gold'
        path = f'labels/bucc2018/test-{language}.tsv' if is_label else f'bucc2018/{language}-en.{split}.{side}'
        yield Converted(path, text)
      if missing:
        raise UsageError(f'the archive has no {", ".join(sorted(missing))}', where=str(archive), fix='fetch it again')


CONVERSIONS: dict[str, Callable[[Archives], Iterator[Converted]]] = {
  'xnli': _xnli,
  'pawsx': _pawsx,
  'panx': _panx,
  'udpos': _udpos,
  'squad': _squad,
  'xquad': _xquad,
  'mlqa': _mlqa,
  'tydiqa': _tydiqa,
  'tatoeba': _tatoeba,
  'bucc2018': _bucc2018,
}
