"""Whole runs and their checkpoints: temporary, damaged, exported while training goes on, begun from others."""

import json
import shutil
import time

import pytest
from final_states import assert_bitwise_equal, final_state

from rembert.checkpoint.load import open_saved
from rembert.convert.__main__ import main as convert


def steps(run):
  return sorted(int(path.name) for path in (run.workdir / 'checkpoints').iterdir() if path.name.isdigit())


def damage(checkpoint):
  file = max((file for file in (checkpoint / 'state').rglob('d/*')), key=lambda file: file.stat().st_size)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 0x10
  file.write_bytes(bytes(content))


@pytest.fixture
def copied(program, uninterrupted, tmp_path):
  """The finished run once more, to be damaged."""
  shutil.copytree(uninterrupted.workdir, tmp_path / 'run')
  return program(tmp_path / 'run')


def test_saving_all_the_time_changes_nothing_and_exports_go_on_beside_it(program, uninterrupted, tmp_path):
  saving = program(tmp_path / 'run', train__temporary_checkpoint_minutes=0.001, train__keep_checkpoints=1)
  process, exported = saving.start(), []
  while process.poll() is None:
    checkpoints = saving.workdir / 'checkpoints'
    if checkpoints.is_dir() and any(path.name.isdigit() for path in checkpoints.iterdir()):
      destination = tmp_path / f'exported-{len(exported)}'
      assert convert(['to_hf', str(saving.workdir), str(destination)]) == 0
      exported.append(json.loads((destination / 'config.json').read_text())['hidden_size'])
    else:
      process.poll()
  assert process.returncode == 0, saving.log()
  assert len(exported) > 1
  assert set(exported) == {32}
  assert saving.metrics() == uninterrupted.metrics()
  assert_bitwise_equal(final_state(saving.workdir, 240), final_state(uninterrupted.workdir, 240))
  assert steps(saving) == [240]


def test_a_run_goes_on_bitwise_from_the_checkpoint_before_a_damaged_one(copied, uninterrupted):
  assert 'is complete' in copied.run().stdout
  damage(copied.workdir / 'checkpoints' / '240')  # the last one of a finished run is what others load
  damage(copied.workdir / 'checkpoints' / '180')
  result = copied.run()
  assert result.returncode == 0, result.stderr
  assert 'is complete' not in result.stdout
  lines = [line for line in result.stdout.splitlines() if 'damaged' in line]
  assert [line.split(' is damaged')[0] for line in lines] == ['checkpoint 240', 'checkpoint 180']
  assert 'resuming from step 120' in result.stdout
  assert copied.metrics() == uninterrupted.metrics()
  assert_bitwise_equal(final_state(copied.workdir, 240), final_state(uninterrupted.workdir, 240))


def test_a_run_without_a_whole_checkpoint_does_not_start_from_scratch(copied):
  for step in steps(copied):
    shutil.rmtree(copied.workdir / 'checkpoints' / str(step) / 'meta')
  before = (copied.workdir / 'metrics.jsonl').read_bytes()
  for _ in range(2):
    result = copied.run()
    assert result.returncode == 1, result.stdout
    assert 'no checkpoint is whole' in result.stderr
    assert 'Traceback' not in result.stderr
  assert (copied.workdir / 'metrics.jsonl').read_bytes() == before


def test_a_run_whose_workdir_is_deleted_ends_with_an_error(program, tmp_path):
  deleted = program(tmp_path / 'run', train__log_every=5)
  process = deleted.start()
  while process.poll() is None and not (deleted.workdir / 'metrics.jsonl').exists():
    time.sleep(0.05)
  shutil.rmtree(deleted.workdir, ignore_errors=True)
  assert process.wait(timeout=120) == 1, deleted.log()
  assert 'the workdir was deleted' in deleted.log()


def test_a_run_begins_with_the_parameters_of_another(program, uninterrupted, tmp_path):
  bindings = {'train__steps': 20, 'train__eval_every': 20, 'optimizer__learning_rate': 1e-5}
  given = program(tmp_path / 'run', **bindings, train__init_from=f"'{uninterrupted.workdir}'")
  result = given.run()
  assert result.returncode == 0, result.stderr
  last_of_the_other = [row['loss'] for row in uninterrupted.metrics() if 'loss' in row][-1]
  first = given.metrics()[0]['loss']
  assert abs(first - last_of_the_other) < 0.5 < uninterrupted.metrics()[0]['loss'] - first
  # Nothing of it is looked at when the run is repeated.
  again = program(given.workdir, **bindings, train__init_from="'/no/such/folder'").run()
  assert again.returncode == 0, again.stderr
  assert open_saved(given.workdir).step == 20


def test_given_parameters_that_do_not_fit_are_told_before_anything_is_done(program, uninterrupted, tmp_path):
  other = program(tmp_path / 'run', RemBertConfig__hidden_size=64, train__init_from=f"'{uninterrupted.workdir}'").run()
  assert other.returncode == 2
  assert '--gin.RemBertConfig.hidden_size=32' in other.stderr
  assert not (tmp_path / 'run' / 'vocabulary').exists()
