"""What launchers hand on is checked before anything is launched."""

import pytest

from launch import command_line, tpu_vm, xtreme
from rembert.errors import UsageError

MAIN = ('python', '-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin')


def test_a_command_that_would_run_passes():
  command_line.check_command([*MAIN, '--gin.train.steps=3', '--workdir=gs://bucket/run'])
  command_line.check_command(['python', 'other.py', '--gin.train.stpes=3'])


@pytest.mark.parametrize(
  ('arguments', 'what'),
  [
    (['--gin.train.stpes=3'], 'unknown name train.stpes'),
    (['--gin.train.steps=0'], 'steps must be a whole number'),
    (['--gin_file=gin/absent.gin'], 'no gin file gin/absent.gin'),
  ],
)
def test_settings_that_a_run_would_refuse_launch_nothing(arguments, what, capsys):
  with pytest.raises(UsageError, match=what):
    command_line.check_command([*MAIN, *arguments])
  assert tpu_vm.main(['run', 'vm', '--zone=us-west4-a', '--dry_run', '--', *MAIN, *arguments]) == 2
  output = capsys.readouterr()
  assert what in output.err
  assert 'gcloud' not in output.out


def test_a_flag_that_a_run_does_not_have_launches_nothing(capsys):
  with pytest.raises(SystemExit) as end:
    command_line.check_command([*MAIN, '--stpes=3'])
  assert end.value.code == 2
  assert 'unknown argument --stpes=3' in capsys.readouterr().err


def test_settings_for_all_runs_of_an_experiment_are_checked_with_the_first(xtreme_samples, tmp_path, capsys):
  arguments = [f'--init={tmp_path}/model', f'--data_dir={xtreme_samples.root}', f'--workdir={tmp_path}/run']
  assert xtreme.main([*arguments, '--dry_run', '--gin.train.stpes=3']) == 2
  assert 'unknown name train.stpes' in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()
