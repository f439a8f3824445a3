"""The command, from archives on a server of this machine to files, counts and exit codes."""

import argparse
import hashlib
import io
import json

import pytest
import rich.console
import xtreme_archives
from file_server import serve_files

from rembert.tracking.console import Console
from tasks.xtreme import download
from tasks.xtreme.archives import SOURCES, Downloads, Source
from tasks.xtreme.config import TASKS
from tasks.xtreme.files import XtremeFolder

# Examples in the archives of tests/support/xtreme_archives.py, by task and split.
COUNTS = {
  'xnli': {'train': 2, 'dev': 3, 'test': 3},
  'pawsx': {'train': 2, 'dev': 2, 'test': 2},
  'panx': {'train': 2, 'dev': 2, 'test': 2},
  'udpos': {'train': 2, 'dev': 2, 'test': 2},
  'squad': {'train': 3, 'dev': 3},
  'xquad': {'test': 3},
  'mlqa': {'dev': 3, 'test': 3},
  'tydiqa': {'train': 1, 'test': 1},
  'tatoeba': {'test': 3},
  'bucc2018': {'dev': 1, 'test': 1},
}


@pytest.fixture
def counts(monkeypatch):
  """The small archives have their own numbers of examples."""
  known = {
    task: {split: dict.fromkeys(download.LANGUAGES[task], count) for split, count in splits.items()}
    for task, splits in COUNTS.items()
  }
  monkeypatch.setattr(download, 'expected_counts', lambda: known)
  return known


@pytest.fixture
def server(monkeypatch):
  """All archives, on a server; one of them nobody knows the checksum of."""
  with serve_files() as files:
    sources = {}
    for task in SOURCES:
      archives = xtreme_archives.published(task)
      assert {source.name for source in SOURCES[task]} == set(archives)
      files.files |= {f'/{name}': content for name, content in archives.items()}
      sources[task] = tuple(
        Source(
          name,
          (f'{files.url}/{name}',),
          *((None, None) if name == 'XNLI-MT-1.0.zip' else (len(content), hashlib.sha256(content).hexdigest())),
        )
        for name, content in archives.items()
      )
    monkeypatch.setattr(download, 'SOURCES', sources)
    yield files


@pytest.fixture
def run(tmp_path):
  """Function (**flags) → exit code and what was printed."""

  def command(tasks: str = ','.join(TASKS), **flags):
    console = Console(console=rich.console.Console(file=io.StringIO(), width=100, highlight=False))
    options = {'check': False, 'traceback': False} | flags
    options = argparse.Namespace(data_dir=str(tmp_path / 'xtreme'), tasks=tasks, **options)
    code = download.run(options, console, Downloads(tmp_path / 'xtreme', attempts=1, pause=0))
    return code, console.rich.file.getvalue()

  return command


def test_every_task_is_fetched_converted_and_complete(run, server, counts, tmp_path):
  code, shown = run()
  assert code == 0, shown
  assert 'xnli:' in shown
  assert 'unverified: XNLI-MT-1.0.zip' in shown
  assert shown.count('complete') == len(TASKS)
  folder = XtremeFolder(tmp_path / 'xtreme')
  for task in TASKS:
    assert download.take_inventory(folder, task).is_complete
  assert not list((tmp_path / 'xtreme').rglob('*.partial*'))
  asked = len(server.requests)
  code, shown = run()
  assert code == 0
  assert shown.count('complete already') == len(TASKS)
  assert len(server.requests) == asked


def test_the_files_are_those_of_xtremes_layout(run, server, counts, tmp_path):
  assert run('tydiqa,mlqa,udpos')[0] == 0
  root = tmp_path / 'xtreme'
  for name in (
    'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json',
    'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ko.dev.json',
    'mlqa/MLQA_V1/test/test-context-de-question-de.json',
    'udpos/train-en.tsv',
    'labels/udpos/test-yo.tsv',
    'labels/mlqa/test-vi.json',
  ):
    assert (root / name).is_file(), name
  assert not (root / 'xnli').exists()


def test_a_task_that_cannot_be_fetched_does_not_stop_the_others(run, server, counts):
  del server.files['/MLQA_V1.zip']
  code, shown = run('mlqa,xquad')
  assert code == 2
  assert 'MLQA_V1.zip cannot be fetched' in shown
  assert 'mlqa test: missing: en, es, de, ar, hi, vi, zh' in shown
  assert 'xquad: 22 files written' in shown


