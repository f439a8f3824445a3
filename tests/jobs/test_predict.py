"""Filling masks and embedding lines, as a person at a keyboard would."""

import io
import pathlib

import numpy as np
import pytest

import rembert
from rembert.convert.__main__ import main as convert
from rembert.inference.embed import embed_lines
from rembert.inference.fill_mask import fill_masks
from rembert.jobs.predict import main, text_encoder


@pytest.fixture
def run(random_run):
  return random_run


def test_candidates_are_the_best_of_the_softmax_over_all_pieces(run):
  model = rembert.load(run, 'mlm')
  encoder = text_encoder(model)
  text = 'der [MASK] fließt in [MASK] Meer'
  ids = np.asarray([encoder.encode(text)])
  logits = np.asarray(model(ids).logits[0], np.float64)
  found = fill_masks(model, encoder, text, top_k=7)
  assert len(found) == 2
  for candidates, position in zip(found, np.flatnonzero(ids[0] == 314), strict=True):
    softmax = np.exp(logits[position]) / np.exp(logits[position]).sum()
    assert [candidate.id for candidate in candidates] == np.argsort(-softmax)[:7].tolist()
    np.testing.assert_allclose(
      [candidate.probability for candidate in candidates], np.sort(softmax)[::-1][:7], rtol=1e-9
    )


def test_lines_keep_their_order_and_long_ones_are_cut(random_encoder):
  model = random_encoder
  encoder = text_encoder(model)
  lines = ['die Stadt', '', 'das Meer ' * 40, 'der Fluss fließt']
  together = embed_lines(model, encoder, lines, layer=2, batch_size=3)
  for line, vector in zip(lines, together, strict=True):
    alone = embed_lines(model, encoder, [line], layer=2, batch_size=1)[0]
    np.testing.assert_allclose(vector, alone, rtol=0, atol=1e-5 * max(1, np.abs(alone).max()))
  assert not np.any(together[1])


def test_the_table_shows_pieces_and_the_text_with_them(run, tmp_path, capsys, monkeypatch):
  assert convert(['to_hf', str(run), str(tmp_path / 'exported')]) == 0
  capsys.readouterr()
  shown = []
  for model in run, tmp_path / 'exported':
    assert main(['fill_mask', str(model), 'der [MASK] fließt', '--top_k=3']) == 0
    shown.append(capsys.readouterr().out)
  assert shown[0] == shown[1]
  assert shown[0].count('%') == 3
  monkeypatch.setattr('sys.stdin', io.StringIO('der [MASK] fließt\n\ndie [MASK]\n'))
  assert main(['fill_mask', str(run)]) == 0
  assert capsys.readouterr().out.count('%') == 10


def test_embeddings_are_written_with_their_layer(run, tmp_path, capsys):
  (tmp_path / 'lines.txt').write_text('die Stadt\ndas Meer\u2028und mehr\n', encoding='utf-8')
  assert main(['embed', str(run), str(tmp_path / 'lines.txt'), str(tmp_path / 'out.npz'), '--layer=1']) == 0
  with np.load(tmp_path / 'out.npz') as arrays:
    assert arrays['embeddings'].shape == (2, 32)
    assert arrays['layer'] == 1
  assert '2' in capsys.readouterr().out


def test_embeddings_in_bfloat16_are_those_of_float32_but_for_rounding(run, tmp_path):
  (tmp_path / 'lines.txt').write_text('die Stadt\ndas Meer\n', encoding='utf-8')
  vectors = {}
  for dtype in 'float32', 'bfloat16':
    assert main(['embed', str(run), str(tmp_path / 'lines.txt'), str(tmp_path / 'out.npz'), f'--dtype={dtype}']) == 0
    with np.load(tmp_path / 'out.npz') as arrays:
      vectors[dtype] = arrays['embeddings']
  assert vectors['bfloat16'].dtype == np.float32
  distance = np.linalg.norm(vectors['bfloat16'] - vectors['float32']) / np.linalg.norm(vectors['float32'])
  assert 0 < distance < 2**-6


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['fill_mask', 'RUN', 'kein Loch'], 'no [MASK] in the text'),
    (['fill_mask', 'RUN', '[MASK] ' * 60], 'positions'),
    (['fill_mask', 'nowhere', '[MASK]'], 'no model found'),
    (['fill_mask', 'RUN', '[MASK]', '--vocabulary=nothing'], 'the vocabulary cannot be read'),
    (['embed', 'RUN', 'nothing.txt', 'out.npz'], 'the file does not exist'),
    (['embed', 'RUN', 'EMPTY', 'out.npz'], 'no lines to embed'),
    (['embed', 'RUN', 'LINES', 'out.npz', '--layer=4'], 'no layer 4'),
  ],
  ids=lambda part: part if isinstance(part, str) else None,
)
def test_impossible_predictions_are_errors(run, tmp_path, monkeypatch, capsys, arguments, words):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('LINES').write_text('eine Zeile')
  pathlib.Path('EMPTY').write_text('')
  assert main([str(run) if argument == 'RUN' else argument for argument in arguments]) == 2
  assert words in capsys.readouterr().err
  assert not pathlib.Path('out.npz').exists()
