"""XTREME's layout from datasets of TensorFlow Datasets, for those who have them prepared or can prepare them.

The texts are those of XTREME, and their order is TFDS's own: scores are comparable, files of predictions for the
leaderboard are not. Where TFDS has other examples than XTREME, `NOTES` says so, and the inventory counts them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rembert.errors import UsageError, first_line
from tasks.xtreme import convert as conversion
from tasks.xtreme.convert import NLI_LABELS, Converted, blanked_test_files, json_text, pairs_files, tagging_files
from tasks.xtreme.verify import LANGUAGES

tatoeba = SimpleNamespace(files_of=conversion.tatoeba_files)
tydiqa = SimpleNamespace(train_files=conversion.tydiqa_train_files, dev_path=conversion.tydiqa_dev_path)

# Name and split of a dataset to its examples, as NumPy.
Rows = Callable[[str, str], Iterable[Mapping[str, Any]]]

NOTES = {
  'pawsx': 'TFDS reads PAWS-X with CSV quotes, and leaves out rows without a label: some hundred pairs fewer',
  'panx': 'TFDS keeps empty tokens, which are left out here',
  'udpos': 'TFDS keeps the words of multiword tokens apart, and mixes in treebanks of other languages (Ancient Greek, '
  'Classical Chinese, Old French, Swiss German): these are not XTREME’s sentences',
}
NOT_PREPARED = {
  'bucc2018': 'TFDS has the pairs alone, without the sentences that they are to be found among',
}

# TFDS has the names of these two the wrong way round: its `ta` reads the Tagalog treebank, its `tl` the Tamil one.
_UDPOS_CODES = {'ta': 'tl', 'tl': 'ta'}
_WITHOUT_DEV = ('kk', 'th', 'tl', 'yo')
_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_NLI = ('entailment', 'neutral', 'contradiction')
_NER = ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC')
_TAGS = 'ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X _'
_UPOS = tuple(_TAGS.split())


def tfds_rows(data_dir: str | None) -> Rows:
  """Examples of TFDS's datasets; one that is not prepared in `data_dir` is fetched and prepared by TFDS.

  Raises (when called):
    UsageError: TFDS has not got it, or cannot prepare it.
  """
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  def rows(name: str, split: str) -> Iterator[Mapping[str, Any]]:
    try:
      try:
        builder = tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir)
      except tfds.core.registered.DatasetNotFoundError:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
      dataset = builder.as_dataset(split=split, shuffle_files=False)
    except Exception as error:  # TFDS raises whatever its file systems, parsers and downloads raise
      raise UsageError(
        f'TensorFlow Datasets cannot give {name}, split {split}: {first_line(error)}',
        where=f'--tfds_data_dir={data_dir or "~/tensorflow_datasets"}',
        fix=f'prepare it first (tfds build {name}), or leave out --from_tfds',
      ) from error
    yield from tfds.as_numpy(dataset)

  return rows


def convert(task: str, rows: Rows) -> Iterator[Converted]:
  """Files of a task.

  Raises:
    UsageError: TFDS has not got what the task needs.
  """
  if task not in _CONVERSIONS:
    why = NOT_PREPARED.get(task, 'nobody has said how')
    raise UsageError(f'{task} cannot be made from TFDS: {why}', where='--from_tfds', fix='leave it out')
  yield from _CONVERSIONS[task](rows)


def _xnli(rows: Rows) -> Iterator[Converted]:
  assert set(_NLI) == set(NLI_LABELS)
  # XNLI's own builder has dev and test in all languages at once, XTREME's the training pairs with their translations.
  for split, name in (('dev', 'xnli'), ('test', 'xnli'), ('train', 'xtreme_xnli')):
    by_language: dict[str, list] = {}
    for row in rows(name, _SPLITS[split]):
      hypotheses = dict(zip(map(_text, row['hypothesis']['language']), row['hypothesis']['translation'], strict=True))
      for language in ('en',) if split == 'train' else LANGUAGES['xnli']:
        pair = _text(row['premise'][language]), _text(hypotheses[language]), _NLI[row['label']]
        by_language.setdefault(language, []).append(pair)
    for language, pairs in by_language.items():
      yield from pairs_files('xnli', split, language, pairs)


def _pawsx(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['pawsx']:
    for split in ('train', 'dev', 'test') if language == 'en' else ('dev', 'test'):
      examples = rows(f'paws_x_wiki/{language}', _SPLITS[split])
      pairs = [(_text(row['sentence1']), _text(row['sentence2']), str(int(row['label']))) for row in examples]
      yield from pairs_files('pawsx', split, language, pairs)


def _panx(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['panx']:
    for split in _SPLITS:
      sentences = [_tagged(row['tokens'], row['tags'], _NER) for row in rows(f'wikiann/{language}', _SPLITS[split])]
      yield from tagging_files('panx', split, language, filter(None, sentences))


def _udpos(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['udpos']:
    name = f'xtreme_pos/xtreme_pos_{_UDPOS_CODES.get(language, language)}'
    splits = ['train', 'test'] if language == 'kk' else ['test'] if language in _WITHOUT_DEV else list(_SPLITS)
    for split in splits:
      sentences = [_tagged(row['tokens'], row['upos'], _UPOS) for row in rows(name, _SPLITS[split])]
      yield from tagging_files('udpos', split, language, filter(None, sentences))


def _tagged(tokens, tags, names: tuple[str, ...]) -> list[tuple[str, str]]:
  pairs = [(''.join(_text(token).split()), names[tag]) for token, tag in zip(tokens, tags, strict=True)]
  return [(token.replace('\u200c', '') or token, tag) for token, tag in pairs if token]


def _squad(rows: Rows) -> Iterator[Converted]:
  for split in ('train', 'dev'):
    content = _questions(rows('squad/v1.1', _SPLITS[split]))
    yield Converted(f'squad/{split}-v1.1.json', json_text(content))


def _xquad(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['xquad']:
    content = _questions(rows(f'xquad/{language}', 'test'))
    yield from blanked_test_files(content, f'xquad/{language}', f'xquad/xquad.{language}.json', 'xquad', language)


def _mlqa(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['mlqa']:
    path = 'mlqa/MLQA_V1/{0}/{0}-context-{1}-question-{1}.json'
    yield Converted(path.format('dev', language), json_text(_questions(rows(f'mlqa/{language}', 'validation'))))
    content = _questions(rows(f'mlqa/{language}', 'test'))
    yield from blanked_test_files(content, f'mlqa/{language}', path.format('test', language), 'mlqa', language)


def _tydiqa(rows: Rows) -> Iterator[Converted]:
  yield from tydiqa.train_files(_questions(rows('tydi_qa/goldp', 'train')), 'tydi_qa/goldp:train')
  for language in LANGUAGES['tydiqa']:
    split = f'validation-{language}'
    content = _questions(rows('tydi_qa/goldp', split))
    yield from blanked_test_files(content, f'tydi_qa/goldp:{split}', tydiqa.dev_path(language), 'tydiqa', language)


def _tatoeba(rows: Rows) -> Iterator[Converted]:
  for language in LANGUAGES['tatoeba']:
    pairs = [
      (_text(row['source_sentence']).strip(), _text(row['target_sentence']).strip())
      for row in rows(f'tatoeba/tatoeba_{language}', 'train')
    ]
    yield from tatoeba.files_of(language, [source for source, _ in pairs], [english for _, english in pairs])


def _questions(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
  """A file of SQuAD's form; paragraphs of one context are together, in the order they first come in."""
  articles: dict[str, dict[str, list]] = {}
  for row in rows:
    answers = [
      {'answer_start': int(begin), 'text': _text(text)}
      for begin, text in zip(row['answers']['answer_start'], row['answers']['text'], strict=True)
    ]
    question = {'answers': answers, 'question': _text(row['question']), 'id': _text(row['id'])}
    articles.setdefault(_text(row['title']), {}).setdefault(_text(row['context']), []).append(question)
  return {
    'data': [
      {'title': title, 'paragraphs': [{'context': context, 'qas': qas} for context, qas in paragraphs.items()]}
      for title, paragraphs in articles.items()
    ],
    'version': '1.1',
  }


def _text(value: Any) -> str:
  return value.decode() if isinstance(value, bytes) else str(value)


_CONVERSIONS: dict[str, Callable[[Rows], Iterator[Converted]]] = {
  'xnli': _xnli,
  'pawsx': _pawsx,
  'panx': _panx,
  'udpos': _udpos,
  'squad': _squad,
  'xquad': _xquad,
  'mlqa': _mlqa,
  'tydiqa': _tydiqa,
  'tatoeba': _tatoeba,
}
