"""JobSets by way of kubectl, for which a script stands in; what cannot be a slice is refused."""

import json
import pathlib

import pytest
import yaml

from launch.gke import main
from launch.xpk import main as xpk_main

CREATE = ['create', 'large', '--image=IMAGE', '--owner=anna']
RUN = ['--', 'python', '-m', 'rembert.main', '--workdir=gs://bucket/large']


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
  """Notes what kubectl is called with, and lets it answer what a test writes down."""
  (tmp_path / 'kubectl').write_text('#!/bin/sh\necho "$@" >> calls\ntest "$1" != get || cat answer\n')
  (tmp_path / 'kubectl').chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  monkeypatch.chdir(tmp_path)
  return tmp_path


def calls(folder):
  file = folder / 'calls'
  return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def test_the_manifest_is_written_and_created(kubectl):
  assert main([*CREATE, '--topology=2*v6e:4x4', *RUN]) == 0
  assert calls(kubectl) == ['create']
  document = yaml.safe_load(pathlib.Path('runs/launch/large.yaml').read_text())
  [job] = document['spec']['replicatedJobs']
  assert (job['replicas'], job['template']['spec']['completions']) == (2, 4)


@pytest.mark.parametrize(
  ('labels', 'message'),
  [
    ({}, 'was not created by these launchers'),
    ({'rembert-launch': '1', 'rembert-owner': 'bert'}, "belongs to 'bert'"),
  ],
)
def test_what_others_created_is_not_deleted(kubectl, labels, message, capsys):
  (kubectl / 'answer').write_text(json.dumps({'metadata': {'labels': labels}}))
  assert main(['delete', 'large', '--owner=anna']) == 2
  assert calls(kubectl) == ['get']
  assert message in capsys.readouterr().err


def test_what_these_launchers_created_is_deleted(kubectl, capsys):
  (kubectl / 'answer').write_text(
    json.dumps({'metadata': {'labels': {'rembert-launch': '1', 'rembert-owner': 'anna'}}})
  )
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert calls(kubectl) == ['get', 'delete']
  (kubectl / 'answer').write_text('')
  assert main(['delete', 'large', '--owner=anna']) == 0
  assert calls(kubectl) == ['get', 'delete', 'get']


@pytest.mark.parametrize(
  ('topology', 'message'),
  [
    ('v5e:4x4x4', '2 dimensions'),
    ('v4:8x8', '3 dimensions'),
    ('v9:2x2', "no TPU 'v9'"),
    ('cpu:8', "no TPU 'cpu'"),
    ('v5e:3x3', 'do not fill machines of 4'),
    ('2*v6e:2x2', 'each has several machines'),
  ],
)
def test_what_is_no_slice_is_refused(kubectl, topology, message, capsys):
  assert main([*CREATE, f'--topology={topology}', *RUN]) == 2
  assert message in capsys.readouterr().err
  assert calls(kubectl) == []


@pytest.mark.parametrize('name', ['a b', 'x' * 41, '$(reboot)'])
def test_names_that_cannot_be_are_refused(kubectl, name):
  assert main(['create', name, '--image=IMAGE', '--topology=v5e:8x8', *RUN]) == 2
  assert xpk_main(['create', name, '--cluster=c', '--type=v5litepod-64', '--image=IMAGE', *RUN]) == 2
  assert calls(kubectl) == []


def test_a_local_workdir_is_refused(kubectl, capsys):
  local = ['--', 'python', '-m', 'rembert.main', '--workdir=runs/large']
  assert main([*CREATE, '--topology=v5e:8x8', *local]) == 2
  assert xpk_main(['create', 'large', '--cluster=c', '--type=v6e-64', '--image=IMAGE', *local]) == 2
  assert capsys.readouterr().err.count('gs://BUCKET/large') == 2
