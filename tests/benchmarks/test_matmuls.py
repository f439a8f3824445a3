import dataclasses

import numpy as np
import pytest

from benchmarks import encode, matmuls, train_step
from benchmarks.settings import SMALL
from rembert.aot import flops

TINY = dataclasses.replace(SMALL, vocab_size=400, hidden_size=16, num_attention_heads=2, intermediate_size=32)


def flops_of(products) -> int:
  return sum(2 * b * m * k * n * count for (b, m, k, n), count in products.items())


@pytest.mark.parametrize(('last_queries', 'slots'), [(None, 0), (1, 0), (3, 3), (None, 3)])
@pytest.mark.parametrize('input_embedding_size', [8, 16])
def test_their_flops_are_those_of_the_model(last_queries, slots, input_embedding_size):
  config = dataclasses.replace(TINY, input_embedding_size=input_embedding_size)
  products = matmuls.of_forward(config, 5, 12, last_queries=last_queries, slots=slots)
  expected = 5 * flops.forward_flops_per_row(config, 12, slots, last_queries=last_queries)
  assert flops_of(products) == expected
  assert flops_of(matmuls.with_backward(products)) == 3 * expected


def test_the_gradient_of_each_factor_is_a_product_too():
  assert matmuls.with_backward({(2, 3, 4, 5): 7}) == {(2, 3, 4, 5): 7, (2, 3, 5, 4): 7, (2, 4, 3, 5): 7}


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('library', ['xla', 'torch'])
def test_each_library_multiplies(library, dtype):
  if library == 'torch':
    pytest.importorskip('torch', reason='`make bench` installs torch')
  getattr(matmuls, f'prepare_{library}')({(1, 3, 4, 5): 2, (2, 3, 4, 5): 1}, dtype)()


def test_benchmarks_of_steps_and_of_sentences_have_them_on_a_cpu(tmp_path):
  found = {
    **{
      name: train_step.pretraining_candidates(each, tmp_path)
      for name, each in train_step.PRETRAINING.items()
      if each.platform == 'cpu'
    },
    'pairs': train_step.finetuning_candidates(
      dataclasses.replace(train_step.FINETUNING['xnli'], config=TINY), tmp_path
    ),
  }
  for candidates in found.values():
    *_, torch, xla = candidates
    assert (torch.prepare, xla.prepare) == (matmuls.prepare_torch, matmuls.prepare_xla)
    assert torch.arguments == (*xla.arguments, 'cpu')
    assert torch.work == candidates[0].work
    assert flops_of(torch.arguments[0]) / 1e9 == pytest.approx(torch.work[train_step.USEFUL])


def test_those_of_sentences_cover_all_of_their_tokens(tmp_path):
  setting = encode.Setting(TINY, sentences=40)
  *_, xla = encode.candidates(setting, tmp_path)
  positions = sum(batch.input_ids.size for batch in encode.packed(setting))
  by_formula = sum(
    flops.forward_flops_per_row(TINY, length, 0) * rows
    for rows, length in (batch.input_ids.shape for batch in encode.packed(setting))
  )
  assert flops_of(xla.arguments[0]) == by_formula
  assert positions >= sum(map(np.size, encode.sentences(setting)))
