"""The paper's figures: which points there are, and in which colours."""

import made_up_sweep
import pytest

from rembert import paper
from rembert.report import load
from rembert.report.figures import by_kept_layers, by_layer, figures, in_our_colours
from rembert.report.scores import Results


def test_figure_1_has_a_point_for_every_number_of_layers_and_seed(sweep, pictures):
  found = by_kept_layers(sweep)
  of_model = found[found['model'] == 'in128_out128']
  assert set(of_model['task']) == {'xnli'}
  assert sorted(of_model['layers']) == [2, 2, 3, 3, 4, 4]
  assert 'layers23to12' not in set(found['model'])  # Table 5 cuts layers for another reason
  assert set(pictures(figures(sweep))) == {
    'Figure 1 XNLI',
    'Figure 1 of the paper',
    'Figure 2',
    'Figure 2 of the paper',
  }


def test_figure_2_has_every_layer_but_the_embeddings(sweep):
  layers = by_layer(sweep.models).groupby('model')['layer'].agg(list)
  assert layers['in128_out128'] == [1, 2, 3, 4]
  assert layers['layers23to12'] == list(range(1, 9))


@pytest.mark.parametrize('results', [{}, {'layers': 3}, {'layers': [1], 'mean': 'x'}, {'layers': ['a'], 'mean': [1.0]}])
def test_retrieval_that_is_none_is_no_curve(results, tmp_path):
  workdir = made_up_sweep.write_analysis(tmp_path, 'layer_retrieval', results)
  assert by_layer(Results(load.read([workdir])).models).empty


def test_the_papers_curves_have_the_colours_of_our_models(sweep):
  places = {name: place for place, name, _ in in_our_colours(paper.FIGURE_1, sweep.models)}
  assert (places['in128_out128'], places['in128_out768']) == (2, 3)
  assert places['in128_out3072'] == 5  # no model reproduces it: a colour that is free
