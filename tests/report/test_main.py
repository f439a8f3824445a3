"""Whole reports: of a sweep, of half of one, of hostile names; and the command."""

import itertools
import json
import pathlib
import re

import made_up_sweep
import PIL.Image
import pytest
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


@pytest.fixture(scope='module')
def sweep(tmp_path_factory) -> pathlib.Path:
  """A sweep of three models."""
  folder = tmp_path_factory.mktemp('making') / 'sweep'
  return made_up_sweep.write_sweep(folder, ['in128_out128', 'in128_out768', 'in128_out3072'], seeds=2)


def test_a_sweep_becomes_a_page_with_every_section(sweep, capsys):
  assert main([str(sweep)]) == 0
  read = read_page(sweep / 'report')
  for title in (
    'Models',
    'Loss',
    'Languages',
    'Parameters',
    'Paper tables',
    'Figures 1 and 2',
    'XTREME',
    'Every score',
    'Analyses',
    'Time',
  ):
    assert title in read.text
  assert 'RemBERT: a made-up sweep' in read.text
  printed = capsys.readouterr().out
  assert printed.splitlines()[-1].startswith('report: ')
  assert 'sweep/report/index.html' in printed.replace('\n', '')
  for file in (sweep / 'report').glob('*.png'):
    with PIL.Image.open(file) as picture:
      picture.verify()


def test_half_a_sweep_is_shown_as_far_as_it_is(tmp_path):
  is_there = lambda workdir: workdir.startswith('pretrain/in128_out128') or 'in128_out768/xnli_whole/seed_1' in workdir
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out128', 'in128_out768'], seeds=2, is_there=is_there)
  assert main([str(folder)]) == 0
  text = read_page(folder / 'report').text
  assert 'no results yet' in text
  assert '1 of 2 seeds' in text


def test_a_sweep_of_which_nothing_is_done_is_a_page(tmp_path):
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out128'], is_there=lambda workdir: False)
  assert main([str(folder)]) == 0
  assert '0 of 1' in read_page(folder / 'report').text


def test_names_and_texts_of_runs_are_never_markup(tmp_path):
  folder = made_up_sweep.write_sweep(tmp_path / 'sweep', ['in128_out768'], seeds=1, languages=('en', EVIL))
  content = json.loads((folder / 'sweep.json').read_text())
  content |= {'name': EVIL, 'scale': EVIL, 'asked': [EVIL], 'code': {'version': EVIL, 'commit': EVIL}}
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


def test_the_same_folders_make_the_same_report(tmp_path):
  folder = made_up_sweep.write_pretraining(tmp_path / 'run')
  first, second = (make(Results(load.read([folder]))) for _ in range(2))
  assert first == second


def test_a_report_again_replaces_what_has_changed(tmp_path):
  folder = made_up_sweep.write_pretraining(tmp_path / 'run')
  main([str(folder)])
  before = (folder / 'report/index.html').read_text()
  (folder / 'metrics.jsonl').open('a').write('{"step": 210, "loss": 1.0}\n')
  main([str(folder)])
  assert (folder / 'report/index.html').read_text() != before
  assert not list((folder / 'report').glob('*.partial'))


def test_progress_goes_from_nothing_to_the_end_by_section(tmp_path):
  told = []
  made_up_sweep.write_pretraining(tmp_path / 'run')
  make(Results(load.read([tmp_path / 'run'])), on_progress=lambda share, note: told.append((share, note)))
  assert [note for _, note in told[:3]] == ['overview', 'losses', 'languages']
  assert told[0][0] == 0
  assert all(before < after for (before, _), (after, _) in itertools.pairwise(told))


def test_what_cannot_be_shown_ends_with_two_and_one_message(tmp_path, capsys):
  assert main([str(tmp_path)]) == 2
  error = capsys.readouterr().err
  assert error.startswith('rembert: nothing here that a report can be made of')
  assert 'sweep.json' in error
  assert main([str(tmp_path / 'nowhere')]) == 2


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path, capsys):
  folder = made_up_sweep.write_pretraining(tmp_path / 'run')
  (tmp_path / 'file').write_text('')
  assert main([str(folder), f'--output={tmp_path / "file"}']) == 2
  assert 'the report cannot be written to' in capsys.readouterr().err


def test_help_says_what_a_folder_can_be(capsys):
  with pytest.raises(SystemExit) as end:
    main(['--help'])
  assert end.value.code == 0
  words = capsys.readouterr().out
  for what in ('sweep.json', 'launch.xtreme', 'side by side', 'CSV', '--output', '--title', 'exit codes'):
    assert what in words
  assert max(map(len, words.splitlines())) <= 120
  assert not re.search(r'\bTODO\b', words)
