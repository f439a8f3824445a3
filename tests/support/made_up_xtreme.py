"""XTREME's files with examples of random words, to be learned by heart: there is no other way to get them right."""

import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

# Two syllables each, and no meaning.
WORDS = tuple(
  first + second
  for first in ('bra', 'den', 'fol', 'gri', 'kam', 'lus', 'mor')
  for second in ('do', 'fin', 'gal', 'min', 'nor', 'sta')
)
NAMES = ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC', 'B-ORG', 'I-ORG')
POS = ('ADJ', 'ADP', 'ADV', 'AUX', 'DET', 'NOUN', 'NUM', 'PRON', 'PROPN', 'VERB')


def write_examples(root: pathlib.Path, task: str, *, count: int, language: str = 'en', seed: int = 0) -> None:
  """Writes the same examples as what is learned, as dev and for evaluation, with gold labels.

  Args:
    root: of the data.
    task: `squad` writes XQuAD's files too.
    count: of examples.
    language: of the files.
    seed: of the words.
  """
  random = np.random.default_rng(seed)
  text = lambda low, high: [WORDS[index] for index in random.integers(0, len(WORDS), random.integers(low, high))]
  _WRITERS[task](root, task, count, language, random, text)


def _pairs(labels: Sequence[str]) -> Callable:
  def write(root, task, count, language, random, text) -> None:
    del random
    # Labels in turn: no sentence tells, and every label comes as often.
    rows = [(' '.join(text(4, 9)), ' '.join(text(4, 9)), labels[number % len(labels)]) for number in range(count)]
    folder = root / task
    folder.mkdir(parents=True)
    for split in ('train', 'dev', 'test'):
      columns = 2 if split == 'test' else 3
      _write(folder / f'{split}-{language}.tsv', ('\t'.join(row[:columns]) for row in rows))
    _write(root / 'labels' / task / f'test-{language}.tsv', (row[2] for row in rows))

  return write


def _tagged(tags: Sequence[str]) -> Callable:
  def write(root, task, count, language, random, text) -> None:
    sentences = [[(word, str(random.choice(tags))) for word in text(4, 9)] for _ in range(count)]
    folder = root / task
    folder.mkdir(parents=True)
    lines = lambda line_of: [line for sentence in sentences for line in (*map(line_of, sentence), '')]
    for split in ('train', 'dev'):
      _write(folder / f'{split}-{language}.tsv', lines('\t'.join))
    _write(folder / f'test-{language}.tsv', lines(lambda pair: pair[0]))
    _write(root / 'labels' / task / f'test-{language}.tsv', lines(lambda pair: pair[1]))

  return write


def _questions(root, task, count, language, random, text) -> None:
  data = []
  for number in range(count):
    words = text(8, 14)  # a window shows all of them, and a question, with any vocabulary
    first = int(random.integers(0, len(words) - 3))
    answer = ' '.join(words[first : first + int(random.integers(1, 4))])
    start = len(' '.join(words[:first])) + (first > 0)
    question = {
      'id': f'q{number}',
      'question': ' '.join(text(3, 6)),
      'answers': [{'text': answer, 'answer_start': start}],
    }
    data.append({'title': f't{number}', 'paragraphs': [{'context': ' '.join(words), 'qas': [question]}]})
  blank = json.loads(json.dumps(data))
  for document in blank:
    document['paragraphs'][0]['qas'][0]['answers'] = [{'text': '', 'answer_start': 0}]
  write = lambda path, data: _write(root / path, [json.dumps({'version': '1.1', 'data': data})])
  if task == 'squad':
    write('squad/train-v1.1.json', data)
    write('squad/dev-v1.1.json', data)
    write(f'xquad/xquad.{language}.json', blank)
    write(f'labels/xquad/test-{language}.json', data)
  else:
    write(f'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json', data)
    write(f'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json', blank)
    write(f'labels/tydiqa/test-{language}.json', data)


_WRITERS = {
  'xnli': _pairs(('contradiction', 'entailment', 'neutral')),
  'pawsx': _pairs(('0', '1')),
  'panx': _tagged(NAMES),
  'udpos': _tagged(POS),
  'squad': _questions,
  'tydiqa': _questions,
}


def _write(path: pathlib.Path, lines) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(f'{line}\n' for line in lines), encoding='utf-8')
