"""A run in phases: every step has the settings of its phase, from any host and after any interruption."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from batch_checks import assert_same, unmasked
from text_streams import SOURCE, open_documents

from rembert.data.batches import Sampling
from rembert.data.config import DataConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import Place, pack
from rembert.data.phases import PhasedBatches, PhasesConfig, phases_of, same_until
from rembert.data.store_source import StoredBatches
from rembert.data.stream_source import SourcePlace
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError

B = 12
# Languages join, leave and come back; the mask rate falls, the number of slots with it.
SCHEDULE = (
  Sampling(0, 40, (0.7, 0.3, 0.0), 0.3, 20),
  Sampling(40, 70, (0.2, 0.5, 0.3), 0.15, 10),
  Sampling(70, 100, (0.0, 0.0, 1.0), 0.05, 10),
  Sampling(100, 160, (0.4, 0.3, 0.3), 0.05, 4),
)


def phases(steps=1000, **config):
  return phases_of(PhasesConfig(**config), steps=steps, data=DataConfig(), masking=MaskingConfig(), sequence_length=128)


# --- what is configured -----------------------------------------------------------------------------------------------


def test_phases_begin_at_steps_or_fractions_and_keep_what_they_do_not_set():
  [phase] = phases()
  assert (phase.begin, phase.end, phase.number) == (0, 1000, 0)
  assert (phase.alpha, phase.masking_rate, phase.sequence_length, phase.languages) == (0.5, 0.15, 128, None)
  first, second, third = phases(begins=(0, 0.6, 900), alpha=(0.7, 0.5, 0.3), languages=('de, en', 'de,en,sw', None))
  assert [(phase.begin, phase.end) for phase in (first, second, third)] == [(0, 600), (600, 900), (900, 1000)]
  assert [phase.alpha for phase in (first, second, third)] == [0.7, 0.5, 0.3]
  assert [phase.languages for phase in (first, second, third)] == [('de', 'en'), ('de', 'en', 'sw'), None]
  assert {phase.masking_rate for phase in (first, second, third)} == {0.15}


@pytest.mark.parametrize('steps', [30, 1000, 12_345])
def test_a_linear_change_is_a_staircase_with_the_mean_of_the_line_on_every_stair(steps):
  stairs = phases(steps, begins=(0, 0.5, 1.0), masking_rate=(0.3, 0.1, 0.05), linear=('masking_rate',))
  assert [stair.begin for stair in stairs] == [0, *(stair.end for stair in stairs[:-1])]
  assert stairs[-1].end == steps
  of_step = [stair.masking_rate for stair in stairs for _ in range(stair.begin, stair.end)]
  line = np.interp(np.arange(steps) + 0.5, [0, round(steps / 2), steps], [0.3, 0.1, 0.05])
  longest = max(stair.end - stair.begin for stair in stairs)
  np.testing.assert_allclose(of_step, line, atol=0.2 * longest / 2 / (steps // 2))
  assert len(stairs) == min(200, steps)
  np.testing.assert_allclose(np.mean(of_step), np.mean(line))
  assert {stair.largest_masking_rate for stair in stairs} == {0.3, 0.1}


@pytest.mark.parametrize(
  ('config', 'message', 'where'),
  [
    ({'alpha': (0.5, 0.3)}, 'nothing says where these begin', 'phases.alpha'),
    ({'begins': (0, 0.5), 'alpha': (0.5,)}, '1 values for 2 phases', 'phases.alpha = (0.5,)'),
    ({'begins': (0, 0.5), 'linear': ('alpha',)}, 'alpha cannot change linearly', 'phases.linear'),
    ({'begins': (0, 0.5), 'sequence_length': (64, 128), 'linear': 'sequence_length'}, 'cannot change', 'phases.linear'),
    ({'begins': (0.1, 0.5)}, 'begin at 0 and ascend', 'phases.begins'),
    ({'begins': (0, 600, 0.5)}, 'begin at 0 and ascend', 'steps 0, 600, 500 of 1000'),
    ({'begins': (0, 1001)}, 'up to the end', 'phases.begins'),
    ({'begins': (0, 0.5), 'alpha': (0.5, -1)}, 'a tuple, each a finite number ≥ 0', 'phases.alpha'),
    ({'begins': (0, 0.5), 'masking_rate': (0.5, 1.5)}, 'a tuple, each', 'phases.masking_rate'),
    ({'begins': (0, 0.5), 'languages': ('de', 3)}, 'a tuple, each a string, or None', 'phases.languages'),
    ({'begins': (0, 0.5), 'store': ('a', 'b')}, 'only a run on token stores', 'data.source'),
    ({'begins': (0, 0.5), 'mixture': ('a', 'b')}, 'only a run on a SeqIO mixture', 'data.mixture'),
  ],
)
def test_what_cannot_be_is_refused_by_name(config, message, where):
  with pytest.raises(UsageError, match=message) as caught:
    phases(**config)
  assert where in caught.value.where
  assert caught.value.fix


def test_only_what_is_over_must_be_the_same():
  before = phases(begins=(0, 600), alpha=(0.7, 0.5))
  assert same_until(before, phases(begins=(0, 600), alpha=(0.7, 0.3)), 600)
  assert same_until(before, phases(begins=(0, 600, 800), alpha=(0.7, 0.5, 0.3)), 800)
  assert same_until(before, phases(begins=(0, 0.5), alpha=(0.7, 0.3)), 500)
  assert not same_until(before, phases(begins=(0, 0.5), alpha=(0.7, 0.3)), 501)
  assert not same_until(before, phases(begins=(0, 600), alpha=(0.7, 0.3)), 601)
  assert same_until(phases(), phases(begins=(0, 700), masking_rate=(0.15, 0.05)), 700)


# --- batches from a store ---------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def stored(small_store):
  def make(schedule=SCHEDULE, process=(0, 1), **options):
    return StoredBatches(
      store=TokenStore(small_store.folder),
      rates={'el': 0.5, 'sw': 0.3, 'th': 0.2},
      batch_size=B,
      vocab_size=1500,
      seed=3,
      process=process,
      schedule=schedule,
      **options,
    )

  return make


def test_a_constant_schedule_gives_the_bits_of_none(stored):
  constant = (Sampling(0, 100, (0.5, 0.3, 0.2), 0.15, None),)
  for step in 0, 37, 99, 120:  # batches are made ahead, beyond the end of the run
    assert_same(stored(constant).batch(step), stored(()).batch(step))


def test_languages_and_masks_of_stored_rows_follow_the_schedule(stored):
  for sampling in SCHEDULE:
    steps = range(sampling.begin, sampling.end)
    batches = [stored().batch(step) for step in steps]
    counts = np.bincount(np.concatenate([batch['language'] for batch in batches]), minlength=3)
    np.testing.assert_allclose(counts, np.array(sampling.rates) * B * len(steps), atol=3)  # exact interleaving
    assert_masks_follow(batches, sampling)


def assert_masks_follow(batches, sampling):
  """Slots are the phase's; of each row the rounded share of its tokens is masked."""
  for batch in batches:
    assert batch['targets'].shape[1] == sampling.slots
    tokens = np.count_nonzero(batch['segment_ids'], axis=1)
    masked = np.count_nonzero(batch['weights'], axis=1)
    np.testing.assert_array_equal(masked, np.clip(np.rint(tokens * sampling.masking_rate), 1, sampling.slots))


