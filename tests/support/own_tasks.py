"""The directory that docs/guides/seqio.md takes for granted: its module, texts of two courts and a vocabulary."""

import pathlib
import re

from small_corpora import sample_corpus

from tasks.vocabulary import sample_text, train_vocabulary

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'seqio.md'
MODULE = 'my_tasks'


def python_of_the_page(word: str, page: pathlib.Path = PAGE) -> str:
  """The one block of Python on a page that holds a word."""
  blocks = re.findall(r'^```python\n(.*?)^```', page.read_text(encoding='utf-8'), re.MULTILINE | re.DOTALL)
  [block] = [block for block in blocks if word in block]
  return block


def write_own_tasks(folder: pathlib.Path) -> None:
  """`my_tasks.py`, and `law` with lines of the sample corpus and a vocabulary of 1,500 tokens."""
  corpus = sample_corpus(('de', 'en'))
  (folder / 'law').mkdir()
  (folder / f'{MODULE}.py').write_text(python_of_the_page('TaskRegistry.add'))
  for court, language in (('high', 'de'), ('low', 'en')):
    lines = [text.replace('\n', ' ') for text in corpus.texts(language, 'train')]
    for part in range(2):
      (folder / f'law/{court}-{part}.txt').write_text('\n'.join(['short', *lines[part:30:2]]) + '\n')
    (folder / f'law/{court}.dev.txt').write_text('\n'.join(lines[30:33]) + '\n')
  texts = sample_text(corpus, dict.fromkeys(corpus.languages, 40_000))
  train_vocabulary(texts, folder / 'law/sentencepiece.model', size=1500, threads=2)
