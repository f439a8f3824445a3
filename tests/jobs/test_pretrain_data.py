"""The data of pre-training: results are kept in the workdir, changes are noticed, and missing data is one error."""

import dataclasses
import hashlib
import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import rich.console
import sentencepiece
from etils import epath

from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
from rembert.data.masking import MaskingConfig
from rembert.data.mixture import sampling_rates
from rembert.errors import UsageError
from rembert.jobs.pretrain_data import OpenedData, open_data
from rembert.tracking.console import Console
from tasks.corpus.format import open_corpus
from tasks.corpus.sources import find_parts

DATA = DataConfig(languages=('en', 'sw'), held_out=0.1)
VOCABULARY = VocabularyConfig(sample_characters=100_000)
SIZE = 1500
SPECIAL_AND_BYTES = 315 + 256


@dataclasses.dataclass
class Opened:
  """A stream, and the output while it was opened."""

  stream: OpenedData
  said: str
  workdir: pathlib.Path

  def file(self, name):
    return self.workdir / name

  def kept(self):
    """What opening left in the workdir: content and time of change of each file."""
    files = (path for path in self.workdir.rglob('*') if path.is_file())
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def opened(workdir, data=DATA, vocabulary=VOCABULARY, size=SIZE, masking=MaskingConfig()):
  text = io.StringIO()
  request = DataRequest(
    data,
    batch_size=4,
    sequence_length=64,
    vocab_size=size,
    evaluation_rows=4,
    vocabulary=vocabulary,
    masking=masking,
  )
  console = Console(console=rich.console.Console(file=text, width=200))
  stream = open_data(request, workdir=epath.Path(workdir), console=console)
  return Opened(stream, text.getvalue(), workdir)


@pytest.fixture(scope='module')
def first(tmp_path_factory):
  """The corpus, opened in a workdir that was empty."""
  return opened(tmp_path_factory.mktemp('run'))


@pytest.fixture(scope='module')
def smaller(first, tmp_path_factory):
  """The same corpus with a smaller vocabulary."""
  workdir = tmp_path_factory.mktemp('smaller')
  _copy_kept(first, workdir)
  return opened(workdir, size=1400)


def assert_same_batches(opening, other):
  assert opening.stream.identity == other.stream.identity
  left, right = (next(each.stream.batches.batches(3, None))[0] for each in (opening, other))
  assert left.keys() == right.keys()
  for name in left:
    np.testing.assert_array_equal(left[name], right[name])


# --- the first opening -----------------------------------------------------------------------------------------------


def test_opening_leaves_a_corpus_a_vocabulary_and_an_identity_of_both_and_the_rates(first):
  for words in ('making the corpus', 'training a vocabulary of 1,500 tokens', 'opening 2 SeqIO task', 'sampled'):
    assert words in first.said
  languages = open_corpus(first.file('corpus')).languages
  assert set(languages) == {'en', 'sw'}
  sentences = {language: counts.sentences for language, counts in languages.items()}
  assert first.stream.batches.rates == sampling_rates(sentences, DATA.alpha)
  assert str(first.stream.vocabulary) == str(first.file('vocabulary/sentencepiece.model'))
  processor = sentencepiece.SentencePieceProcessor(model_file=str(first.stream.vocabulary))
  assert processor.get_piece_size() == SIZE
  assert processor.piece_to_id('[MASK]') == first.stream.batches.special.mask == 314
  digest = hashlib.sha256(first.stream.vocabulary.read_bytes()).hexdigest()
  rates = first.stream.batches.rates
  corpus = hashlib.sha256(first.file('corpus/corpus.json').read_bytes()).hexdigest()
  expected = {'corpus': corpus, 'vocabulary': digest, 'tasks': ['wikipedia.en', 'wikipedia.sw']}
  expected |= {'rate of en': rates['en'], 'rate of sw': rates['sw']}
  assert json.loads(json.dumps(first.stream.identity)) == expected


def test_batches_hold_the_text_of_both_languages(first):
  source = first.stream.batches
  batches = source.batches(0, None)
  languages = np.concatenate([next(batches)[0]['language'] for _ in range(8)])
  assert set(languages) == {0, 1}
  batch, state = next(batches)
  batches.close()
  assert batch['input_ids'].shape == (4, 64)
  assert batch['input_ids'].max() < SIZE
  assert set(state) == {'en', 'sw'}
  assert [row.sum() > 0 for row in batch['weights']] == [True] * 4


