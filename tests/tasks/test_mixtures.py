"""`import tasks.mixtures` registers everything and touches nothing; `import tasks` is light."""

import os
import pathlib
import subprocess
import sys

import pytest
from small_corpora import sample_corpus

import tasks
from tasks import mixtures
from tasks.mixtures import add_wikipedia
from tasks.wikipedia.languages import MC4, REMBERT

ROOT = pathlib.Path(__file__).parent.parent.parent


def run(code, tmp_path, **environment):
  return subprocess.run(
    [sys.executable, '-c', code],
    cwd=tmp_path,
    env=os.environ | {'PYTHONPATH': str(ROOT), 'TFDS_DATA_DIR': str(tmp_path / 'none'), **environment},
    capture_output=True,
    text=True,
    timeout=180,
    check=False,
  )


def test_importing_tasks_alone_is_light(tmp_path):
  code = 'import sys, tasks\nassert not {"tensorflow", "seqio", "jax", "numpy"} & set(sys.modules)'
  result = run(code, tmp_path)
  assert result.returncode == 0, result.stderr


@pytest.mark.slow  # TensorFlow in a process of its own
def test_importing_mixtures_registers_without_data_and_replaces_nothing_of_the_user(tmp_path, xtreme_vocabulary):
  code = (
    'import os, tasks\n'
    'os.environ.pop("REMBERT_VOCABULARY", None)\n'
    'tasks.add_wikipedia(corpus=CORPUS, vocabulary=VOCABULARY, name="mine")\n'
    'tasks.add_wikipedia(corpus=CORPUS, vocabulary=VOCABULARY)\n'
    'import tasks.mixtures, seqio\n'
    'names = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}\n'
    'wanted = {"wikipedia.de", "mine.de", "mc4.sw", "rembert.pretraining", "xtreme.xnli.de"}\n'
    'assert wanted <= names, wanted - names\n'
    'print([task.name for task in seqio.get_mixture_or_task("wikipedia").tasks])\n'
    'from rembert.errors import UsageError\n'
    'try: seqio.get_mixture_or_task("mc4.sw").get_dataset(None, "train")\n'
    'except UsageError as error: print(error)\n'
  )
  folder = sample_corpus(('de', 'sw')).folder
  code = code.replace('CORPUS', repr(str(folder)))
  code = code.replace('=VOCABULARY', f'={str(xtreme_vocabulary)!r}')
  result = run(code, tmp_path)
  assert result.returncode == 0, result.stderr
  assert "['wikipedia.de', 'wikipedia.sw']" in result.stdout
  assert 'c4/multilingual is not prepared' in result.stdout
  assert str(tmp_path / 'none') in result.stdout
  assert not list(tmp_path.iterdir())


def test_add_wikipedia_takes_what_the_registry_takes(xtreme_vocabulary):
  import seqio

  try:
    tasks.add_wikipedia(corpus=sample_corpus(('de', 'sw')), vocabulary=xtreme_vocabulary, alpha=1.0)
    mixture = seqio.get_mixture_or_task('wikipedia')
    sentences = {
      f'wikipedia.{code}': counts.sentences for code, counts in sample_corpus(('de', 'sw')).languages.items()
    }
    total = sum(sentences.values())
    rates = {task.name: mixture.get_rate(task) for task in mixture.tasks}
    assert rates == pytest.approx({name: count / total for name, count in sentences.items()})
  finally:
    add_wikipedia()


def test_the_languages_of_mc4_are_those_of_tfds():
  from tensorflow_datasets.text import c4

  assert set(MC4) == {language for language in c4.MC4_LANGUAGES if language != 'und'}


def test_pretraining_joins_both_texts_of_each_language():
  language_of = mixtures.pretraining_tasks()
  assert language_of['wikipedia.he'] == language_of['mc4.iw'] == 'he'
  assert language_of['wikipedia.tl'] == language_of['mc4.fil'] == 'tl'
  assert language_of['wikipedia.zh'] == language_of['mc4.zh'] == 'zh'
  assert 'mc4.bs' not in language_of
  assert {'wikipedia.bs', 'mc4.hmn', 'mc4.bg_Latn'} <= set(language_of)
  assert len(set(language_of.values())) == len(REMBERT) - 1  # Chinese is two of its codes


def test_pretraining_samples_languages_by_the_root_of_their_documents_and_documents_equally():
  language_of = {'wikipedia.he': 'he', 'mc4.iw': 'he', 'wikipedia.de': 'de', 'mc4.hmn': 'hmn'}
  rates = mixtures.pretraining_rates({'wikipedia.he': 1, 'mc4.iw': 3, 'wikipedia.de': 16, 'mc4.hmn': 0}, language_of)
  assert rates == pytest.approx({'wikipedia.he': 2 / 6 / 4, 'mc4.iw': 2 / 6 * 3 / 4, 'wikipedia.de': 4 / 6})
