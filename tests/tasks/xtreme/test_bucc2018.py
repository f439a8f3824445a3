"""BUCC 2018: pairs from two heaps, by a threshold that the dev pairs gave."""

import numpy as np
import pytest

from rembert.errors import UsageError
from tasks.metrics import retrieval
from tasks.xtreme.bucc2018 import LANGUAGES, Bucc2018, Heap
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.retrieval import chosen_languages

TASK = Bucc2018()


@pytest.fixture
def sample(root):
  return XtremeFolder(root / 'tests' / 'data' / 'xtreme')


@pytest.fixture
def folder(tmp_path):
  """Function (**files) → a folder with one language, de: two pairs in each split, unless a file says otherwise."""

  def write(**files: str) -> XtremeFolder:
    heap = lambda code: f'{code}-1\terster {code}\n{code}-2\tzweiter {code}\n'
    content = {
      'bucc2018/de-en.dev.de': heap('de'),
      'bucc2018/de-en.dev.en': heap('en'),
      'bucc2018/de-en.dev.gold': 'de-1\ten-1\nde-2\ten-2\n',
      'bucc2018/de-en.test.de': heap('de'),
      'bucc2018/de-en.test.en': heap('en'),
      'labels/bucc2018/test-de.tsv': 'de-1\ten-1\n',
    } | {f'bucc2018/de-en.{name.replace("_", ".")}': text for name, text in files.items()}
    for name, text in content.items():
      path = tmp_path / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text, encoding='utf-8')
    return XtremeFolder(tmp_path)

  return write


def by_translation(split):
  """Embeddings of a split's sentences: translations are the same, everything else is at right angles."""
  partner = dict(split.gold)
  axes = {name: axis for axis, name in enumerate(dict.fromkeys(partner.get(i, i) for i in split.source.ids))}
  axes |= {name: axis for axis, name in enumerate((n for n in split.english.ids if n not in axes), len(axes))}
  directions = np.eye(len(axes))
  return directions[[axes[partner.get(i, i)] for i in split.source.ids]], directions[
    [axes[i] for i in split.english.ids]
  ]


def embedded(examples):
  found = {}
  for name in ('dev', 'test'):
    found[f'{name}.source'], found[f'{name}.english'] = by_translation(getattr(examples, name))
  return found


def test_there_are_the_4_languages_of_evaluate_py():
  assert sorted(LANGUAGES) == ['de', 'fr', 'ru', 'zh']


def test_ids_sentences_and_pairs_are_read(sample):
  examples = TASK.examples(sample, 'fr')
  assert (len(examples.dev.source.ids), len(examples.test.source.ids)) == (7, 9)
  assert (len(examples.dev.gold), len(examples.test.gold)) == (5, 7)
  sentence = dict(zip(examples.dev.source.ids, examples.dev.source.sentences, strict=True))
  english = dict(zip(examples.dev.english.ids, examples.dev.english.sentences, strict=True))
  pairs = {sentence[left]: english[right] for left, right in examples.dev.gold}
  assert pairs['Le chien dort sous la table.'] == 'The dog is asleep under the table.'


@pytest.mark.parametrize('language', ['de', 'fr', 'zh'])
def test_embeddings_that_put_translations_together_find_the_pairs(sample, language):
  examples = TASK.examples(sample, language)
  found = TASK.find(examples, embedded(examples))
  assert {tuple(line.split('\t')) for line in found.lines} == examples.test.gold
  assert found.scores == {'f1': 100, 'precision': 100, 'recall': 100}
  assert found.notes['dev_f1'] == 100


@pytest.mark.parametrize('seed', range(3))
def test_pairs_of_test_are_those_from_the_best_score_of_dev_on(sample, seed):
  examples = TASK.examples(sample, 'de')
  random = np.random.default_rng(seed)
  embeddings = {name: random.standard_normal((len(texts), 6)) for name, texts in TASK.texts(examples).items()}
  scored = {}
  for name in ('dev', 'test'):
    split = getattr(examples, name)
    mined = retrieval.mine(embeddings[f'{name}.source'], embeddings[f'{name}.english'])
    ids = [(split.source.ids[i], split.english.ids[j]) for i, j in zip(mined.source, mined.target, strict=True)]
    scored[name] = dict(zip(ids, mined.score, strict=True))
  f1 = {}
  for threshold in scored['dev'].values():
    taken = [pair for pair, score in scored['dev'].items() if score >= threshold]
    f1[threshold] = 2 * len(examples.dev.gold.intersection(taken)) / (len(taken) + len(examples.dev.gold))
  found = TASK.find(examples, embeddings)
  assert found.notes['dev_f1'] == pytest.approx(100 * max(f1.values()))
  taken = {pair for pair, score in scored['test'].items() if score >= found.notes['threshold']}
  assert {tuple(line.split('\t')) for line in found.lines} == taken
  assert found.notes['pairs'] == len(found.lines)
  right = len(taken & examples.test.gold)
  assert found.scores['f1'] == pytest.approx(200 * right / (len(taken) + len(examples.test.gold)))


