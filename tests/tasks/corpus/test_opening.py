"""The corpus of a streamed run: named, or made in the workdir once."""

import pytest
from made_up_dumps import RIVER, dump_of, files_of, page
from prepared_datasets import prepare_dataset
from small_corpora import sample_corpus

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from rembert.tracking.console import Console
from tasks.corpus import making
from tasks.corpus.opening import corpus_of, find_corpus

CONSOLE = Console(is_quiet=True)


@pytest.fixture
def dumps(tmp_path):
  folder = tmp_path / 'dumps'
  folder.mkdir()
  (folder / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*(page(f'{n}', f'{RIVER} {n}', n) for n in range(20))))
  return folder


def test_dumps_become_a_corpus_in_the_workdir_once(dumps, tmp_path):
  data = DataConfig(dumps=str(dumps), held_out=0.2, min_characters=20)
  corpus = corpus_of(data, tmp_path / 'run', CONSOLE)
  assert corpus.folder == tmp_path / 'run' / 'corpus'
  assert corpus.languages['de'].documents + corpus.languages['de'].held_out == 20
  before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'run').rglob('*')}
  assert corpus_of(data, tmp_path / 'run', CONSOLE) == corpus
  assert {path: path.stat().st_mtime_ns for path in (tmp_path / 'run').rglob('*')} == before


def test_a_prepared_dataset_becomes_the_corpus_that_its_text_gives(tmp_path):
  documents = [{'title': f'T{n}', 'text': f'{RIVER} {n}'} for n in range(20)]
  prepare_dataset('wikipedia', {'20230601.de': documents}, tmp_path / 'tfds')
  options = {'tfds_data_dir': str(tmp_path / 'tfds'), 'languages': ('de',), 'held_out': 0.2, 'min_characters': 20}
  corpus = corpus_of(DataConfig(source='tfds', **options), tmp_path / 'run', CONSOLE)
  texts = [text for split in ('train', 'validation') for text in corpus.texts('de', split)]
  assert sorted(texts) == sorted(document['text'] for document in documents)
  assert corpus.languages['de'].held_out > 0


def test_a_corpus_that_is_named_is_opened_whatever_the_source(tmp_path):
  named = sample_corpus(('el', 'sw'))
  for source in 'dumps', 'tfds':
    data = DataConfig(source=source, corpus=str(named.folder), languages=('sw',))
    corpus = corpus_of(data, tmp_path, CONSOLE)
    assert (list(corpus.languages), corpus.fingerprint) == (['sw'], named.fingerprint)
  assert not files_of(tmp_path)


def test_what_is_missing_is_an_error_before_anything_is_made(tmp_path):
  for data, words in (
    (DataConfig(dumps=str(tmp_path / 'nowhere')), 'no dump found'),
    (DataConfig(corpus=str(tmp_path / 'nowhere')), 'no corpus'),
    (DataConfig(source='tfds'), 'list of languages'),
  ):
    with pytest.raises(UsageError, match=words):
      find_corpus(data, tmp_path / 'run', CONSOLE)
  assert not files_of(tmp_path)


def test_a_workdir_with_another_corpus_is_refused_with_the_difference(dumps, tmp_path):
  data = DataConfig(dumps=str(dumps), min_characters=20)
  corpus_of(data, tmp_path / 'run', CONSOLE)
  with pytest.raises(UsageError, match='built with different options: min_characters') as caught:
    corpus_of(DataConfig(dumps=str(dumps), min_characters=30), tmp_path / 'run', CONSOLE)
  assert caught.value.where == str(tmp_path / 'run' / 'corpus')


def test_a_large_language_is_refused_with_the_command_for_it(dumps, tmp_path, monkeypatch):
  monkeypatch.setattr(making, 'LARGEST', 100)
  with pytest.raises(UsageError, match='too much text') as caught:
    corpus_of(DataConfig(dumps=str(dumps), languages=('de',), held_out=0.1), tmp_path / 'run', CONSOLE)
  command = f'python -m tasks.corpus --dumps={dumps} --languages=de --held_out=0.1 --min_characters=100 --output=CORPUS'
  assert caught.value.fix[0] == f'{command}; then --gin.data.corpus=CORPUS'


def test_a_store_and_a_corpus_together_are_refused():
  with pytest.raises(UsageError, match=r'data\.corpus names the text to train on'):
    DataConfig(source='store', store='store', corpus='corpus')
