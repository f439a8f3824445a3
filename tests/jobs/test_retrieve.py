"""Retrieval from beginning to end with a small random model: what is written and what is shown."""

import io
import json
import shutil

import numpy as np
import pytest
import rich.console

from rembert.errors import RunError, UsageError
from rembert.inference.embed import embed_lines
from rembert.inference.model import text_encoder
from rembert.jobs import retrieve
from rembert.runtime.signals import Stopped, StopSignal
from rembert.tracking.console import Console
from tasks.xtreme import XtremeConfig
from tasks.xtreme.files import XtremeFolder


@pytest.fixture
def model(random_encoder):
  return random_encoder


@pytest.fixture
def folder(root, tmp_path):
  """A copy of the sample, to be changed."""
  shutil.copytree(root / 'tests' / 'data' / 'xtreme', tmp_path / 'xtreme')
  return XtremeFolder(tmp_path / 'xtreme')


@pytest.fixture
def evaluate(model, folder, tmp_path):
  """Function (task, **fields of the configuration) → results and what was printed."""

  def run(task: str, stop: StopSignal | None = None, **fields):
    console = Console(console=rich.console.Console(file=io.StringIO(), width=120, highlight=False))
    config = XtremeConfig(task=task, **fields)
    results = retrieve.run(
      model, text_encoder(model), folder, config, tmp_path / 'evaluated', console, stop or StopSignal(), batch_size=8
    )
    return results, console.rich.file.getvalue()

  return run


def predictions(tmp_path, task, language):
  return (tmp_path / 'evaluated' / 'predictions' / task / f'test-{language}.tsv').read_text().splitlines()


# --- which layer --------------------------------------------------------------


@pytest.mark.parametrize(('layers', 'layer'), [(12, 7), (24, 13), (32, 19), (23, 13), (3, 2), (1, 1)])
def test_the_layer_is_seven_of_twelve(layers, layer):
  assert retrieve.layer_of(XtremeConfig(task='tatoeba'), layers) == layer


def test_another_layer_can_be_chosen_if_the_model_has_it():
  assert retrieve.layer_of(XtremeConfig(task='tatoeba', layer=0), 12) == 0
  with pytest.raises(UsageError, match='the model has no layer 13'):
    retrieve.layer_of(XtremeConfig(task='tatoeba', layer=13), 12)


# --- results ------------------------------------------------------------------


def test_tatoeba_predictions_are_the_nearest_of_that_layer(evaluate, model, folder, tmp_path):
  results, shown = evaluate('tatoeba', layer=3)
  scores = []
  for language in ('de', 'sw', 'zh'):
    sides = [
      (folder.root / 'tatoeba' / f'{language}-en.{side}').read_text('utf-8').splitlines() for side in (language, 'en')
    ]
    source, english = (embed_lines(model, text_encoder(model), lines, layer=3).astype(float) for lines in sides)
    cosine = (source @ english.T) / np.linalg.norm(source, axis=1)[:, None] / np.linalg.norm(english, axis=1)
    gold = np.loadtxt(folder.root / 'labels' / 'tatoeba' / f'test-{language}.tsv', int)
    assert predictions(tmp_path, 'tatoeba', language) == [str(index) for index in cosine.argmax(1)]
    scores.append(100 * (cosine.argmax(1) == gold).mean())
    assert results['languages'][language]['accuracy'] == pytest.approx(scores[-1])
  assert results['mean'] == pytest.approx(np.mean(scores))
  assert results['chance'] == pytest.approx(100 / 12)
  assert results['mean_over'] == ['de', 'sw', 'zh']
  assert results['missing']['fr'] == 'not evaluated'
  assert len(results['missing']) == 33
  assert json.loads((tmp_path / 'evaluated' / 'results.json').read_text()) == results
  assert 'average (3 of 36 languages)' in shown
  assert f'tatoeba sw · accuracy {scores[1]:.1f} (chance 8.3) · 2 of 3' in shown


def test_bucc_predictions_are_pairs_of_ids(evaluate, tmp_path):
  results, shown = evaluate('bucc2018', languages=('fr',))
  for line in predictions(tmp_path, 'bucc2018', 'fr'):
    source, english = line.split('\t')
    assert source.startswith('fr-')
    assert english.startswith('en-')
  assert set(results['languages']['fr']) >= {'f1', 'precision', 'recall', 'threshold', 'chance'}
  assert results['mean'] == results['languages']['fr']['f1']
  assert 'average (1 of 4 languages)' in shown


def test_without_labels_there_is_no_score_and_a_language_is_not_in_the_mean(evaluate, folder, tmp_path):
  (folder.root / 'labels' / 'tatoeba' / 'test-sw.tsv').unlink()
  results, _ = evaluate('tatoeba')
  assert results['mean_over'] == ['de', 'zh']
  assert results['mean'] == pytest.approx(np.mean([results['languages'][name]['accuracy'] for name in ('de', 'zh')]))
  shutil.rmtree(folder.root / 'labels')
  results, shown = evaluate('tatoeba')
  assert (results['mean'], results['mean_over'], results['missing']['de']) == (None, [], 'no gold labels')
  assert 'no gold labels, predictions only' in shown
  assert len(predictions(tmp_path, 'tatoeba', 'de')) == 12


def test_a_stopped_run_has_no_results(evaluate, tmp_path):
  stop = StopSignal()
  stop.requested = 'SIGTERM'
  with pytest.raises(Stopped):
    evaluate('tatoeba', stop=stop)
  assert not (tmp_path / 'evaluated' / 'results.json').exists()


# --- errors -------------------------------------------------------------------


def test_a_workdir_that_cannot_be_written_to_is_one_error(evaluate, tmp_path):
  (tmp_path / 'evaluated').write_text('a file')
  with pytest.raises(RunError, match='the predictions could not be written'):
    evaluate('tatoeba')


def test_a_missing_file_of_a_requested_language_is_an_error(evaluate):
  with pytest.raises(UsageError, match='a file of the data is missing'):
    evaluate('tatoeba', languages=('fr',))
