"""Requests that wait in a queue, and runs that outlive their machines, by a stand-in for gcloud."""

import functools
import sys
import time

import pytest

from launch.cloud.accelerators import accelerator_type
from launch.cloud.commands import Commands
from launch.cloud.queued import QueuedResource
from launch.cloud.tpu_nodes import Place, TpuNode, Wish
from launch.cloud.watch import Plan, Watch
from launch.cloud.workers import Workers
from launch.queued_resource import main
from launch.restarts import Patience

PATIENCE = Patience(max_restarts=3, max_short_runs=10, short_seconds=0.0, max_wait=0.0)
# Goes on from what the bucket holds, and is done with the second start.
RESUMES = """
import pathlib, sys, time
bucket = pathlib.Path(sys.argv[1])
bucket.write_text(bucket.read_text() + 'x' if bucket.exists() else 'x')
if bucket.read_text() == 'x':
  time.sleep(600)
"""


@pytest.fixture
def watch(gcloud):
  """Makes a watch that says what it sees to a list, on one worker."""
  gcloud.update(workers=1)

  def make(*command, said, patience=PATIENCE, deletes=False):
    commands, place = Commands(say=said.append), Place(None, None, 'anna')
    sleep = lambda seconds: time.sleep(0.1)
    request, node = QueuedResource('large', place, commands, sleep), TpuNode('large', place, commands)
    kind = accelerator_type('v5litepod-8')
    plan = Plan(Wish(kind, kind.generation.runtime, spot=True), command, '3.12', 0.1, patience, deletes)
    return Watch(request, node, Workers(node, 'launch.queued_resource'), plan, sleep)

  return make


def test_it_is_waited_for_and_each_change_is_said(gcloud, capsys, monkeypatch):
  monkeypatch.setattr('launch.queued_resource.QueuedResource', functools.partial(QueuedResource, sleep=lambda _: None))
  gcloud.update(plans=[['CREATING', 'WAITING_FOR_RESOURCES', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE']])
  assert main(['create', 'large', '--type=v5litepod-64', '--spot', '--owner=anna']) == 0
  [call] = gcloud.calls('create')
  assert {'--spot', '--node-id=large', '--runtime-version=v2-alpha-tpuv5-lite', '--async'} <= set(call)
  output = capsys.readouterr().out
  assert [word for word in output.replace(',', ' ').split() if word.isupper() and word[0] not in '-+'] == [
    *('CREATING', 'WAITING_FOR_RESOURCES', 'PROVISIONING')
  ]
  assert 'gin/hardware/v5e_64.gin' in output


def test_a_request_that_fails_says_why(gcloud, capsys):
  gcloud.update(plans=[['FAILED']])
  assert main(['create', 'large', '--type=v5litepod-64']) == 1
  error = capsys.readouterr().err
  assert 'no such type in this zone' in error
  assert 'launch.queued_resource delete large' in error


def test_what_others_asked_for_is_not_deleted(gcloud, capsys):
  gcloud.update(queued={'large': {'labels': {}, 'plan': ['ACTIVE']}})
  assert main(['delete', 'large']) == 2
  assert 'was not created by these launchers' in capsys.readouterr().err
  assert gcloud.calls('delete') == []
  gcloud.update(queued={'large': {'labels': {'rembert-launch': '1', 'rembert-owner': 'anna'}, 'plan': ['ACTIVE']}})
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert '--force' in gcloud.calls('delete')[0]
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert 'nothing to delete' in capsys.readouterr().out


def test_a_slice_that_is_taken_away_is_asked_for_again_and_the_run_goes_on(gcloud, watch, tmp_path):
  said, bucket = [], tmp_path / 'bucket'
  gcloud.update(plans=[['WAITING_FOR_RESOURCES', f'ACTIVE until {bucket}', 'SUSPENDING', 'SUSPENDED'], ['ACTIVE']])
  assert watch('python', '-c', RESUMES, str(bucket), said=said, deletes=True).run() == 0
  assert bucket.read_text() == 'xx'
  assert [call[1] for call in gcloud.calls('create', 'delete')] == ['create', 'delete'] * 2
  assert gcloud.read()['queued'] == {}
  assert len([line for line in said if 'restart' in line]) == 1


def test_a_watched_run_needs_a_workdir_that_outlives_machines(gcloud, capsys):
  flags = ['--type=v5litepod-64', '--spot']
  assert main(['watch', 'large', *flags, '--', 'python', '-m', 'rembert.main', '--workdir=runs/large']) == 2
  assert 'gs://BUCKET/large' in capsys.readouterr().err
  assert gcloud.calls() == []


@pytest.mark.parametrize('arguments', [['watch', 'large', '--type=v4-8'], ['watch', 'large', '--max_restarts=-1']])
def test_wrong_usage(arguments, capsys):
  with pytest.raises(SystemExit) as error:
    sys.exit(main(arguments))
  assert error.value.code == 2
