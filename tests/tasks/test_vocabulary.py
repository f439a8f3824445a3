"""Vocabularies: the released layout at any size, nothing lost, and clear words when it cannot be."""

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from rembert.data.config import DataConfig
from rembert.errors import UsageError
from tasks import vocabulary
from tasks.survey import sample_text
from tasks.wikipedia.corpus import open_corpus


@pytest.fixture(scope='module')
def model_file(tmp_path_factory):
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  corpus = open_corpus(DataConfig(languages=('de', 'el', 'th'), held_out=0.1))
  vocabulary.train_vocabulary(sample_text(corpus, dict.fromkeys(corpus.languages, 50_000)), file, size=1500)
  return file


@pytest.fixture(scope='module')
def processor(model_file):
  return sentencepiece.SentencePieceProcessor(model_file=str(model_file))


def test_special_pieces_have_the_ids_of_the_released_vocabulary(model_file, processor):
  assert [processor.piece_to_id(piece) for piece in ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')] == [
    0,
    2,
    312,
    313,
    314,
  ]
  assert processor.get_piece_size() == 1500
  special = vocabulary.check_vocabulary(model_file, 1500)
  assert (special.pad, special.unknown, special.cls, special.sep, special.mask) == (0, 2, 312, 313, 314)


def test_text_never_becomes_a_special_or_unused_piece(processor):
  ids = processor.encode('[MASK] [CLS] [SEP] [PAD] [UNK] [unused7] <0x41>')
  assert min(ids) > 314


@given(st.text(st.characters(exclude_categories=('Cs', 'Cc', 'Zs', 'Zl', 'Zp')), max_size=60))
def test_every_text_comes_back_character_by_character(processor, text):
  # '▁' stands for a space inside SentencePiece, so it alone cannot be told from one.
  text = text.replace('\N{LOWER ONE EIGHTH BLOCK}', '')
  ids = processor.encode(text)
  assert processor.decode(ids) == text
  assert 2 not in ids


def test_all_white_space_is_one_space(processor):
  assert processor.encode('eins\n\tzwei\u00a0\u3000drei') == processor.encode('eins zwei drei')


def test_words_begin_where_the_text_has_a_space(model_file, processor):
  begins_V = vocabulary.begins_word(model_file, 1600)
  assert begins_V.shape == (1600,)
  text = 'Die Donaudampfschifffahrt, η θάλασσα 🌊🌊 และ (x)'
  words = []
  for piece in processor.encode(text):
    words = [*words, [piece]] if begins_V[piece] else [*words[:-1], [*words[-1], piece]]
  assert [processor.decode(word) for word in words] == text.split()
  assert max(len(word) for word in words) >= 8  # the waves are bytes


def test_special_and_unused_pieces_begin_words_and_bytes_do_not(model_file, processor):
  begins_V = vocabulary.begins_word(model_file, 1600)
  assert begins_V[:315].all()
  assert begins_V[1500:].all()
  is_byte = [processor.is_byte(piece) for piece in range(1500)]
  assert sum(is_byte) == 256
  assert not begins_V[:1500][is_byte].any()
  assert begins_V[processor.piece_to_id('▁')]


def test_a_corpus_too_small_for_the_vocabulary_is_told_with_the_size_that_it_supports(tmp_path):
  with pytest.raises(UsageError, match='supports a vocabulary of') as caught:
    vocabulary.train_vocabulary(['ein kleiner Text', 'noch einer'] * 20, tmp_path / 'v.model', size=5000)
  assert 'RemBertConfig.vocab_size=' in caught.value.fix[0]
  assert not list(tmp_path.iterdir())


def test_a_vocabulary_too_small_for_the_special_pieces_is_refused(tmp_path):
  with pytest.raises(UsageError, match='do not hold the special ids'):
    vocabulary.train_vocabulary(['text'], tmp_path / 'v.model', size=500)


def test_files_that_are_no_rembert_vocabulary_are_refused(tmp_path, model_file):
  with pytest.raises(UsageError, match='cannot be read'):
    vocabulary.check_vocabulary(tmp_path / 'missing.model', 1500)
  (tmp_path / 'text.model').write_text('not a model')
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    vocabulary.check_vocabulary(tmp_path / 'text.model', 1500)
  with pytest.raises(UsageError, match='1500 pieces, the model 1000'):
    vocabulary.check_vocabulary(model_file, 1000)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['other special ids'] * 10),
    model_prefix=str(tmp_path / 'other'),
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(UsageError, match='other special ids'):
    vocabulary.check_vocabulary(tmp_path / 'other.model', 1500)


def test_budgets_follow_the_rates_and_end_with_the_text():
  budgets = vocabulary.text_budgets({'a': 100, 'b': 10_000}, {'a': 0.25, 'b': 0.75}, 1000)
  assert budgets == {'a': 100, 'b': 750}


def test_the_command_line_trains_one(tmp_path, capsys):
  file = tmp_path / 'v.model'
  assert vocabulary.main(['--languages=sw', '--size=900', f'--output={file}']) == 0
  assert vocabulary.check_vocabulary(file, 900)
  assert vocabulary.main(['--languages=xx', '--size=900', f'--output={file}']) == 2
  assert 'xx' in capsys.readouterr().err
