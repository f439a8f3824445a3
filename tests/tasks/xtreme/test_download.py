"""The command, from archives on a server of this machine to files, counts and exit codes."""

import argparse
import errno
import hashlib
import io
import pathlib
import random

import pytest
import rich.console
import xtreme_archives
from local_server import serve_files

from rembert.errors import RunError, UsageError
from rembert.tracking.console import Console
from tasks.xtreme import LANGUAGES, TASKS, download
from tasks.xtreme.download import SOURCES, Source, fetch

# --- one file ---------------------------------------------------------------------------------------------------------

CONTENT = random.Random(0).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
  monkeypatch.setattr(download, '_PAUSES', (0, 0, 0))
  with serve_files() as files:
    files.files['/data.zip'] = CONTENT
    yield files


@pytest.fixture
def source(server):
  return Source('data.zip', (f'{server.url}/data.zip',), len(CONTENT), SHA256)


def names_in(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(source, server, tmp_path):
  fractions = []
  fetched = fetch(source, tmp_path / 'downloads', fractions.append)
  assert fetched.read_bytes() == CONTENT
  assert fractions == sorted(fractions)
  assert fractions[-1] == 1
  assert fetch(source, tmp_path / 'downloads') == fetched
  assert server.requests == ['/data.zip']
  assert names_in(tmp_path / 'downloads') == ['data.zip']


def test_a_connection_that_breaks_is_tried_again_by_this_run_and_by_the_next(source, server, tmp_path):
  server.breaks_after = [1_000_000, 100_000, 100_000, 5]
  with pytest.raises(RunError, match='is interrupted') as error:
    fetch(source, tmp_path)
  assert '100,000 of 3,000,000 bytes received' in error.value.where
  assert names_in(tmp_path) == []
  assert fetch(source, tmp_path).read_bytes() == CONTENT
  assert len(server.requests) == 5


def test_a_file_that_no_address_has_is_one_error_with_a_fix(server, tmp_path):
  urls = (f'{server.url}/gone.zip', 'http://127.0.0.1:9/data.zip')
  with pytest.raises(UsageError, match='cannot be fetched') as error:
    fetch(Source('data.zip', urls, 7, SHA256, by_hand='save it as {path}'), tmp_path)
  assert 'HTTP Error 404' in error.value.where
  assert 'Connection refused' in error.value.where
  assert error.value.fix == [f'save it as {tmp_path}/data.zip']
  assert names_in(tmp_path) == []
  second = Source('data.zip', (urls[0], f'{server.url}/data.zip'), len(CONTENT), SHA256)
  assert fetch(second, tmp_path).read_bytes() == CONTENT


def test_a_server_with_an_internal_error_is_asked_again(source, server, tmp_path):
  server.status['/data.zip'] = 503
  with pytest.raises(RunError, match='is interrupted') as error:
    fetch(source, tmp_path)
  assert 'HTTP Error 503' in error.value.where
  assert len(server.requests) == 3


@pytest.mark.parametrize('size', [len(CONTENT), 7])
def test_another_file_than_the_expected_one_is_not_kept(server, tmp_path, size):
  other = Source('data.zip', (f'{server.url}/data.zip',), size, hashlib.sha256(b'other').hexdigest())
  with pytest.raises(UsageError, match='cannot be fetched') as error:
    fetch(other, tmp_path)
  assert 'another file' in error.value.where
  assert names_in(tmp_path) == []


def test_a_file_saved_by_hand_is_used_if_it_is_the_right_one(source, server, tmp_path):
  file = tmp_path / 'data.zip'
  file.write_bytes(CONTENT)
  assert fetch(source, tmp_path) == file
  file.write_bytes(CONTENT[:-1])
  with pytest.raises(UsageError, match='is not the file that was expected') as error:
    fetch(source, tmp_path)
  assert error.value.fix == ['delete it, and run the command again']
  assert server.requests == []


def test_a_full_disk_is_one_error(source, monkeypatch, tmp_path):
  class Full(io.BytesIO):
    def write(self, _):
      raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(
    'builtins.open', lambda path, mode='r', open=open, **how: Full() if mode == 'wb' else open(path, mode, **how)
  )
  with pytest.raises(RunError, match='No space left') as error:
    fetch(source, tmp_path)
  assert error.value.__cause__.errno == errno.ENOSPC
  assert not (tmp_path / 'data.zip').exists()


def test_every_task_has_sources_with_a_size_and_a_checksum():
  assert set(SOURCES) == set(TASKS)
  sources = [source for task in SOURCES.values() for source in task]
  assert len({source.name for source in sources}) == len(sources)
  for source in sources:
    assert all(url.startswith('https://') and url.endswith(f'/{source.name}') for url in source.urls)
    assert source.size > 0
    assert len(bytes.fromhex(source.sha256)) == 32


# --- the command ------------------------------------------------------------------------------------------------------

COUNTS = {
  'xnli': {'train': {'en': 2}, 'dev': {'sw': 3}, 'test': dict.fromkeys(LANGUAGES['xnli'], 3)},
  'panx': {split: dict.fromkeys(LANGUAGES['panx'], 2) for split in ('train', 'dev', 'test')},
  'tydiqa': {'train': {'ko': 1}, 'test': {'ko': 1}},
  'bucc2018': {split: dict.fromkeys(LANGUAGES['bucc2018'], 1) for split in ('dev', 'test')},
}


@pytest.fixture
def archives(server, monkeypatch):
  """All archives, on a server."""
  sources = {}
  for task in SOURCES:
    published = xtreme_archives.published(task)
    assert {source.name for source in SOURCES[task]} == set(published)
    server.files |= {f'/{name}': content for name, content in published.items()}
    sources[task] = tuple(
      Source(name, (f'{server.url}/{name}',), len(content), hashlib.sha256(content).hexdigest())
      for name, content in published.items()
    )
  monkeypatch.setattr(download, 'SOURCES', sources)
  # The small archives have their own numbers of examples.
  monkeypatch.setattr(download, 'COUNTS', {task: {} for task in TASKS} | COUNTS)
  return server


@pytest.fixture
def run(tmp_path):
  """Function (**flags) → exit code and what was printed."""

  def command(tasks: str = ','.join(TASKS), **flags):
    console = Console(console=rich.console.Console(file=io.StringIO(), width=100, highlight=False))
    options = {'check': False, 'traceback': False} | flags
    code = download.run(argparse.Namespace(data_dir=str(tmp_path / 'xtreme'), tasks=tasks, **options), console)
    return code, console.rich.file.getvalue()

  return command


def test_every_task_is_fetched_converted_and_complete(run, archives, tmp_path):
  code, shown = run()
  assert code == 0, shown
  assert shown.count('downloaded, verified') == len(TASKS)
  assert shown.count('complete') == len(TASKS)
  root = tmp_path / 'xtreme'
  assert not list(root.rglob('*.partial'))
  for name in (
    'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ko.dev.json',
    'udpos/train-en.tsv',
    'labels/mlqa/test-vi.json',
  ):
    assert (root / name).is_file(), name
  requests = len(archives.requests)
  code, shown = run()
  assert code == 0
  assert shown.count('complete already') == len(TASKS)
  assert len(archives.requests) == requests


def test_a_task_that_cannot_be_fetched_does_not_stop_the_others(run, archives):
  del archives.files['/MLQA_V1.zip']
  code, shown = run('mlqa,xquad')
  assert code == 2
  assert 'MLQA_V1.zip cannot be fetched' in shown
  assert 'mlqa test: missing: en, es, de, ar, hi, vi, zh' in shown
  assert 'xquad: 22 files written' in shown


def test_files_that_cannot_be_written_are_one_error(run, archives, tmp_path):
  (tmp_path / 'xtreme').mkdir()
  (tmp_path / 'xtreme' / 'squad').write_text('in the way')
  code, shown = run('squad')
  assert code == 1
  assert 'the files of squad could not be written' in shown


def test_a_check_reads_the_files_and_lists_what_is_wrong(run, archives, tmp_path):
  assert run('tatoeba,xnli,panx,bucc2018')[0] == 0
  archives.requests.clear()
  code, shown = run('tatoeba,xnli', check=True)
  assert code == 0
  assert '15 of 15: 3 (15)' in shown
  assert 'incomplete' not in shown
  sample = tmp_path / 'xtreme'
  (sample / 'tatoeba' / 'sw-en.en').unlink()
  (sample / 'labels' / 'xnli' / 'test-de.tsv').unlink()
  (sample / 'labels' / 'xnli' / 'test-fr.tsv').write_text('neutral\n')
  (sample / 'panx' / 'test-jv.tsv').write_text('nur\nein\nSatz\n')
  (sample / 'labels' / 'panx' / 'test-jv.tsv').write_text('O\nO\nO\n')
  (sample / 'panx' / 'dev-jv.tsv').unlink()
  (sample / 'panx' / 'train-en.tsv').write_bytes(b'\xff')
  (sample / 'labels' / 'bucc2018' / 'test-zh.tsv').write_text('zh-1\ten-2\nzh-2\ten-1\n')
  code, shown = run('tatoeba,xnli,panx,bucc2018', check=True)
  assert code == 1
  lines = shown.splitlines()
  assert 'tatoeba test: missing: sw' in lines
  assert 'xnli test: no gold labels: de' in lines
  assert any(line.startswith('xnli test: cannot be read: fr (') for line in lines)
  assert '1 gold labels for 3 pairs' in ' '.join(lines)
  assert 'panx test: not as many examples as XTREME has: jv (1, not 2)' in lines
  assert any(line.startswith('panx train: cannot be read: en (') for line in lines)
  assert 'not UTF-8' in shown
  assert 'bucc2018 test: not as many examples as XTREME has: zh (2, not 1)' in lines
  assert not any('panx dev' in line for line in lines)  # English alone is required
  assert archives.requests == []


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--data_dir=x', '--tasks=xnli,xcopa'], "unknown task 'xcopa'"),
    (['--data_dir=gs://bucket/x'], 'on a local disk'),
    (['--data_dir=x', '--check'], 'no such directory'),
  ],
)
def test_wrong_flags_are_usage_errors(arguments, words, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  assert download.main(arguments) == 2
  assert words in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == []
