"""What Hugging Face's RemBERT computed, as files: outputs and gradients of every head, without torch.

The files are made by `make golden`; `make parity` compares live, on more configurations.
"""

import pytest
from hugging_face_cases import (
  CONFIGURATIONS,
  GOLDEN,
  GOLDEN_CASES,
  TOLERANCE,
  as_our_tree,
  batch,
  differences,
  golden_file,
  load_golden,
  run_ours,
)


def test_every_file_is_compared():
  assert {golden_file(*case) for case in GOLDEN_CASES} == set(GOLDEN.glob('*.npz'))


@pytest.mark.parametrize(('name', 'head'), GOLDEN_CASES, ids=lambda part: part)
def test_outputs_and_gradients_are_those_of_hugging_face(name, head):
  config = CONFIGURATIONS[name]
  weights, theirs = load_golden(golden_file(name, head))
  ours = run_ours(config, head, batch(config, head), as_our_tree(weights, config))
  for quantity, by_tensor in differences(ours, theirs, config).items():
    for tensor, figure in by_tensor.items():
      assert figure <= TOLERANCE, f'{quantity} {tensor}'
