"""Tatoeba and BUCC 2018: translations by embeddings, scores by labels, and nothing that does not fit together."""

import numpy as np
import pytest

from rembert.errors import UsageError
from tasks.metrics import retrieval
from tasks.xtreme import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.retrieval import Bucc2018, Tatoeba, chosen_languages

TATOEBA, BUCC = Tatoeba(), Bucc2018()


@pytest.fixture
def sample(root):
  return XtremeFolder(root / 'tests' / 'data' / 'xtreme')


@pytest.fixture
def write(tmp_path):
  """Function (**files, None for none) → a folder with one language, de; of BUCC two pairs in each split."""

  def written(**changed: str | None) -> XtremeFolder:
    heap = lambda code: f'{code}-1\terster {code}\n{code}-2\tzweiter {code}\n'
    files: dict[str, str | None] = {
      'tatoeba/de-en.de': 'eins\nzwei\n',
      'tatoeba/de-en.en': 'one\ntwo\n',
      'labels/tatoeba/test-de.tsv': '0\n1\n',
      **{f'bucc2018/de-en.{split}.{code}': heap(code) for split in ('dev', 'test') for code in ('de', 'en')},
      'bucc2018/de-en.dev.gold': 'de-1\ten-1\nde-2\ten-2\n',
      'labels/bucc2018/test-de.tsv': 'de-1\ten-1\n',
    }
    for name, content in changed.items():
      [path] = [path for path in files if path.replace('-', '_').replace('.', '_').replace('/', '_').endswith(name)]
      files[path] = content
    for name, content in files.items():
      if content is not None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding='utf-8')
    return XtremeFolder(tmp_path)

  return written


# --- Tatoeba ----------------------------------------------------------------------------------------------------------


def test_labels_point_at_translations(sample):
  examples = TATOEBA.examples(sample, 'zh')
  translation = dict(zip(examples.source, (examples.english[line] for line in examples.gold), strict=True))
  assert translation['狗在桌子下面睡觉。'] == 'The dog is asleep under the table.'
  assert translation['没有人知道答案。'] == 'Nobody knew the answer.'
  assert list(examples.english) == sorted(examples.english)
  assert TATOEBA.texts(examples) == {'source': examples.source, 'english': examples.english}


@pytest.mark.parametrize('language', ['de', 'sw', 'zh'])
def test_embeddings_that_put_translations_together_score_100(sample, language):
  examples = TATOEBA.examples(sample, language)
  english = np.random.default_rng(0).standard_normal((len(examples.english), 8))
  found = TATOEBA.find(examples, {'source': 3 * english[examples.gold], 'english': english})
  assert found.scores == {'accuracy': 100}
  assert found.lines == tuple(map(str, examples.gold))


def test_the_score_is_the_share_of_sentences_whose_nearest_is_the_translation(sample):
  examples = TATOEBA.examples(sample, 'de')
  random = np.random.default_rng(1)
  source, english = random.standard_normal((2, len(examples.source), 4))
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  nearest = [int(np.argmax(unit(english) @ query)) for query in unit(source)]
  found = TATOEBA.find(examples, {'source': source, 'english': english})
  assert found.lines == tuple(map(str, nearest))
  right = sum(prediction == gold for prediction, gold in zip(nearest, examples.gold, strict=True))
  assert found.scores['accuracy'] == pytest.approx(100 * right / 12)
  assert TATOEBA.chance(examples) == pytest.approx(100 / 12)


def test_without_labels_there_are_predictions_and_no_score(write):
  examples = TATOEBA.examples(write(tatoeba_test_de_tsv=None), 'de')
  assert examples.gold is None
  found = TATOEBA.find(examples, {'source': np.eye(2), 'english': np.eye(2)})
  assert found.lines == ('0', '1')
  assert found.scores is None


# --- which languages ----------------------------------------------------------


def test_all_languages_with_data_are_evaluated_in_order(sample):
  assert chosen_languages(TATOEBA, sample, XtremeConfig(task='tatoeba')) == ('de', 'sw', 'zh')
  asked = XtremeConfig(task='tatoeba', languages=('zh', 'fr'))
  assert chosen_languages(TATOEBA, sample, asked) == ('fr', 'zh')
  with pytest.raises(UsageError, match='a file of the data is missing'):
    TATOEBA.examples(sample, 'fr')


