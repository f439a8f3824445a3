"""A slice from its creation to its deletion, with a mock gcloud: requests, commands and rejections."""

import json
import os
import signal
import subprocess
import sys
import tarfile

import pytest
from waiting import wait_for

from launch.tpu_vm import main, write_archive
from rembert.errors import UsageError

OWN = {'rembert-launch': '1', 'rembert-owner': 'anna'}
# Notes what it is given, then waits for SIGTERM as a run does: saves, and ends with 75.
WAIT = """
import json, pathlib, signal, sys, time
pathlib.Path('given').write_text(json.dumps(sys.argv[1:]))
signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(75)))
print('running', flush=True)
time.sleep(60)
"""
HOSTILE = ['--gin.a.b="it\'s"', '$(touch broken)', '`touch broken`', '; touch broken', 'a  b', '*', '', 'ü\\n']


def test_a_created_slice_has_labels_and_the_runtime_of_its_type(gcloud, capsys):
  assert main(['create', 'large', '--type=v4-128', '--spot', '--zone=us-central2-b', '--owner=Anna']) == 0
  [call] = gcloud.calls('create')
  assert '--version=tpu-ubuntu2204-base' in call
  assert '--spot' in call
  assert gcloud.read()['nodes']['large']['labels'] == OWN
  assert '64 chips of v4' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('node', 'message'),
  [
    ({'labels': {}}, 'was not created by these launchers'),
    ({}, 'was not created by these launchers'),
    ({'labels': OWN | {'rembert-owner': 'bert'}}, "belongs to 'bert', not to you ('anna')"),
    ({'labels': OWN, 'queuedResource': 'projects/p/queuedResources/large'}, 'launch.queued_resource delete large'),
  ],
)
def test_what_others_created_is_not_deleted(gcloud, node, message, capsys):
  gcloud.update(nodes={'large': {'state': 'READY', **node}})
  assert main(['delete', 'large', '--owner=anna']) == 2
  assert gcloud.calls('delete') == []
  assert 'large' in gcloud.read()['nodes']
  assert message in capsys.readouterr().err


def test_what_these_launchers_created_is_deleted_and_twice_is_no_error(gcloud, capsys):
  gcloud.update(nodes={'large': {'state': 'READY', 'labels': OWN}})
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert gcloud.read()['nodes'] == {}
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert 'nothing to delete' in capsys.readouterr().out


def test_a_run_on_all_workers_from_set_up_to_stop(gcloud, capfd):
  assert main(['run', 'large', '--', 'true']) == 2
  assert 'large is not set up' in capfd.readouterr().err

  assert main(['setup', 'large']) == 0
  assert 'creating the environment' in capfd.readouterr().out
  calls = (gcloud.home(1) / 'python3_calls').read_text()
  assert '--no-deps --requirement' in calls
  assert 'jax[tpu] google-cloud-storage>=2.18' in calls
  assert main(['setup', 'large']) == 0
  assert 'environment unchanged' in capfd.readouterr().out
  assert (gcloud.home(1) / 'python3_calls').read_text() == calls

  assert main(['run', 'large', '--', 'python', '-c', WAIT, *HOSTILE]) == 0
  for worker in (0, 1):
    given = gcloud.home(worker) / 'rembert-launch/code/given'
    wait_for(lambda given=given: given.exists() and given.read_text())
    assert json.loads(given.read_text()) == HOSTILE
  assert not list(gcloud.folder.rglob('broken'))

  assert main(['run', 'large', '--', 'true']) == 2
  assert 'a run is in progress on 2 of 2 workers' in capfd.readouterr().err
  assert main(['setup', 'large']) == 1
  assert 'stop it first' in capfd.readouterr().err
  gcloud.update(nodes={'large': {'state': 'READY', 'acceleratorType': 'v5litepod-8'}})
  assert main(['status', 'large']) == 0
  assert capfd.readouterr().out.count('running') == 2

  assert main(['stop', 'large', '--seconds=20']) == 0
  assert 'worker1: stopped with 75' in capfd.readouterr().out
  assert main(['logs', 'large', '--worker=1']) == 0
  log = capfd.readouterr().out
  assert 'running\nsaved\n' in log
  assert 'ended with 75' in log
  assert main(['stop', 'large']) == 0
  assert 'no run in progress' in capfd.readouterr().out

  local = ['run', 'large', '--', 'echo', '--workdir=runs/large']
  assert main(local) == 2
  assert 'gs://BUCKET/large' in capfd.readouterr().err
  gcloud.update(workers=1)  # a local workdir is refused only where several machines write to it
  assert main(local) == 0