def test_an_archive_that_is_cut_off_leaves_nothing(run, server, counts, tmp_path, monkeypatch):
  whole = server.files['/x-final.tar.gz']
  server.files['/x-final.tar.gz'] = whole[: len(whole) // 2]
  monkeypatch.setitem(download.SOURCES, 'pawsx', (Source('x-final.tar.gz', (f'{server.url}/x-final.tar.gz',)),))
  code, shown = run('pawsx')
  assert code == 2
  assert 'the archive is damaged' in shown
  assert not (tmp_path / 'xtreme' / 'pawsx').exists()


def test_another_number_of_examples_leaves_nothing(run, server, counts, tmp_path):
  counts['xquad']['test']['th'] = 1190
  code, shown = run('xquad')
  assert code == 2
  assert 'xquad/xquad.th.json would have 3 examples, and XTREME has 1,190' in shown
  assert not (tmp_path / 'xtreme' / 'xquad').exists()


def test_files_that_cannot_be_written_are_one_error(run, server, counts, tmp_path):
  (tmp_path / 'xtreme').mkdir()
  (tmp_path / 'xtreme' / 'squad').write_text('in the way')
  code, shown = run('squad')
  assert code == 1
  assert 'the files of squad could not be written' in shown


# --- check --------------------------------------------------------------------


@pytest.fixture
def sample(run, server, counts, tmp_path):
  """Tatoeba, XNLI and PAN-X, complete."""
  assert run('tatoeba,xnli,panx,bucc2018')[0] == 0
  server.requests.clear()
  return tmp_path / 'xtreme'


def test_a_check_fetches_nothing_and_says_all_is_well(run, sample, server):
  code, shown = run('tatoeba,xnli', check=True)
  assert code == 0
  assert '15 of 15: 3 (15)' in shown
  assert 'incomplete' not in shown
  assert server.requests == []


def test_a_check_says_what_is_missing(run, sample):
  (sample / 'tatoeba' / 'sw-en.en').unlink()
  (sample / 'labels' / 'xnli' / 'test-de.tsv').unlink()
  (sample / 'labels' / 'xnli' / 'test-fr.tsv').write_text('neutral\n')
  (sample / 'panx' / 'test-jv.tsv').write_text('nur\nein\nSatz\n')
  (sample / 'panx' / 'dev-jv.tsv').unlink()
  (sample / 'panx' / 'train-en.tsv').write_bytes(b'\xff')
  (sample / 'labels' / 'bucc2018' / 'test-zh.tsv').write_text('zh-1\ten-2\nzh-2\ten-1\n')
  code, shown = run('tatoeba,xnli,panx,bucc2018', check=True)
  assert code == 1
  lines = shown.splitlines()
  assert 'tatoeba test: missing: sw' in lines
  assert 'xnli test: no gold labels: de' in lines
  assert 'xnli test: not as many labels as examples: fr (1 for 3)' in lines
  assert 'panx test: not as many examples as XTREME has: jv (1, not 2)' in lines
  assert any(line.startswith('panx train: cannot be read: en (') and 'not UTF-8' in line for line in lines)
  assert 'bucc2018 test: not as many examples as XTREME has: zh (2, not 1)' in lines
  assert not any('panx dev' in line for line in lines)  # nothing but English is chosen by


def test_quoted_line_ends_do_not_make_rows():
  assert download.count_text('xnli', 'dev-de.tsv', '"a\r\nb"\tc\r\nd\te\r\n') == 2
  assert download.count_text('panx', 'dev-de.tsv', 'a\nb\n\n\nc') == 2
  assert download.count_text('tatoeba', 'x.de', 'a\nb') == 2


# --- command line -------------------------------------------------------------


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--data_dir=x', '--tasks=xnli,xcopa'], "unknown task 'xcopa'"),
    (['--data_dir=gs://bucket/x'], 'on a local disk'),
    (['--data_dir=x', '--check'], 'there is no such folder'),
  ],
)
def test_what_cannot_be_done_is_told(arguments, words, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  assert download.main(arguments) == 2
  assert words in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == []


def test_a_check_exits_with_1_where_something_is_missing(root, capsys):
  data_dir = root / 'tests' / 'data' / 'xtreme'
  assert download.main([f'--data_dir={data_dir}', '--check', '--tasks=tatoeba']) == 1
  assert 'tatoeba test: missing: ar, he' in capsys.readouterr().out


def test_help_names_every_task(capsys):
  with pytest.raises(SystemExit):
    download.main(['--help'])
  shown = capsys.readouterr().out
  assert all(task in shown for task in TASKS)


def test_the_record_says_what_is_unverified(run, server, counts, tmp_path):
  run('xnli')
  record = json.loads((tmp_path / 'xtreme' / 'checksums.json').read_text())
  assert record['XNLI-1.0.zip']['state'] == 'verified'
  assert record['XNLI-MT-1.0.zip']['state'].startswith('unverified')


def test_a_task_without_sources_is_refused_and_the_others_are_fetched(run, server, counts, monkeypatch):
  monkeypatch.delitem(download.SOURCES, 'mlqa')
  code, shown = run('mlqa,xquad')
  assert code == 2
  assert 'nobody has said where the files of mlqa come from' in shown
  assert 'xquad: 22 files written' in shown