@pytest.mark.parametrize(
  ('fields', 'what'),
  [
    ({'languages': ('de', 'en', 'xx')}, 'tatoeba has no language en, xx'),
    ({'split': 'dev'}, 'tatoeba has no dev split'),
  ],
)
def test_what_the_task_has_not_is_refused(sample, fields, what):
  with pytest.raises(UsageError, match=what):
    chosen_languages(TATOEBA, sample, XtremeConfig(task='tatoeba', **fields))


def test_real_files_are_read(shared_data):
  folder = XtremeFolder(shared_data / 'xtreme')
  languages = chosen_languages(TATOEBA, folder, XtremeConfig(task='tatoeba'))
  assert len(languages) >= 20
  for language in languages:
    examples = TATOEBA.examples(folder, language)
    assert sorted(examples.gold.tolist()) == list(range(len(examples.english)))


# --- BUCC 2018 --------------------------------------------------------------------------------------------------------


def by_translation(split):
  """Embeddings of a split's sentences: translations are the same, everything else is at right angles."""
  partner = dict(split.gold)
  axes = {name: axis for axis, name in enumerate(dict.fromkeys(partner.get(i, i) for i in split.source))}
  axes |= {name: axis for axis, name in enumerate((n for n in split.english if n not in axes), len(axes))}
  directions = np.eye(len(axes))
  return directions[[axes[partner.get(i, i)] for i in split.source]], directions[[axes[i] for i in split.english]]


def embedded(examples):
  found = {}
  for name in ('dev', 'test'):
    found[f'{name}.source'], found[f'{name}.english'] = by_translation(getattr(examples, name))
  return found


def test_ids_sentences_and_pairs_are_read(sample):
  examples = BUCC.examples(sample, 'fr')
  assert (len(examples.dev.source), len(examples.test.source)) == (7, 9)
  assert (len(examples.dev.gold), len(examples.test.gold)) == (5, 7)
  pairs = {examples.dev.source[left]: examples.dev.english[right] for left, right in examples.dev.gold}
  assert pairs['Le chien dort sous la table.'] == 'The dog is asleep under the table.'


@pytest.mark.parametrize('language', ['de', 'fr', 'zh'])
def test_embeddings_that_put_translations_together_find_the_pairs(sample, language):
  examples, told = BUCC.examples(sample, language), []
  found = BUCC.find(examples, embedded(examples), told.append)
  assert told == sorted(told)  # progress goes over both splits
  assert told[-1] == 1
  assert {tuple(line.split('\t')) for line in found.lines} == examples.test.gold
  assert found.scores == {'f1': 100, 'precision': 100, 'recall': 100}
  assert found.notes['dev_f1'] == 100


@pytest.mark.parametrize('seed', range(3))
def test_pairs_of_test_are_those_from_the_best_score_of_dev_on(sample, seed):
  examples = BUCC.examples(sample, 'de')
  random = np.random.default_rng(seed)
  embeddings = {name: random.standard_normal((len(texts), 6)) for name, texts in BUCC.texts(examples).items()}
  scored = {}
  for name in ('dev', 'test'):
    split = getattr(examples, name)
    mined = retrieval.mine(embeddings[f'{name}.source'], embeddings[f'{name}.english'])
    source, english = list(split.source), list(split.english)
    ids = [(source[i], english[j]) for i, j in zip(mined.source, mined.target, strict=True)]
    scored[name] = dict(zip(ids, mined.score, strict=True))
  f1 = {}
  for threshold in scored['dev'].values():
    taken = [pair for pair, score in scored['dev'].items() if score >= threshold]
    f1[threshold] = 2 * len(examples.dev.gold.intersection(taken)) / (len(taken) + len(examples.dev.gold))
  found = BUCC.find(examples, embeddings)
  assert found.notes['dev_f1'] == pytest.approx(100 * max(f1.values()))
  taken = {pair for pair, score in scored['test'].items() if score >= found.notes['threshold']}
  assert {tuple(line.split('\t')) for line in found.lines} == taken
  assert found.notes['pairs'] == len(found.lines)
  right = len(taken & examples.test.gold)
  assert found.scores['f1'] == pytest.approx(200 * right / (len(taken) + len(examples.test.gold)))


