"""The command of xpk: what it says of the run, and what is refused before xpk is called."""

import shlex

import pytest

from launch.xpk import main

CREATE = ['create', 'large', '--cluster=c', '--type=v5litepod-64', '--image=IMAGE']
RUN = ['--', 'python', '-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin', '--workdir=gs://bucket/large']


@pytest.fixture
def xpk(tmp_path, monkeypatch):
  """Notes what xpk is called with; the file of its calls."""
  (tmp_path / 'xpk').write_text('#!/bin/sh\nfor argument; do echo "$argument" >> calls; done\n')
  (tmp_path / 'xpk').chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  monkeypatch.chdir(tmp_path)
  return tmp_path / 'calls'


def test_an_hour_is_waited_for_the_last_machine_unless_the_command_says_how_long(xpk):
  command = lambda: shlex.split(next(line for line in xpk.read_text().splitlines() if line.startswith('--command=')))
  assert main([*CREATE, *RUN]) == 0
  assert command()[-1] == '--gin.hosts.join_seconds=3600'
  xpk.unlink()
  assert main([*CREATE, *RUN, '--gin.hosts.join_seconds=5']) == 0
  assert command()[-1] == '--gin.hosts.join_seconds=5'


@pytest.mark.parametrize('name', ['a b', 'x' * 41, '$(reboot)'])
def test_names_that_cannot_be_are_refused(xpk, name):
  assert main(['create', name, *CREATE[2:], *RUN]) == 2
  assert not xpk.exists()


def test_a_local_workdir_is_refused(xpk, capsys):
  assert main([*CREATE, *RUN[:-1], '--workdir=runs/large']) == 2
  assert 'gs://BUCKET/large' in capsys.readouterr().err
  assert not xpk.exists()
