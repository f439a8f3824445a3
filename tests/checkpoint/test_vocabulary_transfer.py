"""Rows for another vocabulary: copied by token, or means over a segmentation that a plain search in Python finds."""

import itertools

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from rembert.checkpoint.initialize import plan_transfer

SPACE = '\N{LOWER ONE EIGHTH BLOCK}'
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIAL = [('[PAD]', 0, CONTROL), ('<unk>', 0, UNKNOWN), ('[MASK]', 0, CONTROL)]
BYTES = [(f'<0x{byte:02X}>', -20, BYTE) for byte in range(256)]
LETTERS = [(letter, -9, NORMAL) for letter in f'{SPACE}unhapyig']
# As the first of a word, 'un' is another token.
OLD = [*LETTERS, (f'{SPACE}un', -4, NORMAL), ('un', -5, NORMAL), ('happy', -6, NORMAL), ('ing', -3, NORMAL)]


@pytest.fixture
def write(tmp_path):
  """Function (tokens with score and type, …) → a SentencePiece model."""

  def write_model(tokens, name='v.model', *, has_bytes=False):
    proto = sentencepiece_model_pb2.ModelProto()
    for token, score, kind in [*SPECIAL, *(BYTES if has_bytes else []), *tokens]:
      proto.pieces.add(piece=token, score=score, type=kind)
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = 1, -1, -1
    proto.trainer_spec.pad_id, proto.trainer_spec.model_type = 0, 1
    proto.trainer_spec.byte_fallback = has_bytes
    proto.normalizer_spec.name = 'identity'
    file = tmp_path / name
    file.write_bytes(proto.SerializeToString())
    return file

  return write_model


def ids_of(file):
  processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
  return {processor.id_to_piece(index): index for index in range(processor.get_piece_size())}


def best_segmentation(surface: str, scores: dict[str, float]) -> list[str]:
  """The tokens of a surface whose scores have the largest sum."""
  best: list[tuple[float, list[str]]] = [(0.0, [])]
  for end in range(1, len(surface) + 1):
    parts = ((best[start], surface[start:end]) for start in range(end) if surface[start:end] in scores)
    best.append(max((score + scores[part], [*before, part]) for (score, before), part in parts))
  return best[-1][1]


def test_tokens_of_both_keep_their_rows_and_others_are_means_of_subwords_of_their_own_position(write):
  old = write(OLD)
  new = ['ing', f'{SPACE}unhappy', 'unhappy', f'{SPACE}happying', 'happying', 'un']
  target = write([(token, -7, NORMAL) for token in new], 'new.model')
  transfer, before, after = plan_transfer(old, target, 12), ids_of(old), ids_of(target)
  found = {token: transfer.subwords[index] for token, index in after.items()}
  rows = lambda *tokens: tuple(before[token] for token in tokens)
  assert found == {
    **{token: rows(token) for token, *_ in SPECIAL},
    'ing': rows('ing'),
    'un': rows('un'),
    f'{SPACE}unhappy': rows(f'{SPACE}un', 'happy'),
    'unhappy': rows('un', 'happy'),
    f'{SPACE}happying': rows(SPACE, 'happy', 'ing'),
    'happying': rows('happy', 'ing'),
  }
  assert (transfer.copied, transfer.averaged, transfer.initialised) == (5, 4, 0)
  assert transfer.subwords[len(after) :] == ((), (), ())  # rows beyond the vocabulary
  assert transfer.is_new.tolist() == [False] * 9 + [True] * 3


@pytest.mark.parametrize('has_bytes', [False, True])
def test_unknown_characters_have_no_part_in_a_mean_unless_they_are_bytes(write, has_bytes):
  old = write(OLD, has_bytes=has_bytes)
  new = [('[unused7]', 0, CONTROL), ('日本', -7, NORMAL), ('un日', -7, NORMAL)]
  target = write(new, 'new.model', has_bytes=True)
  before, after = ids_of(old), ids_of(target)
  transfer = plan_transfer(old, target, len(after))
  found = {token: transfer.subwords[after[token]] for token in ('[unused7]', '<0xE2>', '日本', 'un日')}
  in_bytes = lambda text: tuple(before[f'<0x{byte:02X}>'] for byte in text.encode()) if has_bytes else ()
  assert found == {
    '[unused7]': (),  # a name, not text
    '<0xE2>': (before['<0xE2>'],) if has_bytes else (),
    '日本': in_bytes('日本'),
    'un日': (before['un'], *in_bytes('日')),
  }
  assert transfer.initialised == (1 if has_bytes else 258)
  assert transfer.copied + transfer.averaged + transfer.initialised == len(after)


def test_rows_are_those_of_a_plain_search_and_numpy_means(small_vocabulary, write):
  """Of a trained vocabulary: every part of two words, with and without the space before it."""
  processor = sentencepiece.SentencePieceProcessor(model_file=str(small_vocabulary))
  ids = range(processor.get_piece_size())
  scores = {processor.id_to_piece(i): processor.get_score(i) for i in ids if i > 314 and not processor.is_byte(i)}
  words = ('Flussstadt', 'durchfließt')
  parts = {word[a:b] for word in words for a, b in itertools.combinations(range(len(word) + 1), 2)}
  new = sorted(token for part in parts for token in (part, SPACE + part))
  target = write([(token, -7, NORMAL) for token in new], 'new.model')
  after, random = ids_of(target), np.random.default_rng(0)
  transfer = plan_transfer(small_vocabulary, target, len(after) + 2)
  for shape in (590, 5), (590,):
    old = random.standard_normal(shape, np.float32)
    found = transfer.rows(old)
    assert found.dtype == np.float32
    assert found.shape == (len(after) + 2, *shape[1:])
    for token in new:
      rows = [old[processor.piece_to_id(part)].astype(np.float64) for part in best_segmentation(token, scores)]
      np.testing.assert_array_equal(found[after[token]], np.float32(sum(rows) / len(rows)), err_msg=token)
    assert not found[transfer.is_new].any()