def test_held_out_rows_are_of_held_out_documents(first):
  processor = sentencepiece.SentencePieceProcessor(model_file=str(first.stream.vocabulary))
  corpus = open_corpus(first.file('corpus'))
  beginnings = {
    tuple(processor.encode(text)[:12]): split == 'validation'
    for language in DATA.languages
    for split in ('train', 'validation')
    for text in corpus.texts(language, split)
  }
  batch = next(first.stream.batches.evaluation_batches())
  chosen = batch['weights'][0] > 0
  ids = batch['input_ids'][0].copy()
  ids[batch['masked_positions'][0][chosen]] = batch['targets'][0][chosen]
  assert beginnings[tuple(ids[1:13])]


# --- a later opening -------------------------------------------------------------------------------------------------


def test_a_second_opening_or_of_a_corpus_by_name_makes_nothing_again_and_gives_the_same_batches(first, tmp_path):
  before = first.kept()
  assert {'corpus.json', 'sentencepiece.model', 'origin.json'} < set(before)
  second = opened(first.workdir)
  assert second.kept() == before
  assert 'making the corpus' not in second.said
  assert 'training a vocabulary' not in second.said
  assert_same_batches(first, second)
  named = opened(tmp_path, dataclasses.replace(DATA, corpus=str(first.file('corpus'))))
  assert not (tmp_path / 'corpus').exists()
  assert_same_batches(first, named)


def test_the_workdir_keeps_to_one_corpus_and_another_is_another_identity(first, tmp_path):
  for change in ({'held_out': 0.3}, {'min_characters': 1300}, {'languages': ('sw',)}):
    with pytest.raises(UsageError, match='built with different options'):
      opened(first.workdir, dataclasses.replace(DATA, **change))
  _copy_kept(first, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'corpus')
  other = opened(tmp_path / 'run', dataclasses.replace(DATA, languages=('sw',)))
  assert 'training a vocabulary' in other.said  # the one that is there was trained on another corpus
  assert other.stream.identity['corpus'] != first.stream.identity['corpus']


def test_another_vocabulary_is_trained_on_the_same_corpus(first, smaller, tmp_path):
  _copy_kept(first, tmp_path / 'run')
  sample = opened(tmp_path / 'run', vocabulary=dataclasses.replace(VOCABULARY, sample_characters=60_000))
  for other, size in ((sample, SIZE), (smaller, 1400)):
    assert 'making the corpus' not in other.said
    assert f'training a vocabulary of {size:,} tokens' in other.said
    assert other.stream.identity['vocabulary'] != first.stream.identity['vocabulary']
  (tmp_path / 'run' / 'vocabulary' / 'origin.json').unlink()  # without a record it is trained again, and is the same
  assert opened(tmp_path / 'run').stream.identity == first.stream.identity


def _copy_kept(first, workdir):
  for folder in ('corpus', 'vocabulary'):
    shutil.copytree(first.workdir / folder, workdir / folder)


def test_limits_of_the_rates_are_shown_and_are_another_identity(first, tmp_path):
  _copy_kept(first, tmp_path / 'run')
  given = VocabularyConfig(path=str(first.file('vocabulary/sentencepiece.model')))
  before = first.stream.batches.rates
  limited = opened(tmp_path / 'run', dataclasses.replace(DATA, max_share=max(before.values()) - 0.001), given)
  assert 'making the corpus' not in limited.said
  assert 'sampling capped at 0.' in limited.said
  assert max(limited.stream.batches.rates.values()) == pytest.approx(max(before.values()) - 0.001)
  assert limited.stream.identity != first.stream.identity
  uniform = opened(tmp_path / 'run', dataclasses.replace(DATA, max_upsampling=1.0), given).stream.batches.rates
  counts = open_corpus(tmp_path / 'run' / 'corpus').languages
  sentences = {language: counts[language].sentences for language in uniform}
  assert uniform == pytest.approx({name: count / sum(sentences.values()) for name, count in sentences.items()})
  with pytest.raises(UsageError, match='sum to less than 1'):
    opened(tmp_path / 'run', dataclasses.replace(DATA, max_share=0.3), given)


# --- a vocabulary of one's own ---------------------------------------------------------------------------------------