def test_a_repeated_sentence_is_searched_once_and_is_in_no_pair(write):
  heap = 'de-1\tzweimal\nde-2\teinmal\nde-3\tzweimal\n'
  examples = BUCC.examples(write(de_en_test_de=heap), 'de')
  assert examples.test.source == {'de-1': 'zweimal', 'de-2': 'einmal', 'de-3': 'zweimal'}
  assert BUCC.texts(examples)['test.source'] == ('zweimal', 'einmal')
  embeddings = dict.fromkeys(BUCC.texts(examples), np.eye(2))
  found = BUCC.find(examples, embeddings)
  assert found.lines == ('de-2\ten-2',)
  assert found.scores == {'f1': 0, 'precision': 0, 'recall': 0}


def test_without_labels_there_are_pairs_and_no_score(write):
  examples = BUCC.examples(write(bucc2018_test_de_tsv=None), 'de')
  found = BUCC.find(examples, dict.fromkeys(BUCC.texts(examples), np.eye(2)))
  assert set(found.lines) == {'de-1\ten-1', 'de-2\ten-2'}
  assert found.scores is None
  assert BUCC.chance(examples) == 0


def test_random_embeddings_find_almost_nothing(sample):
  examples = BUCC.examples(sample, 'zh')
  sources, english, gold = (len(part) for part in (examples.test.source, examples.test.english, examples.test.gold))
  expected_right = gold / english
  precision, recall = expected_right / sources, expected_right / gold
  assert BUCC.chance(examples) == pytest.approx(100 * 2 * precision * recall / (precision + recall))


def test_a_language_without_its_dev_split_is_not_there(write, tmp_path):
  here = write()
  assert chosen_languages(BUCC, here, XtremeConfig(task='bucc2018')) == ('de',)
  (tmp_path / 'bucc2018' / 'de-en.dev.en').unlink()
  with pytest.raises(UsageError, match='there is nothing of bucc2018') as error:
    chosen_languages(BUCC, here, XtremeConfig(task='bucc2018'))
  assert 'tasks.xtreme.download' in error.value.fix[0]


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('task', 'file', 'content', 'what', 'where'),
  [
    (TATOEBA, 'tatoeba_de_en_en', 'x\n', '2 sentences and 1 translations', 'de-en.en'),
    (TATOEBA, 'tatoeba_de_en_de', 'a\n \n', 'a sentence is empty', 'de-en.de:2'),
    (TATOEBA, 'tatoeba_de_en_de', '', 'the file is empty', 'de-en.de:1'),
    (TATOEBA, 'tatoeba_test_de_tsv', '0\n2\n', "'2' is not the number of a line, 0 to 1", 'test-de.tsv:2'),
    (TATOEBA, 'tatoeba_test_de_tsv', '0\n-1\n', "'-1' is not the number of a line", 'test-de.tsv:2'),
    (TATOEBA, 'tatoeba_test_de_tsv', '0\n²\n', "'²' is not the number of a line", 'test-de.tsv:2'),
    (TATOEBA, 'tatoeba_test_de_tsv', '0\n', '1 labels for 2 sentences', 'test-de.tsv'),
    (BUCC, 'de_en_dev_de', 'de-1 ohne\n', 'an id, a tab and a sentence', 'de-en.dev.de:1'),
    (BUCC, 'de_en_dev_de', '\tohne\n', 'an id, a tab and a sentence', 'de-en.dev.de:1'),
    (BUCC, 'de_en_test_en', 'en-1\ta\nen-1\tb\n', 'the id en-1 occurs twice', 'de-en.test.en:2'),
    (BUCC, 'de_en_test_en', 'en-1\ta\nen-2\t \n', 'a sentence is empty', 'de-en.test.en:2'),
    (BUCC, 'dev_gold', 'de-1\ten-1\nde-9\ten-2\n', 'there is no sentence de-9', 'de-en.dev.gold:2'),
    (BUCC, 'dev_gold', 'en-1\tde-1\n', 'there is no sentence en-1', 'de-en.dev.gold:1'),
    (BUCC, 'dev_gold', 'de-1 en-1\n', 'two ids with a tab', 'de-en.dev.gold:1'),
    (BUCC, 'dev_gold', '', 'the file is empty', 'de-en.dev.gold:1'),
  ],
)
def test_malformed_files_are_errors_with_the_line(write, task, file, content, what, where):
  with pytest.raises(UsageError) as error:
    task.examples(write(**{file: content}), 'de')
  assert what in str(error.value)
  assert error.value.where.endswith(where)
