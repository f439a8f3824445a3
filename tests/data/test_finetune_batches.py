"""Every row once an epoch, in an order that (seed, step) decides; batches that hold the rows and nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembert.data.finetune_batches import Features, TrainingRows, eval_batches, pad_batch
from rembert.data.mixture import EPOCH_STREAM, random_stream
from rembert.errors import UsageError

PAD = 7
HEADS = ('classification', 'tagging', 'qa', 'multiple_choice', 'regression')


def make_rows(count, head='classification', longest=12, seed=0):
  """Row n begins with the id 100 + n; lengths and labels are random."""
  random = np.random.default_rng(seed)
  rows = []
  for number in range(count):
    size = int(random.integers(1, longest + 1))
    ids = random.integers(8, 90, size).astype(np.int32)
    ids[0] = 100 + number
    labels = random.integers(-1, 5, {'tagging': (size,), 'qa': (2,)}.get(head, ())).astype(np.int32)
    if head == 'regression':
      labels = np.float32(labels / 3)
    if head == 'multiple_choice':
      ids = np.stack([ids, np.where(np.arange(size) > size // 2, PAD, ids)])  # the second choice is shorter
    rows.append(Features(ids, random.integers(0, 2, ids.shape).astype(np.int32), labels, {}))
  return rows


def training(rows, **options):
  defaults = {'tasks': [rows], 'rates': [1.0], 'head': 'classification', 'batch_size': 4, 'sequence_length': 12}
  return TrainingRows(**defaults | {'pad': PAD, 'seed': 3} | options)


def numbers(batches, count):
  return [batch['input_ids'][:, 0] - 100 for batch in itertools.islice(batches, count)]


def test_epochs_and_seeds_differ_in_their_order():
  order = lambda **options: np.concatenate(numbers(training(make_rows(40), **options).batches(0), 20))
  assert (order()[:40] != order()[40:]).any()
  assert (order(seed=3) != order(seed=4)).any()
  np.testing.assert_array_equal(order(), order())
  with pytest.raises(UsageError, match='no training examples'):
    training([])


@given(step=st.integers(0, 10**7), hosts=st.sampled_from([1, 2, 4]))
@settings(deadline=None, max_examples=30)
def test_a_batch_is_a_function_of_its_step_and_hosts_share_it(step, hosts):
  rows = make_rows(11)
  whole = training(rows, batch_size=8)
  expected = next(itertools.islice(whole.batches(max(step - 1, 0)), min(step, 1), None))
  parts = [next(training(rows, batch_size=8, process=(index, hosts)).batches(step)) for index in range(hosts)]
  for name, array in expected.items():
    np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)


def test_one_task_is_drawn_as_it_always_was():
  """Runs that began with an earlier version resume: the order of a single task is that of (seed, epoch) alone."""
  seen = np.concatenate(numbers(training(make_rows(6), seed=3).batches(0), 3))
  expected = [random_stream(3, EPOCH_STREAM, epoch).permutation(6) for epoch in range(2)]
  assert seen.tolist() == np.concatenate(expected).tolist()


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), step=st.integers(0, 59), data=st.data())
@settings(deadline=None, max_examples=30)
def test_rows_of_several_tasks_come_at_their_rates_and_each_once_an_epoch(sizes, step, data):
  rows = make_rows(sum(sizes))
  tasks = [rows[end - size : end] for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
  rates = data.draw(st.lists(st.floats(0.1, 5), min_size=len(sizes), max_size=len(sizes)))
  source = training(rows, tasks=tasks, rates=rates, batch_size=10)
  seen = np.concatenate(numbers(source.batches(0), 60))
  for own, rate in zip(tasks, rates, strict=True):
    own = [row.input_ids[0] - 100 for row in own]
    of_task = [number for number in seen.tolist() if number in own]
    assert len(of_task) == pytest.approx(600 * rate / sum(rates), abs=len(sizes))
    epochs = [of_task[begin : begin + len(own)] for begin in range(0, len(of_task) - len(own), len(own))]
    assert all(sorted(epoch) == own for epoch in epochs)
  hosts = [training(rows, tasks=tasks, rates=rates, batch_size=10, process=(host, 2)) for host in (0, 1)]
  resumed = np.concatenate([numbers(host.batches(step), 1)[0] for host in hosts])
  assert resumed.tolist() == seen[10 * step : 10 * step + 10].tolist()


@pytest.mark.parametrize('head', HEADS)
def test_a_batch_holds_the_rows_and_nothing_else(head):
  rows = make_rows(5, head)
  batch = pad_batch(rows, head, size=7, length=12, pad=PAD, choices=rows[0].input_ids.shape[:-1])
  for place, row in enumerate(rows):
    end = row.input_ids.shape[-1]
    np.testing.assert_array_equal(batch['input_ids'][place, ..., :end], row.input_ids)
    np.testing.assert_array_equal(batch['token_type_ids'][place, ..., :end], row.token_type_ids)
    assert (batch['input_ids'][place, ..., end:] == PAD).all()
    np.testing.assert_array_equal(batch['segment_ids'][place], batch['input_ids'][place] != PAD)
    labels = batch['labels'][place]
    np.testing.assert_array_equal(labels[:end] if head == 'tagging' else labels, row.labels)
    assert head != 'tagging' or (labels[end:] == -1).all()
  for empty in (5, 6):
    assert np.isnan(batch['labels'][empty]) if head == 'regression' else (batch['labels'][empty] == -1).all()
    assert not batch['segment_ids'][empty].any()
  types = {name: array.dtype for name, array in batch.items()}
  assert types == dict.fromkeys(types, np.int32) | {'labels': np.float32 if head == 'regression' else np.int32}


@pytest.mark.parametrize('head', HEADS)
@pytest.mark.parametrize(('hosts', 'count'), [(1, 9), (2, 1), (2, 4), (2, 9)])
def test_every_row_is_evaluated_once(head, hosts, count):
  rows = make_rows(count, head, longest=100)
  of_hosts = [
    list(eval_batches(rows, head, batch_size=4, longest=100, pad=PAD, process=(index, hosts))) for index in range(hosts)
  ]
  evaluated = []
  for same in zip(*of_hosts, strict=True):
    chosen = same[0][0]
    ids = np.concatenate([batch['input_ids'] for _, batch in same])
    assert len(ids) == 4
    assert all((other == chosen).all() for other, _ in same)
    for place, number in enumerate(chosen):
      np.testing.assert_array_equal(ids[place, ..., : rows[number].input_ids.shape[-1]], rows[number].input_ids)
    evaluated += chosen.tolist()
    assert ids.shape[-1] in (32, 64, 96, 100)
  assert sorted(evaluated) == list(range(count))
