"""Vocabularies are checked before they are used; texts become the ids that Hugging Face's tokenizer gives."""

import pytest
import sentencepiece
from small_vocabularies import vocabulary_file

from rembert.errors import UsageError
from rembert.tokenizer import TextEncoder, begins_word, check_vocabulary, cut, load_vocabulary


@pytest.fixture(scope='module')
def model_file():
  return vocabulary_file('rembert')


@pytest.fixture(scope='module')
def processor(model_file):
  return load_vocabulary(model_file)


def test_words_begin_where_the_text_has_a_space(model_file, processor):
  begins_V = begins_word(model_file, 2100)
  assert begins_V.shape == (2100,)
  text = 'Die Donaudampfschifffahrt, η θάλασσα 🌊🌊 และ (x)'
  words = []
  for piece in processor.encode(text):
    words = [*words, [piece]] if begins_V[piece] else [*words[:-1], [*words[-1], piece]]
  assert [processor.decode(word) for word in words] == text.split()
  assert max(len(word) for word in words) >= 8  # the waves are bytes


def test_special_and_unused_pieces_begin_words_and_bytes_do_not(model_file, processor):
  begins_V = begins_word(model_file, 2100)
  assert begins_V[:315].all()
  assert begins_V[2000:].all()
  is_byte = [processor.is_byte(piece) for piece in range(2000)]
  assert sum(is_byte) == 256
  assert not begins_V[:2000][is_byte].any()
  assert begins_V[processor.piece_to_id('▁')]


def test_files_that_are_no_rembert_vocabulary_are_refused(tmp_path, model_file):
  with pytest.raises(UsageError, match='cannot be read'):
    check_vocabulary(tmp_path / 'missing.model', 2000)
  (tmp_path / 'text.model').write_text('not a model')
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    check_vocabulary(tmp_path / 'text.model', 2000)
  with pytest.raises(UsageError, match='2000 pieces, the model 1000'):
    check_vocabulary(model_file, 1000)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['other special ids'] * 10),
    model_prefix=str(tmp_path / 'other'),
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(UsageError, match='other special ids'):
    check_vocabulary(tmp_path / 'other.model', 2000)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def encoder(small_vocabulary):
  return TextEncoder(small_vocabulary)


def test_a_mask_stands_for_itself_and_takes_the_space_before_it(encoder):
  before, after = encoder.encode('der')[1:-1], encoder.encode('fließt')[1:-1]
  assert encoder.encode('der [MASK] fließt') == [312, *before, 314, *after, 313]
  assert encoder.encode('[MASK]') == [312, 314, 313]
  assert encoder.encode('') == [312, 313]
  assert encoder.piece(314) == '[MASK]'
  assert encoder.piece(589).isprintable()
  assert encoder.piece(590) == '[590]'
  assert len(encoder) == 590


def test_cutting_keeps_the_end_mark():
  assert cut([312, 1, 2, 3, 313], 4) == [312, 1, 2, 313]
  assert cut([312, 1, 313], 3) == [312, 1, 313]
