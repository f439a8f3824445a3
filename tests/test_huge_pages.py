"""A command that begins again with huge pages is the same command, and has them."""

import os
import subprocess
import sys

import pytest

from rembert import huge_pages

PROGRAM = """
import os
import sys

from rembert import huge_pages

huge_pages.begin_again(huge_pages.environment())
block = bytearray(100 * 2**20)
with open('/proc/self/smaps_rollup') as lines:
  kilobytes = next(line.split()[1] for line in lines if line.startswith('AnonHugePages'))
print(os.getpid(), kilobytes, *sys.argv[1:], sep='|')
"""


@pytest.fixture
def on_request(monkeypatch):
  """A machine whose kernel has huge pages for those who ask."""
  monkeypatch.setattr(huge_pages, '_gives_on_request', lambda setting: True)
  monkeypatch.setattr('platform.libc_ver', lambda: ('glibc', '2.36'))
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)


def test_the_same_process_goes_on_with_its_arguments_in_huge_pages(tmp_path):
  if not huge_pages._gives_on_request(huge_pages._KERNEL):
    pytest.skip('this kernel has no huge pages on request')
  (tmp_path / 'program.py').write_text(PROGRAM)
  environment = os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': f'{os.getcwd()}:{tmp_path}'}
  command = [sys.executable, '-m', 'program', 'an argument', '--flag=x']
  process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
  number, kilobytes, *arguments = process.communicate(timeout=60)[0].strip().split('|')
  assert int(number) == process.pid
  assert int(kilobytes) > 90 * 1024
  assert arguments == ['an argument', '--flag=x']


def test_what_the_user_says_of_glibc_stays(on_request, monkeypatch):
  assert huge_pages.environment() == {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.arena_max=2')
  assert huge_pages.environment() == {'GLIBC_TUNABLES': 'glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1'}
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=0')
  assert huge_pages.environment() == {}


def test_nothing_is_begun_again_where_it_would_not_help(on_request, monkeypatch, tmp_path):
  monkeypatch.setenv('JAX_PLATFORMS', 'tpu')
  assert huge_pages.environment() == {}
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setattr('platform.libc_ver', lambda: ('', ''))
  assert huge_pages.environment() == {}
  monkeypatch.undo()
  for text, gives in (('always [madvise] never', True), ('[always] madvise never', False), ('', False)):
    (tmp_path / 'enabled').write_text(text)
    assert huge_pages._gives_on_request(tmp_path / 'enabled') == gives
  assert not huge_pages._gives_on_request(tmp_path / 'nothing')
  huge_pages.begin_again({})
