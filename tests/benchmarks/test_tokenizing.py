import shutil

import pytest

from benchmarks import sample_corpus, tokenizing

TINY = tokenizing.Setting(pieces=2000, passes=2)


@pytest.fixture(autouse=True)
def few_texts(monkeypatch):
  """Forty documents of the sample corpus, in all its languages: more than TensorFlow gets at once."""
  texts = sample_corpus.texts()
  few = texts[:: len(texts) // 40][:40]
  monkeypatch.setattr(sample_corpus, 'texts', lambda: few)
  return few


@pytest.fixture
def vocabulary(xtreme_vocabulary, tmp_path):
  """In a folder of its own: a tokenizer is exported beside it."""
  return shutil.copy(xtreme_vocabulary, tmp_path / 'sentencepiece.model')


@pytest.mark.parametrize(
  'prepare',
  [
    tokenizing.prepare_ours,
    tokenizing.prepare_seqio,
    tokenizing.prepare_tokenizers,
    tokenizing.prepare_transformers,
  ],
)
def test_everybody_makes_the_ids_of_sentencepiece(prepare, vocabulary, few_texts):
  facts = prepare(TINY, vocabulary)()
  if prepare is tokenizing.prepare_ours:
    assert facts['as SentencePiece'] == 1
  # Ways to cut a text that are as likely as one another, or nearly, may change places.
  assert facts['as SentencePiece'] >= 0.9
  processor = tokenizing._processor(vocabulary)
  assert facts['ids'] == pytest.approx(sum(len(processor.encode(text)) for text in few_texts), rel=1e-3)


def test_the_share_of_equal_texts_is_counted(vocabulary, few_texts):
  processor = tokenizing._processor(vocabulary)
  reversed_once = lambda texts: [processor.encode(texts[0])[::-1], *processor.encode(texts[1:])]
  run = tokenizing._run(TINY, vocabulary, reversed_once)
  assert run()['as SentencePiece'] == 1 - 1 / len(few_texts)


def test_hugging_face_has_one_thread_and_all_have_one_core_and_the_same_work(monkeypatch, tmp_path, xtreme_vocabulary):
  monkeypatch.setattr(sample_corpus, 'make_vocabulary', lambda pieces, file: shutil.copy(xtreme_vocabulary, file))
  ours, *others = tokenizing.contestants('v5k', tmp_path)
  assert all(other.work == ours.work and other.one_core for other in (ours, *others))
  assert [other.environment.get('RAYON_NUM_THREADS') for other in others] == [None, '1', '1']


@pytest.mark.slow
@pytest.mark.parametrize('setting', tokenizing.SETTINGS.values(), ids=tokenizing.SETTINGS)
def test_the_sample_corpus_supports_the_vocabulary(setting, tmp_path):
  sample_corpus.make_vocabulary(setting.pieces, tmp_path / 'sentencepiece.model')
  assert len(tokenizing._processor(tmp_path / 'sentencepiece.model')) == setting.pieces
