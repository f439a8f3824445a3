"""Whole runs and their checkpoints: temporary, damaged, exported during training, and taken over by other runs."""

import concurrent.futures
import json
import os
import shutil
import signal

import pytest
from final_states import assert_same_run

from rembert.checkpoint.load import open_source
from rembert.convert.__main__ import main as convert


def steps(run):
  return sorted(int(path.name) for path in (run.workdir / 'checkpoints').iterdir() if path.name.isdigit())


def damage(checkpoint):
  file = max((file for file in (checkpoint / 'state').rglob('d/*')), key=lambda file: file.stat().st_size)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 0x10
  file.write_bytes(bytes(content))


@pytest.fixture
def copied(from_store, stored, tmp_path):
  """A copy of the complete run, to be damaged."""
  shutil.copytree(stored.workdir, tmp_path / 'run')
  return from_store(tmp_path / 'run')


def test_saving_all_the_time_changes_nothing_and_allows_exports_meanwhile(from_store, stored, succeed, tmp_path):
  shutil.copytree(stored.copies['before the last save'], tmp_path / 'run')
  saving = from_store(tmp_path / 'run', train__temporary_checkpoint_minutes=0.0001, train__keep_checkpoints=1)
  sizes = []

  def export(step, metrics):
    if step in (49, 56):
      arguments = ['to_hf', str(saving.workdir), str(tmp_path / f'exported-{step}')]
      with concurrent.futures.ThreadPoolExecutor(1) as thread:  # which the mesh of the run does not reach
        assert thread.submit(convert, arguments).result() == 0
      sizes.append(json.loads((tmp_path / f'exported-{step}' / 'config.json').read_text())['hidden_size'])

  succeed(saving, on_log=export)
  assert sizes == [32, 32]
  assert_same_run(saving, stored, 60)
  assert steps(saving) == [60]


def test_a_run_resumes_bitwise_from_the_checkpoint_before_a_damaged_one(copied, stored, succeed):
  damage(copied.workdir / 'checkpoints' / '60')  # others load the last one of a complete run
  damage(copied.workdir / 'checkpoints' / '45')
  output = succeed(copied).stdout
  assert 'is complete' not in output
  lines = [line for line in output.splitlines() if 'damaged' in line]
  assert [line.split(' is corrupt')[0] for line in lines] == ['warning: checkpoint 60', 'warning: checkpoint 45']
  assert 'resuming from step 30' in output
  assert_same_run(copied, stored, 60)


def test_a_run_without_a_valid_checkpoint_does_not_start_from_scratch(copied):
  for step in steps(copied):
    shutil.rmtree(copied.workdir / 'checkpoints' / str(step) / 'meta')
  before = (copied.workdir / 'metrics.jsonl').read_bytes()
  for _ in range(2):
    result = copied.run()
    assert result.returncode == 1, result.stdout
    assert 'there is no valid checkpoint' in result.stderr
  assert (copied.workdir / 'metrics.jsonl').read_bytes() == before


def test_a_run_whose_workdir_is_deleted_ends_with_an_error(from_store, tmp_path):
  deleted = from_store(tmp_path / 'run')
  result = deleted.run(on_log=lambda step, _: step == 7 and shutil.rmtree(deleted.workdir))
  assert result.returncode == 1
  assert 'the workdir was deleted while the run was at step 14' in result.stderr


def test_a_run_is_initialised_from_another_and_when_it_resumes_no_longer(from_store, stored, tmp_path):
  stop = lambda step, _: step == 7 and os.kill(os.getpid(), signal.SIGTERM)
  given = from_store(tmp_path / 'run', train__init_from=f"'{stored.workdir}'")
  assert given.run(on_log=stop).returncode == 75
  first, *_, last = [row['loss'] for row in stored.metrics() if 'loss' in row]
  assert abs(given.metrics()[0]['loss'] - last) < 0.5 * (first - last)
  again = from_store(given.workdir, train__init_from="'/no/such/folder'")
  result = again.run(on_log=lambda step, _: step == 14 and os.kill(os.getpid(), signal.SIGTERM))
  assert (result.returncode, 'resuming from step 8' in result.stdout) == (75, True)
  assert open_source(given.workdir).step == 15


def test_given_parameters_that_do_not_fit_are_refused_before_anything_is_done(from_store, stored, tmp_path):
  other = from_store(tmp_path / 'run', RemBertConfig__hidden_size=64, train__init_from=f"'{stored.workdir}'").run()
  assert other.returncode == 2
  assert '--gin.RemBertConfig.hidden_size=32' in other.stderr
  assert not (tmp_path / 'run' / 'vocabulary').exists()
