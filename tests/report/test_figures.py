"""Curves and the paper's figures: warnings, marks and colours (what is drawn: test_golden.py)."""

import made_up_sweep

from rembert import paper
from rembert.report import load
from rembert.report.figures import in_our_colours, languages, losses
from rembert.report.scores import Results


def test_losses_of_other_vocabularies_come_with_a_warning(tmp_path, sweep):
  folders = [made_up_sweep.write_pretraining(tmp_path / name) for name in ('a', 'b')]
  file = folders[0] / 'config.gin'
  file.write_text(file.read_text().replace('vocab_size = 2000', 'vocab_size = 3000'))
  warning, *_ = losses(Results(load.read(folders))).blocks
  assert 'vocabularies differ' in warning
  assert not isinstance(losses(sweep).blocks[0], str)


def test_the_best_model_of_each_is_marked(run, sweep, tables):
  alone = tables(languages(run))['Each language']
  assert list(alone.frame.index) == ['de', 'en', 'ru', 'sw', 'zh']
  assert {alone.look(language, 'run') for language in alone.frame.index} == {''}
  together = tables(languages(sweep))['Languages of all models']
  for language, losses_of_models in together.frame.astype(float).iterrows():
    marked = [model for model in together.frame if together.look(language, model) == 'best']
    assert losses_of_models[marked].min() == losses_of_models.min()
    assert marked


# --- the paper's figures ----------------------------------------------------------------------------------------------


def test_the_papers_curves_have_the_colours_of_our_models(sweep):
  places = {name: place for place, name, _ in in_our_colours(paper.FIGURE_1, sweep.models)}
  assert (places['in128_out128'], places['in128_out768']) == (2, 3)
  assert places['in128_out3072'] == 5  # no model reproduces it: a colour that is free
