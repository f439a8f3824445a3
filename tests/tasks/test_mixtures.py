"""`import tasks.mixtures` registers all and touches no file; Wikipedia over a corpus, and over a dataset of TFDS."""

import os
import pathlib
import subprocess
import sys

import pytest
from prepared_datasets import prepare_dataset
from small_corpora import corpus_of_dumps, sample_corpus

import tasks
from rembert.data.mixture import sampling_rates
from rembert.errors import UsageError
from tasks import mixtures, registration
from tasks.mixtures import BUCKETS, EDITIONS, CorpusSource, WikipediaSource, add_wikipedia
from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tensorflow_import import tensorflow as tf
from tasks.wikipedia.languages import MC4, REMBERT

# isort: split
import seqio

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


NAME = 'registry_test'


@pytest.fixture(autouse=True)
def no_registrations():
  yield
  registration.remove_ours(NAME)


@pytest.fixture(scope='module')
def corpus():
  return sample_corpus(('de', 'sw', 'zh'))


@pytest.fixture
def added(corpus, xtreme_vocabulary):
  tasks.add_wikipedia(corpus=corpus, vocabulary=xtreme_vocabulary, name=NAME)


# --- over a corpus ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_an_example_is_the_ids_of_a_document_in_the_order_of_the_corpus(split, added, corpus, xtreme_vocabulary):
  vocabulary = RembertVocabulary(xtreme_vocabulary)
  dataset = seqio.get_mixture_or_task(f'{NAME}.sw').get_dataset(None, split, shuffle=False)
  assert dataset.element_spec == {'targets': tf.TensorSpec([None], tf.int32)}
  expected = [vocabulary.encode_tf(text).numpy().tolist() for text in corpus.texts('sw', split)]
  assert [example['targets'].tolist() for example in dataset.as_numpy_iterator()] == expected
  assert expected


def test_a_source_gives_counts_files_and_the_texts_that_tfds_reads(corpus):
  source = CorpusSource(corpus, 'de')
  assert source.num_input_examples('train') == corpus.languages['de'].documents
  assert source.num_input_examples('validation') == corpus.languages['de'].held_out
  assert source.list_shards('train') == [str(shard) for shard in corpus.shards('de', 'train')]
  of_tfds = seqio.TfdsDataSource('corpus/de:1.0.0', tfds_data_dir=str(corpus.folder), read_only=True)
  texts = [
    [x['text'] for x in each.get_dataset('train', shuffle=False).as_numpy_iterator()] for each in (source, of_tfds)
  ]
  assert texts[0] == texts[1]


def test_shuffled_and_sharded_examples_are_the_same_ones(tmp_path, corpus):
  many = corpus_of_dumps('sample', tmp_path, ('de',), held_out=0.1, shard_bytes=4000)
  source = CorpusSource(many, 'de')
  texts = lambda **options: [x['text'] for x in source.get_dataset('train', **options).as_numpy_iterator()]
  ordered, shuffled = texts(shuffle=False), texts(shuffle=True, seed=2)
  assert ordered != shuffled
  assert sorted(ordered) == sorted(shuffled)
  parts = [texts(shuffle=False, shard_info=seqio.ShardInfo(index, 2)) for index in range(2)]
  assert all(parts)
  assert sorted(parts[0] + parts[1]) == sorted(ordered)


def test_rates_of_the_mixtures_follow_the_sentences(added, corpus):
  sentences = {language: counts.sentences for language, counts in corpus.languages.items()}
  expected = sampling_rates(sentences, 0.5)
  for name in (NAME, f'{NAME}.mbert', f'{NAME}.rembert'):
    mixture = seqio.get_mixture_or_task(name)
    assert {task.name: mixture.get_rate(task) for task in mixture.tasks} == {
      f'{NAME}.{language}': rate for language, rate in expected.items()
    }


def test_registering_another_corpus_replaces_the_first_altogether(added, xtreme_vocabulary):
  add_wikipedia(corpus=sample_corpus(('hi', 'ru')).folder, vocabulary=xtreme_vocabulary, name=NAME, max_share=0.6)
  mixture = seqio.get_mixture_or_task(NAME)
  assert [task.name for task in mixture.tasks] == [f'{NAME}.hi', f'{NAME}.ru']
  assert max(mixture.get_rate(task) for task in mixture.tasks) <= 0.6
  assert f'{NAME}.de' not in seqio.TaskRegistry.names()