def test_a_repeated_sentence_is_searched_once_and_is_in_no_pair(folder):
  heap = 'de-1\tzweimal\nde-2\teinmal\nde-3\tzweimal\n'
  examples = TASK.examples(folder(test_de=heap), 'de')
  assert examples.test.source == Heap(('de-1', 'de-2', 'de-3'), ('zweimal', 'einmal', 'zweimal'))
  assert TASK.texts(examples)['test.source'] == ('zweimal', 'einmal')
  embeddings = dict.fromkeys(TASK.texts(examples), np.eye(2))
  found = TASK.find(examples, embeddings)
  assert found.lines == ('de-2\ten-2',)
  assert found.scores == {'f1': 0, 'precision': 0, 'recall': 0}


def test_without_labels_there_are_pairs_and_no_score(folder, tmp_path):
  here = folder()
  (tmp_path / 'labels' / 'bucc2018' / 'test-de.tsv').unlink()
  examples = TASK.examples(here, 'de')
  found = TASK.find(examples, dict.fromkeys(TASK.texts(examples), np.eye(2)))
  assert set(found.lines) == {'de-1\ten-1', 'de-2\ten-2'}
  assert found.scores is None
  assert TASK.chance(examples) == 0


def test_who_guesses_finds_next_to_nothing(sample):
  examples = TASK.examples(sample, 'zh')
  sources, english, gold = (
    len(part) for part in (examples.test.source.ids, examples.test.english.ids, examples.test.gold)
  )
  expected_right = gold / english
  precision, recall = expected_right / sources, expected_right / gold
  assert TASK.chance(examples) == pytest.approx(100 * 2 * precision * recall / (precision + recall))


def test_progress_goes_over_both_splits(sample):
  told = []
  examples = TASK.examples(sample, 'de')
  TASK.find(examples, embedded(examples), told.append)
  assert told == sorted(told)
  assert told[-1] == 1


def test_a_language_without_its_dev_split_is_not_there(folder, tmp_path):
  here = folder()
  assert chosen_languages(TASK, here, XtremeConfig(task='bucc2018')) == ('de',)
  (tmp_path / 'bucc2018' / 'de-en.dev.en').unlink()
  with pytest.raises(UsageError, match='there is nothing of bucc2018'):
    chosen_languages(TASK, here, XtremeConfig(task='bucc2018'))


def test_the_digest_tells_other_data(folder):
  digests = {
    TASK.digest(TASK.examples(folder(**files), 'de'))
    for files in (
      {},
      {'dev_gold': 'de-1\ten-1\n'},
      {'test_de': 'de-1\terster\nde-2\tzweiter\n'},
      {'test_de': 'de-2\terster\nde-1\tzweiter\n'},
    )
  }
  assert len(digests) == 4


@pytest.mark.parametrize(
  ('files', 'what', 'where'),
  [
    ({'dev_de': 'de-1 ohne\n'}, 'an id, a tab and a sentence', 'de-en.dev.de:1'),
    ({'dev_de': '\tohne\n'}, 'an id, a tab and a sentence', 'de-en.dev.de:1'),
    ({'test_en': 'en-1\ta\nen-1\tb\n'}, 'the id en-1 occurs twice', 'de-en.test.en:2'),
    ({'test_en': 'en-1\ta\nen-2\t \n'}, 'a sentence is empty', 'de-en.test.en:2'),
    ({'dev_gold': 'de-1\ten-1\nde-9\ten-2\n'}, 'there is no sentence de-9', 'de-en.dev.gold:2'),
    ({'dev_gold': 'en-1\tde-1\n'}, 'there is no sentence en-1', 'de-en.dev.gold:1'),
    ({'dev_gold': 'de-1 en-1\n'}, 'two ids with a tab', 'de-en.dev.gold:1'),
    ({'dev_gold': ''}, 'the file is empty', 'de-en.dev.gold'),
  ],
)
def test_what_does_not_fit_is_told_with_its_line(folder, files, what, where):
  with pytest.raises(UsageError, match=what) as error:
    TASK.examples(folder(**files), 'de')
  assert error.value.where.endswith(where)