def test_a_given_vocabulary_is_copied_followed_when_it_changes_and_replaced_when_none_is_given(
  first, smaller, tmp_path
):
  own = tmp_path / 'own.model'
  own.write_bytes(first.file('vocabulary/sentencepiece.model').read_bytes())
  given = VocabularyConfig(path=str(own))
  _copy_kept(first, tmp_path / 'run')
  run = opened(tmp_path / 'run', vocabulary=given)
  assert 'training' not in run.said
  assert run.file('vocabulary/sentencepiece.model').read_bytes() == own.read_bytes()
  assert json.loads(run.file('vocabulary/origin.json').read_text()) == {'copied_from': str(own)}
  assert run.stream.identity == first.stream.identity

  other = smaller.file('vocabulary/sentencepiece.model')
  changed = opened(tmp_path / 'run', vocabulary=VocabularyConfig(path=str(other)))
  assert run.file('vocabulary/sentencepiece.model').read_bytes() == other.read_bytes()
  assert changed.stream.identity['vocabulary'] != run.stream.identity['vocabulary']
  assert 'training a vocabulary' in opened(tmp_path / 'run').said


# --- what is missing -------------------------------------------------------------------------------------------------


def test_a_missing_vocabulary_and_a_missing_corpus_are_one_error(tmp_path):
  data = DataConfig(dumps=str(tmp_path / 'no_dumps'))
  with pytest.raises(UsageError) as caught:
    opened(tmp_path / 'run', data, VocabularyConfig(path=str(tmp_path / 'no.model')))
  error = caught.value
  assert 'the vocabulary cannot be read' in error.what
  assert 'no dump found' in error.what
  assert 'no.model' in error.where
  assert 'no_dumps' in error.where
  assert any('--gin.vocabulary.path=None' in fix for fix in error.fix)
  assert any('searched for' in fix for fix in error.fix)
  assert not (tmp_path / 'run').exists()


def test_a_vocabulary_of_another_size_is_an_error_before_the_corpus_is_made(first, tmp_path):
  given = VocabularyConfig(path=str(first.file('vocabulary/sentencepiece.model')))
  with pytest.raises(UsageError, match='1500 in the file, 1400 in the model'):
    opened(tmp_path / 'run', vocabulary=given, size=1400)
  assert not (tmp_path / 'run').exists()


def test_a_language_without_text_is_left_out_and_said_to_be(first, tmp_path):
  folder = tmp_path / 'dumps'
  folder.mkdir()
  for part in find_parts(DATA):
    shutil.copy(part.path, folder)
  (folder / 'xhwiki-1-pages-articles.xml').write_text('<mediawiki></mediawiki>')
  given = VocabularyConfig(path=str(first.file('vocabulary/sentencepiece.model')))
  run = opened(tmp_path / 'run', DataConfig(dumps=str(folder), held_out=0.1), given)
  assert 'skipped: no text' in run.said
  assert 'skipped, no text to train on: xh' in run.said
  assert run.stream.batches.languages == ('en', 'sw')
  assert set(run.stream.identity) == {'corpus', 'vocabulary', 'tasks', 'rate of en', 'rate of sw'}
  assert next(run.stream.batches.batches(0, None))[0]['language'].max() <= 1


def test_without_held_out_text_there_is_no_evaluation(first, tmp_path):
  given = VocabularyConfig(path=str(first.file('vocabulary/sentencepiece.model')))
  run = opened(tmp_path, dataclasses.replace(DATA, languages=('sw',), held_out=0.0), given)
  assert 'no held-out documents' in run.said
  assert not list(run.stream.batches.evaluation_batches())


# --- SeqIO tasks of one's own -----------------------------------------------------------------------------------------


@pytest.fixture
def registered(first, tmp_path):
  """Function (preprocessors by task) → the mixture of tasks of lines with these preprocessors, 3 to 1."""
  from tasks import pretraining, registration
  from tasks.seqio_vocabulary import RembertVocabulary

  # isort: split
  import seqio

  lines = [f'Line {number} of a law that is long enough to be a document.' for number in range(40)]
  (tmp_path / 'lines.txt').write_text('\n'.join(lines))

  def registered(*, splits=('train', 'validation'), **preprocessors):
    for name, before in preprocessors.items():
      registration.add_task(
        f'opened.{name}',
        source=seqio.TextLineDataSource(dict.fromkeys(splits, str(tmp_path / 'lines.txt'))),
        preprocessors=[*before, pretraining.tokenize],
        output_features=pretraining.features(RembertVocabulary(first.stream.vocabulary)),
      )
    rates = dict(zip([f'opened.{name}' for name in preprocessors], (3, 1, 0), strict=False))
    registration.add_mixture('opened', rates)
    return DataConfig(mixture='opened')

  yield registered
  registration.remove_ours('opened')


