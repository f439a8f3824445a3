"""Flags reach the compiler, compiled programs are found again, freed memory stays; what fails costs only time."""

import functools
import os
import pathlib
import subprocess
import sys

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembert.errors import UsageError
from rembert.runtime import xla
from rembert.runtime.xla import HardwareConfig, set_flags

FLAGS = HardwareConfig(xla_flags=('--xla_a=true', '--xla_b=2'))


def test_the_platform_decides_on_the_variable_and_what_the_user_has_set_stays_and_wins():
  for platform, variable in (
    ('tpu', 'LIBTPU_INIT_ARGS'),
    ('gpu', 'XLA_FLAGS'),
    ('cpu', 'XLA_FLAGS'),
    (None, 'XLA_FLAGS'),
  ):
    environment = {}
    assert set_flags(FLAGS, platform, environment) == f'{variable}: --xla_a=true --xla_b=2'
    assert environment == {variable: '--xla_a=true --xla_b=2'}
  environment = {'LIBTPU_INIT_ARGS': '--xla_b=3 --other=1'}
  assert set_flags(FLAGS, 'tpu', environment) == 'LIBTPU_INIT_ARGS: --xla_a=true'
  for config in FLAGS, HardwareConfig():  # repeating it changes nothing
    assert set_flags(config, 'tpu', environment) == ''
  assert environment == {'LIBTPU_INIT_ARGS': '--xla_b=3 --other=1 --xla_a=true'}


@pytest.mark.parametrize('flags', ['xla_a=true', ('xla_a=true',), (1,), 1])
def test_anything_but_a_tuple_of_flags_is_refused(flags):
  with pytest.raises(UsageError, match='tuple'):
    HardwareConfig(xla_flags=flags)


CODE = """
import pathlib, sys
import jax
import jax.numpy as jnp
from rembert.runtime import xla

print(xla.enable_compilation_cache(sys.argv[1]))
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith('cache_hits') else None)
for damage in sys.argv[2:]:
  if damage == 'truncated':
    for file in pathlib.Path(sys.argv[1]).iterdir():
      file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
  jax.clear_caches()
  hits.clear()
  print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))[0, 0], bool(hits))
"""


