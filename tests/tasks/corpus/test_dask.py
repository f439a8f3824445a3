"""Beam on a real distributed engine: Dask, on a local cluster of two worker processes, writes the same bytes."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from made_up_dumps import files_of
from small_corpora import corpus_of_dumps
from waiting import wait_for

distributed = pytest.importorskip('distributed', reason='dask[distributed] is not installed (the extra `prepare`)')

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).resolve().parents[3]
CORPUS = ['--dumps=sample', '--languages=el,sw,th', '--held_out=0.1', '--shard_mb=0.02']


@pytest.fixture
def cluster(monkeypatch):
  """Two worker processes; a nanny starts another one for each that dies."""
  monkeypatch.setenv('PYTHONPATH', str(ROOT))  # workers import the same code
  with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
    yield cluster


def command(cluster, module, *flags):
  beam_flags = [f'--dask_client_address={cluster.scheduler_address}', '--dask_npartitions=4']
  return [sys.executable, '-m', f'tasks.{module}', *flags, '--runner=DaskRunner', '--', *beam_flags]


def run(*arguments):
  return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_corpus_and_a_store_have_the_bytes_that_one_process_writes(cluster, small_store, tmp_path):
  vocabulary = [flag for flag in small_store.command if flag.startswith(('--vocabulary', '--sequence_length'))]
  done = run(cluster, 'corpus', *CORPUS, f'--output={tmp_path / "corpus"}')
  assert done.returncode == 0, done.stderr
  assert files_of(tmp_path / 'corpus') == files_of(small_store.folder / 'corpus')
  done = run(cluster, 'token_store', f'--corpus={tmp_path / "corpus"}', *vocabulary, f'--output={tmp_path / "store"}')
  assert done.returncode == 0, done.stderr
  expected = {name: content for name, content in files_of(small_store.folder).items() if not name.startswith('corpus/')}
  assert files_of(tmp_path / 'store') == expected


def test_a_killed_worker_ends_in_success_or_in_one_error_after_which_the_command_resumes(cluster, tmp_path):
  expected = tmp_path / 'expected'
  corpus_of_dumps('sample', expected, ('el', 'sw', 'th'), held_out=0.1, shard_bytes=int(0.02 * (1 << 20)))
  output = tmp_path / 'corpus'
  flags = [*CORPUS, '--group_mb=0.0001', f'--output={output}']
  process = subprocess.Popen(command(cluster, 'corpus', *flags), cwd=ROOT, stderr=subprocess.PIPE, text=True)
  wait_for(lambda: list(output.glob('statistics/*.json')), process, seconds=300)  # the second language is being made
  os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
  _, errors = process.communicate(timeout=300)
  if process.returncode:
    assert process.returncode == 1
    assert 'tasks.corpus: the pipeline failed' in errors
    assert 'Traceback' not in errors
    done = run(cluster, 'corpus', *flags)
    assert done.returncode == 0, done.stderr
  assert files_of(output) == files_of(expected)