def as_text(dataset):
  return dataset.map(lambda line: {'text': line})


def shuffle(dataset):
  return dataset.shuffle(10, seed=1)


def test_a_mixture_is_streamed_by_its_own_rates_and_with_its_vocabulary(registered, first, tmp_path):
  run = opened(tmp_path / 'run', registered(a=[as_text], b=[as_text], never=[as_text]), VocabularyConfig())
  assert run.stream.batches.rates == {'opened.a': 0.75, 'opened.b': 0.25}
  assert run.file('vocabulary/sentencepiece.model').read_bytes() == first.stream.vocabulary.read_bytes()
  digest = hashlib.sha256(first.stream.vocabulary.read_bytes()).hexdigest()
  assert run.stream.identity == {
    'vocabulary': digest,
    'tasks': ['opened.a', 'opened.b'],
    'rate of opened.a': 0.75,
    'rate of opened.b': 0.25,
  }
  assert len(list(run.stream.batches.evaluation_batches())) > 0
  assert next(run.stream.batches.batches(0, None))[0]['input_ids'].shape == (4, 64)
  assert 'preprocesses earlier text again' not in run.said
  single = opened(tmp_path / 'single', DataConfig(mixture='opened.b'), VocabularyConfig())
  assert single.stream.batches.rates == {'opened.b': 1.0}


def test_tasks_read_from_their_beginning_are_named_and_without_validation_splits_nothing_is_evaluated(
  registered, tmp_path
):
  run = opened(tmp_path, registered(splits=('train',), a=[as_text], b=[as_text, shuffle]), VocabularyConfig())
  assert 'opened.b: preprocessors combine several examples' in run.said
  assert 'warning: no task has a validation split; evaluation is disabled' in run.said
  assert not list(run.stream.batches.evaluation_batches())


def test_another_vocabulary_than_that_of_the_tasks_is_refused(registered, first, tmp_path):
  same = tmp_path / 'same.model'
  same.write_bytes(first.stream.vocabulary.read_bytes())
  data = registered(a=[as_text])
  opened(tmp_path / 'run', data, VocabularyConfig(path=str(same)))
  other = tmp_path / 'other.model'
  other.write_bytes(b'another')
  with pytest.raises(UsageError, match=r'differs from vocabulary\.path'):
    opened(tmp_path / 'run', data, VocabularyConfig(path=str(other)))


def test_a_vocabulary_without_the_special_ids_is_one_error(registered, first, tmp_path):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['a line of text', 'another line']), model_writer=model, vocab_size=17, minloglevel=2
  )
  plain = tmp_path / 'plain.model'
  plain.write_bytes(model.getvalue())
  data = registered(a=[as_text])
  content = first.stream.vocabulary.read_bytes()
  first.stream.vocabulary.write_bytes(plain.read_bytes())
  try:
    with pytest.raises(UsageError, match='special ids differ from RemBERT') as error:
      opened(tmp_path / 'run', data, VocabularyConfig())
  finally:
    first.stream.vocabulary.write_bytes(content)
  assert "'opened'" in error.value.where
  assert 'python -m tasks.vocabulary' in error.value.fix[0]


def test_a_mixture_whose_data_is_not_prepared_is_one_error(first, tmp_path, monkeypatch):
  monkeypatch.setenv('REMBERT_VOCABULARY', str(first.stream.vocabulary))
  with pytest.raises(UsageError, match=r'wikipedia/20230601\.af is not prepared') as error:
    opened(tmp_path / 'run', DataConfig(mixture='rembert.pretraining'), VocabularyConfig())
  assert 'TFDS_DATA_DIR' in error.value.where


def test_a_mixture_without_a_vocabulary_is_one_error(tmp_path, monkeypatch):
  from tasks import mixtures

  mixtures.add_wikipedia()  # the tests before have registered a corpus under its names
  monkeypatch.delenv('REMBERT_VOCABULARY', raising=False)
  with pytest.raises(UsageError, match='no vocabulary is set'):
    opened(tmp_path / 'run', DataConfig(mixture='wikipedia.de'), VocabularyConfig())
