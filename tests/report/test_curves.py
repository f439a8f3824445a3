"""Loss over steps; what is drawn is compared with golden files (test_golden.py)."""

import json

import made_up_sweep

from rembert.report import load
from rembert.report.curves import languages, losses
from rembert.report.scores import Results


def test_a_run_alone_has_its_loss_and_several_have_an_overlay(run, sweep, pictures):
  alone = pictures(losses(run))
  assert set(alone) == {'Loss', 'MLM accuracy'}
  assert 'frequent each piece is costs 7.200' in alone['Loss'].caption
  assert set(pictures(losses(sweep))) == {'Held-out loss', 'MLM accuracy', 'Training loss'}


def test_losses_of_other_vocabularies_come_with_a_warning(tmp_path, sweep):
  folders = [made_up_sweep.write_pretraining(tmp_path / name) for name in ('a', 'b')]
  file = folders[0] / 'checkpoints/200/meta/metadata'
  file.write_text(json.dumps(json.loads(file.read_text()) | {'RemBertConfig.vocab_size': 3000}))
  warnings = lambda results: [block for block in losses(results).blocks if isinstance(block, str)]
  assert 'vocabularies differ' in warnings(Results(load.read(folders)))[0]
  assert not warnings(sweep)


def test_languages_stand_by_loss_and_the_best_model_of_each_is_marked(run, sweep, tables):
  table = tables(languages(run))['Each language']
  assert list(table.frame.index) == ['en', 'de', 'ru', 'sw', 'zh']  # the lowest loss first
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
