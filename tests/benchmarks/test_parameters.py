"""The picture of the README: of the models it says, as they are counted, and small enough to be loaded by anybody."""

import PIL.Image
import pytest

from benchmarks import parameters


def test_it_is_of_the_models_of_the_paper():
  counts = {name.replace('\n', ' '): each for name, each in parameters.counted()}
  bert, decoupled, reinvested, rembert = counts.values()
  assert 'multilingual BERT' in next(iter(counts))
  # Half of BERT is its table (Table 1: 52 %), and fine-tuning keeps it.
  assert bert.by_part['word embedding'] / bert.pre_training == pytest.approx(0.52, abs=0.005)
  assert bert.kept_by_part['word embedding'] == bert.by_part['word embedding']
  assert decoupled.fine_tuning < 0.6 * bert.fine_tuning
  assert reinvested.fine_tuning == pytest.approx(bert.fine_tuning, rel=0.01)
  assert (rembert.pre_training, rembert.fine_tuning) == (994_591_804, 575_920_384)
  assert 'output embedding' not in {part for part, count in rembert.kept_by_part.items() if count}


def test_it_can_be_drawn_anew_as_large_as_it_is(tmp_path, monkeypatch):
  monkeypatch.setattr(parameters, 'ROOT', tmp_path)
  monkeypatch.setattr(parameters, 'PICTURE', tmp_path / 'parameters.png')
  stored = PIL.Image.open(parameters.__file__.replace('benchmarks/parameters.py', 'docs/images/parameters.png'))
  parameters.main()
  drawn = PIL.Image.open(tmp_path / 'parameters.png')
  assert drawn.size == stored.size
  assert (tmp_path / 'parameters.png').stat().st_size < 150_000
