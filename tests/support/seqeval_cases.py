"""Tags with what seqeval 0.0.12 makes of them: precision, recall and F1. The same file for all who have no seqeval.

`make golden` runs this file and writes tests/golden/seqeval.json again. Needs seqeval.
"""

import json
import pathlib
import random
from collections.abc import Iterator
from typing import NamedTuple

GOLDEN_FILE = pathlib.Path(__file__).resolve().parents[1] / 'golden' / 'seqeval.json'
TOLERANCE = 1e-12  # of 1

IOB = ('O', 'B-LOC', 'I-LOC', 'B-ORG', 'I-ORG', 'B-PER', 'I-PER')
PARTS_OF_SPEECH = ('NOUN', 'VERB', 'SCONJ', 'CCONJ', 'SYM', 'INTJ', 'PROPN', 'PRON', 'X', 'ADJ')
OTHERS = ('O', 'B', 'I', 'B-LOC', 'I-LOC', 'E-LOC', 'S-LOC', 'E-PER', 'I-A-LOC', '.', '.-PER', 'L-PER', 'X-O', 'O-PER')
TAG_SETS = (IOB, PARTS_OF_SPEECH, OTHERS)

# One sentence each, gold and predicted.
_CONSTRUCTED = (
  ('B-PER I-PER O', 'B-PER I-PER O'),
  ('B-PER I-PER O', 'B-PER O O'),
  ('B-PER I-PER O', 'I-PER I-PER O'),
  ('B-PER I-PER O', 'O O O'),
  ('O O O', 'B-PER O O'),
  ('O O O', 'O O O'),
  ('B-PER B-PER', 'B-PER I-PER'),
  ('B-PER I-LOC', 'B-PER B-LOC'),
  ('I-LOC I-LOC O I-LOC', 'B-LOC I-LOC O B-LOC'),
  ('NOUN NOUN VERB', 'NOUN NOUN VERB'),
  ('NOUN NOUN VERB', 'NOUN VERB VERB'),
  ('SYM SYM', 'SYM NOUN'),
  ('SCONJ NOUN', 'CCONJ NOUN'),
  ('INTJ INTJ', 'INTJ X'),
  ('', ''),
)


class Corpus(NamedTuple):
  """Tags of sentences, as many in both."""

  gold: list[list[str]]
  predicted: list[list[str]]


def random_corpus(rng: random.Random) -> Corpus:
  """Some short sentences, some empty, with few to many errors, of one of `TAG_SETS` or of some tags of it."""
  tags = rng.choice(TAG_SETS)
  tags = rng.sample(tags, rng.randint(1, len(tags)))
  errors = rng.choice((0.05, 0.3, 1.0))
  gold = [[rng.choice(tags) for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 4))]
  predicted = [[rng.choice(tags) if rng.random() < errors else tag for tag in sentence] for sentence in gold]
  return Corpus(gold, predicted)


def corpora() -> Iterator[Corpus]:
  """What the file has."""
  for gold, predicted in _CONSTRUCTED:
    yield Corpus([gold.split()], [predicted.split()])
  rng = random.Random(0)
  for _ in range(200):
    yield random_corpus(rng)


def seqeval_scores(corpus: Corpus) -> dict[str, float]:
  """What seqeval computes, 0 to 1."""
  from seqeval import metrics

  names = ('precision', 'recall', 'f1')
  return {name: float(getattr(metrics, f'{name}_score')(corpus.gold, corpus.predicted)) for name in names}


def main() -> None:
  """Writes the golden file, a case a line."""
  cases = [json.dumps(corpus._asdict() | seqeval_scores(corpus)) for corpus in corpora()]
  GOLDEN_FILE.write_text('[\n' + ',\n'.join(cases) + '\n]\n')
  print(f'{GOLDEN_FILE.name}: {GOLDEN_FILE.stat().st_size:,} bytes')


if __name__ == '__main__':
  main()