def test_every_row_of_a_language_comes_once_an_epoch_whatever_the_phases(stored, small_store):
  store = TokenStore(small_store.folder)
  languages, indices = map(np.concatenate, zip(*(stored().rows_of(step) for step in range(160)), strict=True))
  for number, language in enumerate(('el', 'sw', 'th')):
    drawn, count = indices[languages == number], store.rows(language, 'train')
    assert len(drawn) > count
    for begin in range(0, len(drawn) - count, count):
      assert np.array_equal(np.sort(drawn[begin : begin + count]), np.arange(count))


@pytest.mark.parametrize('step', [0, 39, 40, 100])
def test_any_number_of_hosts_reads_the_same_rows_read_together_or_alone(stored, step):
  whole = stored().batch(step)
  parts = [stored(process=(index, 3)).batch(step) for index in range(3)]
  assert_same({name: np.concatenate([part[name] for part in parts]) for name in whole}, whole)
  first = max(0, step - 2)
  together = itertools.islice(stored(read_threads=2).batches(first), step - first + 3)
  for number, (batch, _) in enumerate(together, start=first):
    assert_same(batch, stored().batch(number))


# --- batches from streams ---------------------------------------------------------------------------------------------


STREAMED = (
  Sampling(0, 12, (0.8, 0.0, 0.2), 0.3, 5),
  Sampling(12, 20, (0.2, 0.5, 0.3), 0.15, 3),
  Sampling(20, 30, (0.4, 0.6, 0.0), 0.15, 3),
)


