"""BERT's masking: what is chosen, how much of it, what is shown instead, and that nothing but numbers decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data.masking import MaskingConfig, SpecialIds, mask_row, mask_rows
from rembert.data.mixture import EVALUATION_STREAM, MASK_STREAM, random_stream

SPECIAL = SpecialIds()
VOCAB = 1000
S = 64


@st.composite
def rows(draw):
  """A packed row: [CLS] … [SEP] one or more times, then padding; some pieces are [UNK]."""
  lengths = draw(st.lists(st.integers(1, 30), max_size=6))
  ids = []
  for length in lengths:
    pieces = draw(st.lists(st.sampled_from([SPECIAL.unknown, 315, 316, 500, 999]), min_size=length, max_size=length))
    if len(ids) + length + 2 <= S:
      ids += [SPECIAL.cls, *pieces, SPECIAL.sep]
  return np.array(ids + [SPECIAL.pad] * (S - len(ids)), np.int32)


def masked(ids, *, seed=0, config=MaskingConfig(), slots=None):
  return mask_row(
    ids,
    np.random.default_rng(seed),
    special=SPECIAL,
    vocab_size=VOCAB,
    config=config,
    slots=config.slots(S) if slots is None else slots,
  )


@given(ids=rows(), seed=st.integers(0, 2**32), rate=st.floats(0.01, 0.9), slots=st.integers(1, 40))
@settings(deadline=None)
def test_only_ordinary_tokens_are_chosen_and_the_rest_is_untouched(ids, seed, rate, slots):
  before = ids.copy()
  row = masked(ids, seed=seed, config=MaskingConfig(rate=rate), slots=slots)
  np.testing.assert_array_equal(ids, before)

  count = int(row['weights'].sum())
  positions = row['masked_positions'][:count]
  assert not set(before[positions]) & {SPECIAL.pad, SPECIAL.cls, SPECIAL.sep}
  assert np.all(np.diff(positions) > 0)
  np.testing.assert_array_equal(row['targets'][:count], before[positions])
  unchosen = np.setdiff1d(np.arange(S), positions)
  np.testing.assert_array_equal(row['input_ids'][unchosen], before[unchosen])

  # The slots that are not needed count nothing.
  np.testing.assert_array_equal(row['weights'], np.arange(slots) < count)
  assert not np.any(row['masked_positions'][count:])
  assert not np.any(row['targets'][count:])


@given(ids=rows(), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_number_of_predictions_is_berts(ids, seed):
  # google-research/bert, create_pretraining_data.py; it also stops when no candidate is left.
  tokens = [token for token in ids if token != SPECIAL.pad]
  candidates = [token for token in tokens if token not in (SPECIAL.cls, SPECIAL.sep)]
  max_predictions_per_seq = int(np.ceil(S * 0.15))
  num_to_predict = min(max_predictions_per_seq, max(1, round(len(tokens) * 0.15)))
  assert masked(ids, seed=seed)['weights'].sum() == min(num_to_predict, len(candidates))


def test_a_row_of_padding_has_nothing_to_predict():
  row = masked(np.zeros(S, np.int32))
  assert row['weights'].sum() == 0
  assert not np.any(row['input_ids'])


@pytest.mark.parametrize(('sequence_length', 'slots'), [(512, 77), (128, 20), (20, 3), (7, 2), (1, 1)])
def test_there_are_slots_enough_for_a_full_row(sequence_length, slots):
  assert MaskingConfig().slots(sequence_length) == slots


@given(sequence_length=st.integers(3, 2048), rate=st.floats(0.01, 0.99))
def test_no_full_row_is_cut_short_by_the_slots(sequence_length, rate):
  assert MaskingConfig(rate=rate).slots(sequence_length) >= max(1, round(sequence_length * rate))


def test_types_and_shapes_are_what_the_model_takes():
  row = masked(np.arange(315, 315 + S, dtype=np.int32))
  slots = MaskingConfig().slots(S)
  assert {name: (x.dtype, x.shape) for name, x in row.items()} == {
    'input_ids': (np.int32, (S,)),
    'masked_positions': (np.int32, (slots,)),
    'targets': (np.int32, (slots,)),
    'weights': (np.float32, (slots,)),
  }


# --- shares ---------------------------------------------------------------------------------------

# Five standard deviations of a share: a right implementation fails once in two million runs, and the seed is fixed.
SIGMAS = 5


@pytest.fixture(scope='module')
def many():
  """500 full rows, masked; no original token can be drawn as a replacement of another by chance in most cases."""
  vocab_size = 100_000
  random = np.random.default_rng(0)
  ids = random.integers(SPECIAL.first_piece, vocab_size, (500, 512)).astype(np.int32)
  ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
  out = mask_rows(
    ids,
    seed=0,
    stream=MASK_STREAM,
    step=0,
    first_row=0,
    special=SPECIAL,
    vocab_size=vocab_size,
    config=MaskingConfig(),
  )
  shown = np.take_along_axis(out['input_ids'], out['masked_positions'], axis=1)
  return out, shown, vocab_size


def assert_share(hits, share):
  assert abs(hits.mean() - share) < SIGMAS * np.sqrt(share * (1 - share) / hits.size)


def test_the_shares_converge_to_80_10_10(many):
  out, shown, _ = many
  assert np.all(out['weights'] == 1)
  is_mask, is_kept = shown == SPECIAL.mask, shown == out['targets']
  assert_share(is_mask, 0.8)
  assert_share(is_kept, 0.1)
  assert_share(~is_mask & ~is_kept, 0.1)


def test_other_shares_are_kept_to():
  ids = np.tile(np.arange(315, 315 + S, dtype=np.int32), (400, 1))
  config = MaskingConfig(rate=0.5, mask_share=0.5, random_share=0.5)
  random = np.random.default_rng(1)
  rows = [mask_row(row, random, special=SPECIAL, vocab_size=VOCAB, config=config, slots=config.slots(S)) for row in ids]
  shown = np.stack([row['input_ids'][row['masked_positions']] for row in rows])
  assert_share(shown == SPECIAL.mask, 0.5)


def test_replacements_are_ordinary_pieces_drawn_evenly(many):
  out, shown, vocab_size = many
  replaced = shown[(shown != SPECIAL.mask) & (shown != out['targets'])]
  assert replaced.min() >= SPECIAL.first_piece
  assert replaced.max() < vocab_size
  span = vocab_size - SPECIAL.first_piece
  uniform = (replaced - SPECIAL.first_piece) / span
  assert abs(uniform.mean() - 0.5) < SIGMAS * np.sqrt(1 / 12 / uniform.size)
  assert abs((uniform**2).mean() - 1 / 3) < SIGMAS * np.sqrt(4 / 45 / uniform.size)


def test_every_position_is_chosen_equally_often(many):
  out, _, _ = many
  counts = np.bincount(out['masked_positions'].ravel(), minlength=512)[1:-1]
  share = 77 / 510
  assert np.abs(counts / 500 - share).max() < SIGMAS * np.sqrt(share * (1 - share) / 500)


# --- randomness is a function of (seed, step, row) --------------------------------------------------


def batch(first_row, ids, *, seed=3, step=11, stream=MASK_STREAM):
  return mask_rows(
    ids,
    seed=seed,
    stream=stream,
    step=step,
    first_row=first_row,
    special=SPECIAL,
    vocab_size=VOCAB,
    config=MaskingConfig(),
  )


IDS = np.random.default_rng(2).integers(315, VOCAB, (8, S)).astype(np.int32)


@given(bounds=st.lists(st.integers(1, 7), unique=True).map(sorted))
@settings(deadline=None)
def test_a_rows_masks_do_not_depend_on_who_reads_it_with_whom(bounds):
  whole = batch(0, IDS)
  parts = [batch(first, IDS[first:end]) for first, end in zip([0, *bounds], [*bounds, 8], strict=True)]
  for name, expected in whole.items():
    np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), expected)


@pytest.mark.parametrize(
  'other', [{'step': 12}, {'seed': 4}, {'stream': EVALUATION_STREAM}], ids=['step', 'seed', 'stream']
)
def test_another_step_seed_or_stream_masks_otherwise(other):
  one, two = batch(0, IDS), batch(0, IDS, **other)
  for row in range(len(IDS)):
    assert np.any(one['masked_positions'][row] != two['masked_positions'][row])


def test_rows_of_a_step_are_masked_each_in_its_own_way():
  same = np.tile(IDS[:1], (8, 1))
  assert len({row.tobytes() for row in batch(0, same)['masked_positions']}) == 8


def test_row_r_of_one_step_is_not_row_r_plus_one_of_another():
  draws = {random_stream(0, MASK_STREAM, step, row).random() for step in range(20) for row in range(20)}
  assert len(draws) == 400


def test_the_first_piece_follows_the_last_special_one():
  assert SpecialIds().first_piece == 315
  assert SpecialIds(mask=4).first_piece == 5