def test_an_empty_split_is_an_error_that_names_the_others(tmp_path, xtreme_vocabulary):
  add_wikipedia(
    corpus=corpus_of_dumps('sample', tmp_path, ('sw',), held_out=0.0), vocabulary=xtreme_vocabulary, name=NAME
  )
  task = seqio.get_mixture_or_task(f'{NAME}.sw')
  assert task.splits == ('train',)
  with pytest.raises(UsageError, match="no validation documents in 'sw'") as error:
    task.get_dataset(None, 'validation', try_in_mem_cache=False)
  assert 'train' in error.value.fix[0]
  with pytest.raises(UsageError, match='no corpus'):
    add_wikipedia(corpus=tmp_path / 'nothing', name=NAME)


# --- over TFDS --------------------------------------------------------------------------------------------------------

ARTICLES = {
  f'20230601.{language}': [{'title': f'{language} {n}', 'text': f'Article {n} of {language}.'} for n in range(count)]
  for language, count in {'de': 900, 'sw': 400}.items()
}


@pytest.fixture(scope='module')
def tfds_folder(tmp_path_factory):
  return prepare_dataset('wikipedia', ARTICLES, tmp_path_factory.mktemp('tfds'))


@pytest.fixture
def prepared(tfds_folder, monkeypatch):
  """TFDS's default folder; SeqIO remembers builders by name."""
  seqio.set_tfds_data_dir_override(str(tfds_folder))
  monkeypatch.setattr(seqio.LazyTfdsLoader, '_MEMOIZED_BUILDERS', {})
  yield
  seqio.set_tfds_data_dir_override(None)


def texts_of(source, split, **options):
  return [example['text'].decode() for example in source.get_dataset(split, **options).as_numpy_iterator()]


def test_the_only_split_is_divided_by_a_hash_of_the_text(prepared):
  source = WikipediaSource('de')
  train, validation = (texts_of(source, split, shuffle=False) for split in ('train', 'validation'))
  assert sorted([*train, *validation]) == sorted(article['text'] for article in ARTICLES['20230601.de'])
  assert 0 < len(validation) < 5 * len(train) / BUCKETS
  assert sorted(texts_of(source, 'validation', shuffle=True)) == sorted(validation)
  assert source.num_input_examples('train') + source.num_input_examples('validation') == 900
  assert source.num_input_examples('validation') == 900 // BUCKETS  # what is expected of the hash
  # The same text is held out in whatever dataset and order it comes.
  buckets = tf.strings.to_hash_bucket_strong(validation, BUCKETS, (0x72656D62, 0x65727431))
  assert not buckets.numpy().any()


def test_wikipedia_over_tfds_is_registered_without_touching_a_file(monkeypatch):
  monkeypatch.setattr('tensorflow_datasets.builder', lambda *_, **__: pytest.fail('a builder was looked for'))
  add_wikipedia(name=NAME)
  names = {name for name in seqio.TaskRegistry.names() if name.startswith(f'{NAME}.')}
  assert names == {f'{NAME}.{edition}' for edition in {*EDITIONS['mbert'], *EDITIONS['rembert']}}
  assert len(seqio.get_mixture_or_task(f'{NAME}.mbert').tasks) == 103
  assert len(seqio.get_mixture_or_task(f'{NAME}.rembert').tasks) == 102


def test_rates_over_tfds_follow_the_documents(prepared, monkeypatch, xtreme_vocabulary):
  monkeypatch.setattr('tasks.mixtures.EDITIONS', {'mbert': ('de', 'sw'), 'rembert': ('sw',)})
  add_wikipedia(name=NAME, vocabulary=xtreme_vocabulary)
  mixture = seqio.get_mixture_or_task(NAME)
  expected = sampling_rates({'de': 900 - 4, 'sw': 400 - 2}, 0.5)
  assert [mixture.get_rate(task) for task in mixture.tasks] == list(expected.values())
  first = next(seqio.TaskRegistry.get(f'{NAME}.sw').get_dataset(None, 'train', shuffle=False).as_numpy_iterator())
  assert first['targets'].dtype == 'int32'


def test_all_languages_that_are_not_prepared_are_in_one_error(prepared):
  add_wikipedia(name=NAME)
  mixture = seqio.get_mixture_or_task(f'{NAME}.rembert')
  with pytest.raises(UsageError, match=r'wikipedia/20230601\.af is not prepared') as error:
    mixture.get_rate(seqio.TaskRegistry.get(f'{NAME}.de'))
  assert '92 more' in str(error.value)
  assert '20230601.de ' not in str(error.value)
  assert 'TFDS_DATA_DIR' in error.value.where
  assert 'tfds build wikipedia/20230601.af' in error.value.fix[0]
  with pytest.raises(UsageError, match=r'wikipedia/20230601\.en is not prepared'):
    seqio.get_mixture_or_task(f'{NAME}.en').get_dataset(None, 'train')
