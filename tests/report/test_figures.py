"""Curves and the paper's figures: which there are, their points and colours (what is drawn: test_golden.py)."""

import pathlib

import made_up_sweep

from rembert import paper
from rembert.report import load
from rembert.report.figures import by_kept_layers, by_layer, in_our_colours, languages, losses
from rembert.report.load import ANALYSIS, Model, Run
from rembert.report.scores import Results


def test_a_run_alone_has_its_loss_and_several_have_an_overlay(run, sweep, pictures):
  alone = pictures(losses(run))
  assert set(alone) == {'Loss', 'MLM accuracy'}
  assert 'the unigram baseline has 7.200' in alone['Loss'].caption
  assert set(pictures(losses(sweep))) == {'Eval loss', 'MLM accuracy', 'Training loss'}


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


def test_of_many_languages_the_best_and_the_worst_are_named(tmp_path, pictures):
  names = [f'l{number:02d}' for number in range(12)]
  folder = made_up_sweep.write_pretraining(tmp_path / 'run', languages=names)
  (picture,) = pictures(languages(Results(load.read([folder])))).values()
  assert {text.get_text() for text in picture.drawing.axes.texts} == {'l00', 'l06', 'l11'}


# --- the paper's figures ----------------------------------------------------------------------------------------------


def test_figure_1_has_a_point_for_every_number_of_layers_and_seed(sweep):
  found = by_kept_layers(sweep)
  of_model = found[found['model'] == 'in128_out128']
  assert set(of_model['task']) == {'xnli'}
  assert sorted(of_model['layers']) == [2, 2, 3, 3, 4, 4]
  assert 'layers23to12' not in set(found['model'])  # Table 5 cuts layers for another reason


def test_figure_2_has_every_layer_but_the_embeddings(sweep):
  layers = by_layer(sweep.models).groupby('model')['layer'].agg(list)
  assert layers['in128_out128'] == [1, 2, 3, 4]
  assert layers['layers23to12'] == list(range(1, 9))


def test_retrieval_that_is_none_is_no_curve():
  for results in ({}, {'layers': 3}, {'layers': [1], 'mean': 'x'}, {'layers': ['a'], 'mean': [1.0]}):
    run = Run('x', pathlib.Path('x'), ANALYSIS, task='layer_retrieval', results=results)
    assert by_layer([Model('m', plan=(run,))]).empty


def test_the_papers_curves_have_the_colours_of_our_models(sweep):
  places = {name: place for place, name, _ in in_our_colours(paper.FIGURE_1, sweep.models)}
  assert (places['in128_out128'], places['in128_out768']) == (2, 3)
  assert places['in128_out3072'] == 5  # no model reproduces it: a colour that is free
