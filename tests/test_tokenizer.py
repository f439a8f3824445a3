"""Vocabularies are checked before they are used; texts become the ids that Hugging Face's tokenizer gives."""

import pytest
import sentencepiece

from rembert.errors import UsageError
from rembert.tokenizer import TextEncoder, check_vocabulary, cut


def test_files_that_are_no_rembert_vocabulary_are_refused(tmp_path, small_vocabulary):
  with pytest.raises(UsageError, match='cannot be read'):
    check_vocabulary(tmp_path / 'missing.model', 2000)
  (tmp_path / 'text.model').write_text('not a model')
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    check_vocabulary(tmp_path / 'text.model', 2000)
  with pytest.raises(UsageError, match='590 in the file, 500 in the model'):
    check_vocabulary(small_vocabulary, 500)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['special ids differ'] * 10),
    model_prefix=str(tmp_path / 'other'),
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(UsageError, match='special ids differ'):
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
