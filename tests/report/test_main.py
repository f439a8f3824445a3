"""Whole reports: of a sweep, of half of one, of hostile names; and the command."""

import itertools
import json

import made_up_sweep
import PIL.Image
from parsed_pages import Reader

from rembert.report import load
from rembert.report.__main__ import main, make
from rembert.report.scores import Results

EVIL = '</style><script>alert("x")</script><img src=x onerror=\'y\'>&amp;$\\frac{'


def read_page(folder):
  html = (folder / 'index.html').read_text()
  read = Reader(html)
  ids = [value for name, value in read.attributes if name == 'id']
  assert len(ids) == len(set(ids))
  assert read.tags.count('h1') == 1
  assert 'script' not in read.tags
  assert not [name for name, _ in read.attributes if name.startswith('on')]
  linked = {value for name, value in read.attributes if name == 'href' and not value.startswith(('#', 'data:'))}
  assert linked == {path.name for path in folder.iterdir()} - {'index.html'}
  return read


def test_names_and_texts_of_runs_are_never_markup(tmp_path, capsys):
  folder = made_up_sweep.write_sweep(tmp_path / 'sweep', ['in128_out768'], seeds=1, languages=('en', EVIL))
  content = json.loads((folder / 'sweep.json').read_text())
  content |= {'name': EVIL, 'scale': EVIL, 'asked': [[EVIL]], 'code': {'version': EVIL, 'commit': EVIL, 'dirty': True}}
  (model,) = content['models']
  model |= {'name': EVIL, 'settings': {EVIL: EVIL}}
  model['rows'].append([4, EVIL])
  for learned in model['learned'][:3]:
    learned['variant'] = EVIL
  (folder / 'sweep.json').write_text(json.dumps(content))
  workdir = folder / model['pretrained'][0]['workdir']
  (workdir / 'config.gin').open('a').write(f'data.text = {EVIL!r}\n')
  analysis = folder / model['analyses'][0]['workdir'] / 'analysis.json'
  analysis.write_text(json.dumps({'analysis': EVIL, 'facts': {EVIL: EVIL}, 'results': {EVIL: EVIL, 'a': {EVIL: 1}}}))
  assert main([str(folder), f'--title={EVIL}', f'--output={tmp_path / "out"}']) == 0
  read = read_page(tmp_path / 'out')
  assert read.text.count(EVIL) > 20
  for words in ('Models', 'Loss', 'Parameters', 'Paper tables', 'XTREME', 'Every score'):
    assert words in read.text
  assert 'out/index.html' in capsys.readouterr().out.replace('\n', '')
  for file in (tmp_path / 'out').glob('*.png'):
    with PIL.Image.open(file) as picture:
      picture.verify()


def test_the_same_folders_make_the_same_report_and_others_replace_it(tmp_path):
  folder = made_up_sweep.write_pretraining(tmp_path / 'run')
  told = []
  html, files = make(Results(load.read([folder])), on_progress=lambda fraction, note: told.append((fraction, note)))
  assert [note for _, note in told[:3]] == ['overview', 'losses', 'languages']
  assert told[0][0] == 0
  assert all(before < after for (before, _), (after, _) in itertools.pairwise(told))
  assert main([str(folder)]) == 0
  written = {path.name: path.read_bytes() for path in (folder / 'report').iterdir()}
  assert written == files | {'index.html': html.encode()}
  (folder / 'metrics.jsonl').open('a').write('{"step": 210, "loss": 1.0}\n')
  assert main([str(folder)]) == 0
  assert (folder / 'report/index.html').read_text() != html
  assert not list((folder / 'report').glob('*.partial'))


def test_what_cannot_be_shown_or_written_ends_with_two_and_one_message(tmp_path, capsys):
  assert main([str(tmp_path)]) == 2
  error = capsys.readouterr().err
  assert error.startswith('rembert: no results of a run, sweep or benchmark found')
  assert 'sweep.json' in error
  assert main([str(tmp_path / 'nowhere')]) == 2
  folder = made_up_sweep.write_pretraining(tmp_path / 'run')
  (tmp_path / 'file').write_text('')
  assert main([str(folder), f'--output={tmp_path / "file"}']) == 2
  assert 'the report cannot be written to' in capsys.readouterr().err
