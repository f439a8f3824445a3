import dataclasses
import shutil

import pytest

from benchmarks import text_pipeline
from benchmarks.interleaved import Unavailable
from rembert.tracking.console import Console
from tasks.corpus.build import temporary_corpus
from tasks.corpus.documents import CorpusConfig, find_parts

TINY = text_pipeline.TextSetting(vocab_size=2000, passes=2)


# --- cleaning ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def swahili():
  sample = text_pipeline.CLEANING.settings['sample']
  return dataclasses.replace(sample, pattern=f'{sample.pattern}/swwiki-*', passes=2)


def test_what_is_counted_is_one_pass(swahili):
  config = CorpusConfig(held_out=0, dedupe='documents')
  with temporary_corpus(find_parts('dumps', swahili.pattern), config, Console(is_quiet=True)) as corpus:
    texts = list(corpus.texts('sw', 'train'))
  assert text_pipeline.prepare_cleaning(swahili)() == {
    'articles': len(swahili.article_bytes),
    'documents': len(texts),
    'characters kept': sum(map(len, texts)),
  }


@pytest.mark.parametrize('read_templates', [True, False])
def test_wikiextractor_reads_the_same_articles(swahili, read_templates):
  pytest.importorskip('wikiextractor', reason='`make bench` installs wikiextractor')
  facts = text_pipeline.prepare_wikiextractor(swahili, read_templates)()
  assert facts['articles'] == len(swahili.article_bytes)
  assert facts['characters kept'] > 0.8 * text_pipeline.prepare_cleaning(swahili)()['characters kept']


@pytest.mark.parametrize(
  ('pattern', 'message'), [('', text_pipeline.DUMPS_VARIABLE), ('/no/such/folder', '/no/such/folder')]
)
def test_without_dumps_it_says_what_is_missing(tmp_path, pattern, message):
  with pytest.raises(Unavailable, match=message):
    text_pipeline.cleaning_candidates(text_pipeline.DumpSetting(pattern, passes=1), tmp_path)


# --- tokenizing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_texts(monkeypatch):
  """Forty documents of the sample corpus, in all its languages: more than TensorFlow gets at once."""
  texts = text_pipeline.sample_texts()
  few = texts[:: len(texts) // 40][:40]
  monkeypatch.setattr(text_pipeline, 'sample_texts', lambda: few)
  return few


@pytest.fixture
def vocabulary(xtreme_vocabulary, tmp_path):
  """In a folder of its own: a tokenizer is exported beside it."""
  return shutil.copy(xtreme_vocabulary, tmp_path / 'sentencepiece.model')


@pytest.mark.parametrize(
  'prepare',
  [
    text_pipeline.prepare_tokenizing,
    text_pipeline.prepare_seqio,
    text_pipeline.prepare_tokenizers,
    text_pipeline.prepare_transformers,
  ],
)
def test_everybody_makes_the_ids_of_sentencepiece(prepare, vocabulary, few_texts):
  facts = prepare(TINY, vocabulary)()
  if prepare is text_pipeline.prepare_tokenizing:
    assert facts['as SentencePiece'] == 1
  # Ways to cut a text that are as likely as one another, or nearly, may change places.
  assert facts['as SentencePiece'] >= 0.9
  processor = text_pipeline.load_sentencepiece(vocabulary)
  assert facts['ids'] == pytest.approx(sum(len(processor.encode(text)) for text in few_texts), rel=1e-3)


def test_the_share_of_equal_texts_is_counted(vocabulary, few_texts):
  processor = text_pipeline.load_sentencepiece(vocabulary)
  reversed_once = lambda texts: [processor.encode(texts[0])[::-1], *processor.encode(texts[1:])]
  run = text_pipeline.encoding_run(TINY, vocabulary, reversed_once)
  assert run()['as SentencePiece'] == 1 - 1 / len(few_texts)


def test_hugging_face_has_one_thread(monkeypatch, tmp_path, xtreme_vocabulary):
  monkeypatch.setattr(text_pipeline, 'make_vocabulary', lambda size, file: shutil.copy(xtreme_vocabulary, file))
  candidates = text_pipeline.tokenizing_candidates(TINY, tmp_path)
  assert [each.environment.get('RAYON_NUM_THREADS') for each in candidates] == [None, None, '1', '1']


@pytest.mark.slow
@pytest.mark.parametrize('setting', text_pipeline.TOKENIZING.settings.values(), ids=str)
def test_the_sample_corpus_supports_the_vocabulary(setting, tmp_path):
  text_pipeline.make_vocabulary(setting.vocab_size, tmp_path / 'sentencepiece.model')
  assert len(text_pipeline.load_sentencepiece(tmp_path / 'sentencepiece.model')) == setting.vocab_size