def run(folder, *damages) -> list[str]:
  """The message about the folder; then a number that a compiled program gives, and whether it was found there."""
  environment = os.environ | {
    'JAX_PLATFORMS': 'cpu',
    'JAX_ENABLE_COMPILATION_CACHE': 'true',
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  command = [sys.executable, '-c', CODE, str(folder), *damages]
  done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
  return done.stdout.splitlines()


def test_the_next_process_finds_compiled_programs_and_compiles_truncated_ones_again(tmp_path):
  folder = tmp_path / 'new' / 'folder'
  [message, first], after = run(folder, 'none'), run(folder, 'none', 'truncated')
  number, found = first.split()
  assert (message, found) == ('', 'False')
  assert after == ['', f'{number} True', f'{number} False']


@pytest.fixture
def jax_settings():
  names = ('jax_enable_compilation_cache', 'jax_compilation_cache_dir', 'jax_persistent_cache_min_compile_time_secs')
  before = {name: getattr(jax.config, name) for name in names}
  yield lambda **settings: [jax.config.update(f'jax_{name}', value) for name, value in settings.items()]
  for name, value in before.items():
    jax.config.update(name, value)


def test_a_cache_directory_that_cannot_be_created_is_reported_and_jax_s_own_settings_go_first(jax_settings, tmp_path):
  (tmp_path / 'file').write_text('')
  jax_settings(enable_compilation_cache=True)
  said = xla.enable_compilation_cache(str(tmp_path / 'file' / 'folder'))
  assert said.startswith(f'compilation cache disabled: {tmp_path}/file/folder: Not a directory')
  theirs = str(tmp_path / 'theirs')
  for folder, settings, expected in (
    (None, {}, None),
    ('a', {'enable_compilation_cache': False}, None),
    ('a', {'enable_compilation_cache': True, 'compilation_cache_dir': theirs}, theirs),
  ):
    jax_settings(**settings)
    assert xla.enable_compilation_cache(folder and str(tmp_path / folder)) == ''
    assert jax.config.jax_compilation_cache_dir == expected
  assert not (tmp_path / 'a').exists()


def test_by_default_it_is_the_user_s_for_this_kind_of_processor(jax_settings, monkeypatch, tmp_path):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  jax_settings(enable_compilation_cache=True)
  assert xla.enable_compilation_cache(xla.AUTO) == ''
  folder = jax.config.jax_compilation_cache_dir
  assert os.path.isdir(folder)
  assert folder.startswith(f'{tmp_path}/rembert/compiled/')
  monkeypatch.setattr('platform.machine', lambda: 'another')
  assert str(xla.default_cache_folder()) != folder


@given(sizes=st.lists(st.integers(0, 50), max_size=12), most=st.integers(0, 200))
def test_the_oldest_go_until_the_rest_is_small_enough(sizes, most, tmp_path_factory):
  folder = tmp_path_factory.mktemp('cache')
  for age, size in enumerate(sizes):
    (folder / f'{age:02}').write_bytes(b'x' * size)
    os.utime(folder / f'{age:02}', (age, age))
  xla.delete_oldest(folder, most)
  left = sorted(int(file.name) for file in folder.iterdir())
  assert left == list(range(len(sizes)))[len(sizes) - len(left) :]
  assert sum(sizes[age] for age in left) <= most
  # One more would have been too much.
  assert len(left) == len(sizes) or sum(sizes[len(sizes) - len(left) - 1 :]) > most


# --- freed memory stays with the process, so that the next step need not wait for the kernel --------------------------

MEMORY_CODE = """
import resource, sys
from rembert import main

fits = bool(int(sys.argv[1]))


def run(*_) -> int:
  import jax, jax.numpy as jnp
  from rembert.aot.flops import heap_bytes
  from rembert.model.config import RemBertConfig
  from rembert.runtime.xla import keep_freed_memory_if_it_fits

  config = RemBertConfig(vocab_size=1000, num_hidden_layers=1)  # 0.7 GB
  assert keep_freed_memory_if_it_fits(heap_bytes(config, 1000), available=3 * 10**9 if fits else 10**9) == fits
  step = jax.jit(lambda x, y: ((x @ y) @ x).sum())  # a temporary of 144 MB, and little to compute
  x, y = jnp.ones((6000, 8)), jnp.ones((8, 6000))
  for _ in range(8):  # the heap grows until its gaps fit
    step(x, y).block_until_ready()
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  for _ in range(8):
    step(x, y).block_until_ready()
  print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
  with open('/proc/self/smaps_rollup') as lines:
    print(next(line.split()[1] for line in lines if line.startswith('AnonHugePages')))
  return 0


main.run = run  # among the threads of the program, each of which may bring a heap of its own
sys.exit(main.main(['--gin_file=gin/pretrain_smoke.gin']))
"""
KERNEL = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')


@functools.cache
def measured(fits: bool) -> tuple[int, int]:
  """Page faults of eight steps, and the kilobytes of pages of 2 MB after them."""
  command = [sys.executable, '-c', MEMORY_CODE, str(int(fits))]
  environment = os.environ | {'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
  faults, kilobytes = map(int, done.stdout.split())
  return faults, kilobytes


def test_temporaries_with_enough_memory_are_not_mapped_again():
  assert measured(fits=True)[0] < 0.1 * measured(fits=False)[0]


@pytest.mark.slow
def test_kept_memory_is_in_huge_pages_and_other_memory_is_not():
  if not KERNEL.exists() or '[madvise]' not in KERNEL.read_text():
    pytest.skip('this kernel has no large pages for those who ask')
  # The temporary, and the memory around it.
  assert measured(fits=True)[1] > 100_000
  assert measured(fits=False)[1] < 10_000
