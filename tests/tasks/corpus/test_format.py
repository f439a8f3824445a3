"""A corpus on disk: TensorFlow Datasets and SeqIO read what is written, and what is not whole is an error."""

import hashlib
import json
import subprocess
import sys

import pytest
from made_up_dumps import RIVER, TOWN
from small_corpora import find_parts, sample_corpus

from rembert.errors import UsageError
from rembert.tracking.console import Console
from tasks.corpus.build import CorpusConfig, digest_of, is_held_out, make_corpus
from tasks.corpus.format import open_corpus
from tasks.wikipedia.text import count_sentences


@pytest.fixture(scope='module')
def corpus():
  return sample_corpus(('el', 'sw'))


@pytest.fixture
def of_text(tmp_path):
  """Function (German documents, **options) → their corpus, with that of other text files that are there."""

  def of_text(*documents, folder='corpus', **options):
    file = tmp_path / 'text' / 'de.txt'
    file.parent.mkdir(exist_ok=True)
    file.write_text('\n\n'.join(documents), encoding='utf-8')
    config = CorpusConfig(**{'held_out': 0, 'min_characters': 20} | options)
    return make_corpus(find_parts('text', str(file.parent)), tmp_path / folder, config, Console(is_quiet=True))

  return of_text


def texts_of_tfds(corpus, language, split):
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  builder = tfds.builder_from_directory(str(corpus.folder / 'corpus' / language / '1.0.0'))
  return builder, list(tfds.as_numpy(builder.as_dataset(split=split)))


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_tensorflow_datasets_reads_texts_titles_and_ids_and_counts_them(corpus, split):
  builder, examples = texts_of_tfds(corpus, 'el', split)
  assert builder.info.full_name == 'corpus/el/1.0.0'
  assert builder.info.splits[split].num_examples == len(examples) > 0
  assert [example['text'].decode() for example in examples] == list(corpus.texts('el', split))
  assert all(example['title'] and example['id'].isdigit() for example in examples)


def test_counts_are_those_of_the_texts(corpus):
  for language, counts in corpus.languages.items():
    train, validation = (list(corpus.texts(language, split)) for split in ('train', 'validation'))
    assert (counts.documents, counts.held_out) == (len(train), len(validation))
    assert counts.characters == sum(map(len, train))
    assert counts.sentences == sum(count_sentences(text.split('\n'), language) for text in train)
    assert all(is_held_out(text, 0.1) for text in validation)
    assert not any(is_held_out(text, 0.1) for text in train)


def test_documents_of_a_shard_are_in_the_order_of_their_hashes(of_text):
  corpus = of_text(*(f'{RIVER} {number}.' for number in range(60)), shard_bytes=1500)
  total = len(corpus.shards('de', 'train'))
  assert total == 4
  expected = sorted(
    (digest_of(text) for text in corpus.texts('de', 'train')),
    key=lambda digest: (int.from_bytes(digest[:8], 'big') % total, digest),
  )
  assert [digest_of(text) for text in corpus.texts('de', 'train')] == expected
  builder, examples = texts_of_tfds(corpus, 'de', 'train')
  assert builder.info.splits['train'].num_shards == 4
  assert len(examples) == 60
  few = of_text(RIVER, TOWN, shard_bytes=10, folder='few')  # most shards are empty files, which are read over
  assert len(few.shards('de', 'train')) > 2
  assert sorted(few.texts('de', 'train')) == sorted([RIVER, TOWN])
  assert texts_of_tfds(few, 'de', 'train')[0].info.splits['train'].num_examples == 2


def test_a_language_or_split_without_documents_is_absent_and_tensorflow_datasets_says_so(of_text, tmp_path):
  import seqio

  (tmp_path / 'text').mkdir()
  (tmp_path / 'text' / 'sw.txt').write_text('fupi', encoding='utf-8')
  corpus = of_text(RIVER)
  assert (corpus.languages['sw'].documents, corpus.languages['sw'].lost) == (0, {'too short': 1})
  assert not (corpus.folder / 'corpus' / 'sw').exists()
  assert not list(corpus.texts('sw', 'train'))
  assert corpus.languages['de'].held_out == 0
  assert not corpus.shards('de', 'validation')
  assert not list(corpus.texts('de', 'validation'))
  builder, _ = texts_of_tfds(corpus, 'de', 'train')
  assert set(builder.info.splits) == {'train'}
  source = seqio.TfdsDataSource('corpus/de:1.0.0', tfds_data_dir=str(corpus.folder))
  with pytest.raises(ValueError, match=r"Unknown split 'validation'. Should be one of \['train'\]"):
    source.get_dataset('validation', shuffle=False)


def test_a_sample_is_the_first_texts_that_hold_enough(corpus):
  texts = list(corpus.texts('el', 'train'))
  two = len(texts[0]) + 1
  assert list(corpus.sample('el', 'train', two)) == texts[:2]
  assert list(corpus.sample('el', 'train', 10**9)) == texts
  assert not list(corpus.sample('el', 'train', 0))


def test_the_fingerprint_is_the_checksum_of_the_manifest(corpus):
  content = (corpus.folder / 'corpus.json').read_bytes()
  assert corpus.fingerprint == hashlib.sha256(content).hexdigest()
  manifest = json.loads(content)
  for language in corpus.languages:
    of_files = [hashlib.sha256(shard.read_bytes()).hexdigest() for shard in corpus.shards(language, 'train')]
    assert manifest['languages'][language]['shards']['train'] == of_files


def test_some_languages_of_a_corpus_are_read_alone(corpus):
  assert list(corpus.of_languages(('sw',)).languages) == ['sw']
  with pytest.raises(UsageError, match='no text in xh'):
    corpus.of_languages(('sw', 'xh'))


# --- what is not whole ------------------------------------------------------------------------------------------------


def test_an_unfinished_corpus_is_an_error_that_says_how_far_it_is(corpus, tmp_path):
  (tmp_path / 'statistics').mkdir()
  for name in 'recipe.json', 'statistics/sw.json':
    (tmp_path / name).write_bytes((corpus.folder / name).read_bytes())
  with pytest.raises(UsageError, match='unfinished: 1 languages are done'):
    open_corpus(tmp_path)
  with pytest.raises(UsageError, match='no corpus') as caught:
    open_corpus(tmp_path / 'nowhere')
  assert 'python -m tasks.corpus' in caught.value.fix[0]


@pytest.mark.parametrize('content', ['', '{}', '[]', '{"format": 2, "languages": {}}', '{"format": 1, "languages": 3}'])
def test_a_damaged_manifest_is_an_error_that_names_it(tmp_path, content):
  (tmp_path / 'corpus.json').write_text(content)
  with pytest.raises(UsageError, match='cannot be read') as caught:
    open_corpus(tmp_path)
  assert caught.value.where == str(tmp_path / 'corpus.json')


@pytest.mark.parametrize('damage', [lambda shard: shard.unlink(), lambda shard: shard.write_bytes(b'no records' * 9)])
def test_a_shard_that_is_missing_or_damaged_is_an_error_that_names_it(of_text, damage):
  corpus = of_text(RIVER)
  [shard] = corpus.shards('de', 'train')
  damage(shard)
  with pytest.raises(UsageError, match='a shard of the corpus cannot be read') as caught:
    list(corpus.texts('de', 'train'))
  assert caught.value.where == str(shard)


def test_importing_what_opens_a_corpus_imports_no_tensorflow():
  code = 'import sys, tasks.corpus.build; print({"tensorflow", "seqio", "jax", "apache_beam"} & set(sys.modules))'
  done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
  assert done.stdout.strip() == 'set()'
