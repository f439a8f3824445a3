"""An audit that did not take place is no clean bill of health."""

import importlib.util
import json
import pathlib
import sys

import pytest

FILE = pathlib.Path(__file__).parents[1] / 'audit' / 'audit.py'
SPEC = importlib.util.spec_from_file_location('audit', FILE)
audit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(audit)

CLEAN = {'name': 'six', 'version': '1.17.0', 'vulns': []}
BAD = {'name': 'aio', 'version': '1.0', 'vulns': [{'id': 'GHSA-1', 'fix_versions': ['1.1'], 'aliases': []}]}
UNKNOWN = {'name': 'private', 'skip_reason': 'not found'}


@pytest.mark.parametrize(
  ('output', 'code', 'words'),
  [
    (json.dumps({'dependencies': [CLEAN]}), 0, '1 packages audited, 0 known'),
    (json.dumps({'dependencies': [CLEAN, BAD]}), 1, 'aio 1.0: GHSA-1, fixed in 1.1'),
    (json.dumps({'dependencies': [CLEAN, UNKNOWN]}), 0, 'NOT AUDITED, unknown to the service: private'),
    (json.dumps({'dependencies': [UNKNOWN]}), 0, 'AUDIT SKIPPED, nothing was audited'),
    ('', 0, 'AUDIT SKIPPED, nothing was audited: no route to host'),
  ],
)
def test_packages_that_were_not_audited_are_reported(output, code, words):
  assert audit.verdict(1, output, 'trace\nno route to host\n')[0] == code
  assert words in audit.verdict(1, output, 'trace\nno route to host\n')[1]


def test_an_exception_needs_a_reason(tmp_path):
  file = tmp_path / 'exceptions.txt'
  file.write_text('# why\nGHSA-1  no server is started\n')
  assert audit.exceptions(file) == ['GHSA-1']
  file.write_text('GHSA-1\n')
  with pytest.raises(SystemExit, match='no reason'):
    audit.exceptions(file)
  audit.exceptions()


def test_the_whole_lock_is_asked_about(tmp_path, capsys):
  program = tmp_path / 'pip_audit.py'
  program.write_text('import sys; print(sys.argv[1:], file=sys.stderr)')
  assert audit.main([sys.executable, str(program)]) == 0
  output = capsys.readouterr().out
  assert 'AUDIT SKIPPED' in output
  assert 'requirements.txt' in output