def streams():
  """Two phases of rows of 16, then one of rows of 24."""
  short = dataclasses.replace(SOURCE, schedule=STREAMED[:2])
  long = dataclasses.replace(SOURCE, sequence_length=24, schedule=STREAMED[2:])
  return PhasedBatches.chain([(0, short), (20, long)], SOURCE)


@pytest.fixture(scope='module')
def uninterrupted():
  return list(itertools.islice(streams().batches(), 30))


def test_streams_follow_the_schedule(uninterrupted):
  for sampling in STREAMED:
    batches = [batch for batch, _ in uninterrupted[sampling.begin : sampling.end]]
    drawn = np.concatenate([batch['language'] for batch in batches])
    for language, rate in enumerate(sampling.rates):
      deviation = math.sqrt(len(drawn) * rate * (1 - rate))
      assert abs(np.count_nonzero(drawn == language) - rate * len(drawn)) <= 3 * deviation
    assert_masks_follow(batches, sampling)
  assert [batch['input_ids'].shape[1] for batch, _ in uninterrupted] == [16] * 20 + [24] * 10


@pytest.mark.parametrize('step', [1, 11, 12, 13, 19, 20, 21, 29])
def test_a_stream_resumes_at_any_step_also_at_a_border(uninterrupted, step):
  state = json.loads(json.dumps(uninterrupted[step - 1][1]))
  resumed = itertools.islice(streams().batches(step, state), 30 - step)
  for (ours, ours_state), (theirs, theirs_state) in zip(resumed, uninterrupted[step:], strict=True):
    assert_same(ours, theirs)
    assert ours_state == theirs_state


@pytest.mark.parametrize('language', ['de', 'en'])
def test_longer_rows_begin_where_the_window_of_the_shorter_ones_began(uninterrupted, language):
  state, number = uninterrupted[19][1][language], list(SOURCE.rates).index(language)
  source = SourcePlace(state['source_example'], state['source_document'])
  documents = (document for document, _ in open_documents(language, 'train', source))
  documents = itertools.islice(documents, state['document'] - source.document, None)
  packed = pack(documents, 24, SOURCE.special, start=Place(state['document'], state['offset']))
  first_window = [row.tolist() for row, _ in itertools.islice(packed, SOURCE.shuffle_rows)]
  drawn = [row.tolist() for batch, _ in uninterrupted[20:] for row in unmasked(batch)[batch['language'] == number]]
  assert sorted(drawn[: SOURCE.shuffle_rows]) == sorted(first_window)


def test_held_out_rows_are_those_of_the_run_without_phases(stored):
  in_phases = dataclasses.replace(SOURCE, schedule=STREAMED)
  for source, own in (
    (streams(), SOURCE),
    (in_phases, SOURCE),
    (stored(evaluation_rows=7), stored((), evaluation_rows=7)),
  ):
    for ours, theirs in zip(source.evaluation_batches(), own.evaluation_batches(), strict=True):
      assert_same(ours, theirs)
