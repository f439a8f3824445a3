"""Filling masks and embedding lines, as a person at a keyboard would."""

import io
import pathlib

import numpy as np
import pytest

import rembert
from rembert.convert.__main__ import main as convert
from rembert.inference.embed import embed_lines
from rembert.inference.model import fill_masks, text_encoder
from rembert.jobs.predict import main


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


def test_embeddings_are_written_in_the_order_of_the_lines_and_long_ones_are_cut(run, tmp_path):
  lines = ['die Stadt', 'das Meer\u2028und mehr', '', 'das Meer ' * 40, 'der Fluss fließt']
  (tmp_path / 'lines.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')
  vectors = {}
  for dtype in 'float32', 'bfloat16':
    arguments = ['embed', str(run), str(tmp_path / 'lines.txt'), str(tmp_path / 'out.npz')]
    assert main([*arguments, '--layer=1', f'--dtype={dtype}', '--batch_size=3']) == 0
    with np.load(tmp_path / 'out.npz') as arrays:
      vectors[dtype], layer = arrays['embeddings'], arrays['layer']
    assert (vectors[dtype].shape, vectors[dtype].dtype, layer) == ((5, 32), np.float32, 1)
  model = rembert.load(run)
  for line, vector in zip(lines, vectors['float32'], strict=True):
    alone = embed_lines(model, text_encoder(model), [line], layer=1, batch_size=1)[0]
    np.testing.assert_allclose(vector, alone, rtol=0, atol=1e-5 * max(1, np.abs(alone).max()))
  assert not np.any(vectors['float32'][2])
  distance = np.linalg.norm(vectors['bfloat16'] - vectors['float32']) / np.linalg.norm(vectors['float32'])
  assert 0 < distance < 2**-6  # rounding


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
