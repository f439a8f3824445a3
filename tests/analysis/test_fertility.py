"""Statistics of tokens, compared with a plain count, and languages without spaces."""

import re

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rembert.analysis.fertility import TokenCounter, has_spaces
from rembert.tokenizer import load_vocabulary
from tasks import vocabulary


@pytest.fixture(scope='module')
def with_bytes(tmp_path_factory):
  """A small vocabulary with byte fallback."""
  file = tmp_path_factory.mktemp('bytes') / 'v.model'
  vocabulary.train_vocabulary(['ein Haus und ein Garten', 'und eine Tür', 'στο σπίτι'] * 20, file, size=594)
  return load_vocabulary(file)


@pytest.fixture(scope='module')
def without_bytes(tmp_path_factory):
  """A vocabulary like the released one: characters outside of it are [UNK]."""
  prefix = tmp_path_factory.mktemp('unknown') / 'small'
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['ein Haus und ein Garten', 'und eine Tür'] * 20),
    model_prefix=str(prefix),
    vocab_size=30,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  return load_vocabulary(f'{prefix}.model')


def plainly(processor, texts):
  """The statistics, token by token."""
  characters = covered = tokens = bytes_ = unknown = 0
  for text in texts:
    for token in processor.encode(text, out_type=str):
      tokens += 1
      letters = token.replace('▁', '')
      if re.fullmatch('<0x[0-9A-F]{2}>', token):
        bytes_ += 1
        characters += not 0x80 <= int(token[3:5], 16) < 0xC0
      elif processor.piece_to_id(token) == processor.unk_id():
        unknown += 1
        characters += len(letters)
      else:
        covered += len(letters)
        characters += len(letters)
  words = sum(len(text.split()) for text in texts)
  divided = lambda part, whole: part / whole if whole else 0
  return {
    'pieces_per_word': divided(tokens, words),
    'pieces_per_character': divided(tokens, characters),
    'coverage': divided(covered, characters),
    'byte_fallback': divided(bytes_, tokens),
    'unknown': divided(unknown, tokens),
  }, characters


@given(st.lists(st.text(st.characters(exclude_categories=('Cs', 'Cc', 'Zs', 'Zl', 'Zp')), max_size=40), max_size=5))
@example(['ein Haus am 北京市 und ein ☃', 'Garten'])
@settings(max_examples=25, deadline=None)
def test_statistics_are_those_of_a_plain_count_and_no_character_is_lost(with_bytes, without_bytes, texts):
  texts = [text.replace('▁', '') for text in texts]
  for processor in (with_bytes, without_bytes):
    expected, characters = plainly(processor, texts)
    assert TokenCounter(processor).statistics(texts) == pytest.approx(expected)
    assert processor is without_bytes or characters == sum(len(re.sub(r'\s', '', text)) for text in texts)


def test_missing_characters_are_bytes_or_unknown(with_bytes, without_bytes):
  of_bytes, of_unknown = (TokenCounter(each).statistics(['Haus ☃']) for each in (with_bytes, without_bytes))
  assert (of_bytes['unknown'], of_unknown['byte_fallback']) == (0, 0)
  assert of_bytes['byte_fallback'] > 0 < of_unknown['unknown']
  assert of_bytes['coverage'] == of_unknown['coverage'] == 4 / 5
  assert TokenCounter(with_bytes).statistics(['Haus'], has_spaces=False)['pieces_per_word'] is None


def test_scripts_without_spaces_are_known_by_the_code():
  assert not any(map(has_spaces, ('ja', 'zh', 'zh-TW', 'zh-yue', 'zh-classical', 'th', 'lo', 'km', 'my')))
  assert all(map(has_spaces, ('de', 'ko', 'vi', 'bo-Latn', 'ja-Latn', 'zh-min-nan', 'tha')))