def test_a_run_that_is_killed_with_all_that_guards_it_can_be_started_again(gcloud, capfd):
  assert main(['setup', 'large']) == 0
  assert main(['run', 'large', '--', 'sleep', '61.5']) == 0
  for worker in (0, 1):
    pid = int((gcloud.home(worker) / 'rembert-launch/run/pid').read_text())
    os.killpg(os.getpgid(pid), signal.SIGKILL)
  wait_for(lambda: main(['run', 'large', '--', 'true']) == 0)
  wait_for(lambda: (gcloud.home(0) / 'rembert-launch/run/exit_code').exists())


def test_without_gcloud_one_message_says_what_to_install(monkeypatch, capsys):
  monkeypatch.setenv('PATH', '/nowhere')
  assert main(['delete', 'large']) == 2
  error = capsys.readouterr().err
  assert error.startswith('rembert: gcloud is not installed')
  assert 'gcloud auth login' in error


def test_a_description_that_fails_is_not_taken_for_a_slice_that_does_not_exist(gcloud, capsys):
  gcloud.update(failures={'describe': 'ERROR: PERMISSION_DENIED: no access to the project'})
  assert main(['delete', 'large']) == 1
  output = capsys.readouterr()
  assert 'PERMISSION_DENIED' in output.err
  assert 'nothing to delete' not in output.out


def test_a_command_of_gcloud_that_fails_is_shown_with_its_last_words(gcloud, capfd):
  gcloud.update(failures={'create': 'ERROR: RESOURCE_EXHAUSTED: no capacity in this zone'})
  assert main(['create', 'large', '--type=v6e-64']) == 1
  error = capfd.readouterr().err
  assert 'gcloud ended with exit code 1' in error
  assert 'ERROR: RESOURCE_EXHAUSTED' in error
  assert 'where  gcloud compute tpus tpu-vm create large' in error


@pytest.mark.parametrize(
  'arguments',
  [
    ['delete', 'a b; rm -rf ~'],
    ['delete', "it's"],
    ['delete', 'Large'],
    ['delete', '-x'],
    ['delete', 'x' * 64],
    ['create', 'large', '--type=v5e-64'],
    ['create', 'large', '--type=v4-7'],
    ['create', 'large', '--type=v5litepod-64', '--gcloud_flag=--labels=rembert-launch=0'],
    ['setup', 'large', '--python=3.10; true'],
  ],
)
def test_names_that_cannot_be_are_refused_before_anybody_is_asked(gcloud, arguments, capsys):
  with pytest.raises(SystemExit) as error:
    sys.exit(main(arguments))
  assert error.value.code == 2
  assert gcloud.calls() == []


@pytest.mark.parametrize('arguments', [['run', 'large'], ['run', 'large', '--'], ['delete', 'large', '--', 'true'], []])
def test_a_command_where_it_belongs(arguments, capsys):
  with pytest.raises(SystemExit) as error:
    main(arguments)
  assert error.value.code == 2


def test_an_installed_copy_has_no_code_to_send(tmp_path):
  with pytest.raises(UsageError, match='no code to copy'):
    write_archive(tmp_path / 'one.tar.gz', tmp_path)


def test_the_archive_holds_what_git_tracks_with_changes_that_are_not_committed(tmp_path):
  project, archive_file = tmp_path / 'project', tmp_path / 'one.tar.gz'
  (project / 'launch').mkdir(parents=True)
  for name in ('launch/a b.py', 'new.py', 'requirements.txt', 'tracked.py', 'deleted.py'):
    (project / name).write_text('committed')
  subprocess.run(['git', 'init', '--quiet'], cwd=project, check=True)
  subprocess.run(['git', 'add', 'launch', 'requirements.txt', 'tracked.py', 'deleted.py'], cwd=project, check=True)
  (project / 'tracked.py').write_text('changed')
  (project / 'deleted.py').unlink()
  write_archive(archive_file, project)
  with tarfile.open(archive_file) as archive:
    assert archive.getnames() == ['launch/a b.py', 'requirements.txt', 'tracked.py']
    assert archive.extractfile('tracked.py').read() == b'changed'
