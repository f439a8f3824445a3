"""The pictures of parameters: of the models they say, as they are counted, and small enough to be loaded by anybody."""

import PIL.Image
import pytest

from docs.tools import parameters


def test_the_readme_s_is_of_the_models_of_the_paper():
  models = parameters.PICTURES['parameters.png']
  bert, decoupled, reinvested, rembert = parameters.counted(models)
  assert 'multilingual BERT' in next(iter(models.values()))
  # Half of BERT is its table (Table 1: 52 %), and fine-tuning keeps it.
  assert bert.by_part['word embedding'] / bert.pre_training == pytest.approx(0.52, abs=0.005)
  assert bert.kept_by_part['word embedding'] == bert.by_part['word embedding']
  assert decoupled.fine_tuning < 0.6 * bert.fine_tuning
  assert reinvested.fine_tuning == pytest.approx(bert.fine_tuning, rel=0.01)
  assert (rembert.pre_training, rembert.fine_tuning) == (994_591_804, 575_920_384)
  assert 'output embedding' not in {part for part, count in rembert.kept_by_part.items() if count}


def test_they_can_be_drawn_again_at_the_same_size(tmp_path, monkeypatch):
  stored = {file: PIL.Image.open(parameters.IMAGES / file).size for file in parameters.PICTURES}
  monkeypatch.setattr(parameters, 'IMAGES', tmp_path)
  parameters.main()
  assert {file: PIL.Image.open(tmp_path / file).size for file in parameters.PICTURES} == stored
  assert all((tmp_path / file).stat().st_size < 150_000 for file in parameters.PICTURES)
