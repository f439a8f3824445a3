"""Tatoeba: the right sentence of each side, by the labels, and nothing that does not fit together."""

import numpy as np
import pytest

from rembert.errors import UsageError
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.retrieval import chosen_languages
from tasks.xtreme.tatoeba import LANGUAGES, Tatoeba

TASK = Tatoeba()


@pytest.fixture
def sample(root):
  return XtremeFolder(root / 'tests' / 'data' / 'xtreme')


@pytest.fixture
def folder(tmp_path):
  """Function (source, english, labels=None) → a folder with one language, de."""

  def write(source: str, english: str, labels: str | None = None) -> XtremeFolder:
    (tmp_path / 'tatoeba').mkdir()
    (tmp_path / 'labels' / 'tatoeba').mkdir(parents=True)
    (tmp_path / 'tatoeba' / 'de-en.de').write_text(source, encoding='utf-8')
    (tmp_path / 'tatoeba' / 'de-en.en').write_text(english, encoding='utf-8')
    if labels is not None:
      (tmp_path / 'labels' / 'tatoeba' / 'test-de.tsv').write_text(labels)
    return XtremeFolder(tmp_path)

  return write


def test_there_are_the_36_languages_of_evaluate_py():
  codes = 'af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th tl tr ur vi zh'
  assert sorted(LANGUAGES) == codes.split(' ')


def test_labels_point_at_translations(sample):
  examples = TASK.examples(sample, 'zh')
  translation = dict(zip(examples.source, (examples.english[line] for line in examples.gold), strict=True))
  assert translation['狗在桌子下面睡觉。'] == 'The dog is asleep under the table.'
  assert translation['没有人知道答案。'] == 'Nobody knew the answer.'
  assert list(examples.english) == sorted(examples.english)
  assert TASK.texts(examples) == {'source': examples.source, 'english': examples.english}


@pytest.mark.parametrize('language', ['de', 'sw', 'zh'])
def test_embeddings_that_put_translations_together_score_100(sample, language):
  examples = TASK.examples(sample, language)
  english = np.random.default_rng(0).standard_normal((len(examples.english), 8))
  found = TASK.find(examples, {'source': 3 * english[examples.gold], 'english': english})
  assert found.scores == {'accuracy': 100}
  assert found.lines == tuple(map(str, examples.gold))


def test_the_score_is_the_share_of_sentences_whose_nearest_is_the_translation(sample):
  examples = TASK.examples(sample, 'de')
  random = np.random.default_rng(1)
  source, english = random.standard_normal((2, len(examples.source), 4))
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  nearest = [int(np.argmax(unit(english) @ query)) for query in unit(source)]
  found = TASK.find(examples, {'source': source, 'english': english})
  assert found.lines == tuple(map(str, nearest))
  right = sum(prediction == gold for prediction, gold in zip(nearest, examples.gold, strict=True))
  assert found.scores['accuracy'] == pytest.approx(100 * right / 12)


def test_without_labels_there_are_predictions_and_no_score(folder):
  examples = TASK.examples(folder('eins\nzwei\n', 'one\ntwo\n'), 'de')
  assert examples.gold is None
  found = TASK.find(examples, {'source': np.eye(2), 'english': np.eye(2)})
  assert found.lines == ('0', '1')
  assert found.scores is None


def test_who_guesses_finds_one_in_n(sample):
  assert TASK.chance(TASK.examples(sample, 'sw')) == pytest.approx(100 / 12)


def test_other_line_ends_of_unicode_are_within_a_sentence(folder):
  examples = TASK.examples(folder('a\u2028b\r\nc\n', 'x\ny'), 'de')
  assert examples.source == ('a\u2028b', 'c')


@pytest.mark.parametrize(
  ('files', 'what', 'where'),
  [
    (('a\nb\n', 'x\n'), '2 sentences and 1 translations', 'de-en.en'),
    (('a\n \n', 'x\ny\n'), 'a sentence is empty', 'de-en.de:2'),
    (('', 'x\n'), 'the file is empty', 'de-en.de'),
    (('a\nb\n', 'x\ny\n', '0\n2\n'), "'2' is not the number of a line, 0 to 1", 'test-de.tsv:2'),
    (('a\nb\n', 'x\ny\n', '0\n-1\n'), "'-1' is not the number of a line", 'test-de.tsv:2'),
    (('a\nb\n', 'x\ny\n', '0\n²\n'), "'²' is not the number of a line", 'test-de.tsv:2'),
    (('a\nb\n', 'x\ny\n', '0\n'), '1 labels for 2 sentences', 'test-de.tsv'),
  ],
)
def test_what_does_not_fit_is_told_with_its_line(folder, files, what, where):
  with pytest.raises(UsageError) as error:
    TASK.examples(folder(*files), 'de')
  assert what in str(error.value)
  assert error.value.where.endswith(where)


# --- which languages ----------------------------------------------------------


def test_all_languages_with_data_are_judged_in_order(sample):
  assert chosen_languages(TASK, sample, XtremeConfig(task='tatoeba')) == ('de', 'sw', 'zh')
  asked = XtremeConfig(task='tatoeba', languages=('zh', 'fr'))
  assert chosen_languages(TASK, sample, asked) == ('fr', 'zh')
  with pytest.raises(UsageError, match='a file of the data is missing'):
    TASK.examples(sample, 'fr')


@pytest.mark.parametrize(
  ('fields', 'what'),
  [
    ({'languages': ('de', 'en', 'xx')}, 'tatoeba has no language en, xx'),
    ({'split': 'dev'}, 'tatoeba has no dev split'),
  ],
)
def test_what_the_task_has_not_is_refused(sample, fields, what):
  with pytest.raises(UsageError, match=what):
    chosen_languages(TASK, sample, XtremeConfig(task='tatoeba', **fields))


def test_a_folder_without_the_task_is_refused(tmp_path):
  with pytest.raises(UsageError, match='there is nothing of tatoeba') as error:
    chosen_languages(TASK, XtremeFolder(tmp_path), XtremeConfig(task='tatoeba'))
  assert 'tasks.xtreme.download' in error.value.fix[0]


def test_real_files_are_read(shared_data):
  folder = XtremeFolder(shared_data / 'xtreme')
  languages = chosen_languages(TASK, folder, XtremeConfig(task='tatoeba'))
  assert len(languages) >= 20
  for language in languages:
    examples = TASK.examples(folder, language)
    assert sorted(examples.gold.tolist()) == list(range(len(examples.english)))
