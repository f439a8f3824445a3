"""Eight CPU devices for every test, one temporary directory for all, and the few things that many tests share."""

import atexit
import ctypes
import gc
import os
import pathlib
import resource
import shutil
import sys
import tempfile

# Whatever is temporary, also of xdist's workers and of the processes that tests start, is below one directory, which
# goes with the process that made it. TensorFlow Datasets and AutoGraph leave theirs behind. Registered before the
# libraries are imported, so that it runs after what they do at the end.
if 'PYTEST_XDIST_WORKER' not in os.environ:
  SCRATCH, OWNER = tempfile.mkdtemp(prefix='rembert-tests-'), os.getpid()
  os.environ['TMPDIR'] = tempfile.tempdir = SCRATCH
  # A child that was forked ends here too.
  atexit.register(lambda: os.getpid() == OWNER and shutil.rmtree(SCRATCH, ignore_errors=True))

# Each of a worker's many threads would have a heap of its own, which keeps what is freed: a tenth of the memory.
os.environ['MALLOC_ARENA_MAX'] = '2'

# No test asks the Hugging Face Hub; those of it start one.
os.environ['HF_HUB_OFFLINE'] = '1'

# Nothing that was compiled before: tests compile what they test, and runs are stopped while they compile. To be seen by
# the processes that tests start, too.
os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'

import jax
import pytest
from jax._src.interpreters import partial_eval
from quick_compilation import QUICK_COMPILATION  # tests/support

with pytest.MonkeyPatch.context() as without_torch:  # where there is one: seconds and 300 MB, for nothing that is used
  without_torch.setitem(sys.modules, 'torch', None)
  import tensorboardX  # noqa: F401

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 8)

# While a module is traced, Flax asks each count of random keys for its sharding, and swallows the error, whose text
# takes a twelfth of the time of all tracing. Errors of this kind lack the origin of their tracer.
partial_eval.DynamicJaxprTracer._origin_msg = lambda self: ''

pytest_plugins = ['hub_server', 'random_checkpoints', 'small_store', 'xtreme_samples']  # tests/support

ROOT = pathlib.Path(__file__).parent.parent
# The files that take longest; `--dist=loadfile --no-loadscope-reorder` hands out files in the order of their tests.
LONG = ('tests/jobs/', 'tests/train/', 'tests/launch/', 'tests/model/', 'tests/tasks/', 'tests/docs/')
# Files that begin like this share runs, or what is compiled: one worker takes them all.
FAMILIES = ('tests/jobs/test_finetune', 'tests/jobs/', 'tests/train/', 'tests/model/')
# Resident memory of a process above which it forgets what it has compiled, and by how much it grows before it does so
# again: to forget takes a second, and what files share is compiled again. Two workers stay below 4 GB.
MOST_BYTES, GROWTH_BYTES = 1.2e9, 0.25e9


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Long files begin first, so that workers end together; a process by itself keeps the order that it was given."""
  if 'PYTEST_XDIST_WORKER' not in os.environ:
    return
  rank = lambda item: next((n for n, folder in enumerate(LONG) if item.nodeid.startswith(folder)), len(LONG))
  items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
  """With `--dist=loadfile`, a family of files goes to one worker as if it were one file."""
  from xdist.scheduler import LoadFileScheduling

  class ByFamily(LoadFileScheduling):
    """Whole families, and of the others whole files."""

    def _split_scope(self, nodeid: str) -> str:
      return next((family for family in FAMILIES if nodeid.startswith(family)), super()._split_scope(nodeid))

  return ByFamily(config, log) if config.getvalue('dist') == 'loadfile' else None


def pytest_collection_finish(session: pytest.Session) -> None:
  """Modules and tests stay to the end: the garbage collector need not look at them while tests trace and compile."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(200_000, 50, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
  """A worker hands its peak memory to the process that reports."""
  if hasattr(session.config, 'workeroutput'):
    session.config.workeroutput['peak'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Workers:
  """The peak memory of each worker, for the last lines of the report."""

  def __init__(self):
    self.peaks: dict[str, int] = {}

  @pytest.hookimpl(optionalhook=True)
  def pytest_testnodedown(self, node) -> None:
    """A worker has ended."""
    if peak := getattr(node, 'workeroutput', {}).get('peak'):
      self.peaks[node.gateway.id] = peak

  def pytest_terminal_summary(self, terminalreporter) -> None:
    """One line."""
    if self.peaks:
      shown = ', '.join(f'{name} {peak / 1e9:.1f} GB' for name, peak in sorted(self.peaks.items()))
      terminalreporter.write_line(f'peak memory: {shown}')


def pytest_configure(config: pytest.Config) -> None:
  """Adds the report of memory; compiles quickly, but for the comparison in tests/parity."""
  config.pluginmanager.register(Workers())
  if config.getoption('markexpr') == 'parity':
    return
  jax.config.update('jax_disable_most_optimizations', True)
  with pytest.MonkeyPatch.context() as patch:  # processes that tests start compile as they do for users
    patch.setenv('XLA_FLAGS', ' '.join(filter(None, (os.environ.get('XLA_FLAGS'), QUICK_COMPILATION['XLA_FLAGS']))))
    jax.devices()  # reads the flags


def resident_bytes() -> int:
  """Resident memory of this process; 0 where that is not known."""
  statm = pathlib.Path('/proc/self/statm')  # of Linux
  return int(statm.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') if statm.exists() else 0


@pytest.fixture(scope='session')
def kept_bytes() -> list[int]:
  """Resident memory after each time that compiled functions were forgotten."""
  return [0]


@pytest.fixture(scope='module', autouse=True)
def bounded_memory(kept_bytes):
  """Functions that one file has compiled are of little use to the next."""
  yield
  if resident_bytes() > max(MOST_BYTES, kept_bytes[-1] + GROWTH_BYTES):
    jax.clear_caches()
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):  # glibc keeps what is freed
      trim(0)
    kept_bytes.append(resident_bytes())


@pytest.fixture(autouse=True)
def clean_gin():
  """What a test has bound is of no concern to the next."""
  yield
  if gin := sys.modules.get('gin'):
    gin.clear_config()


@pytest.fixture
def root() -> pathlib.Path:
  """The project's folder."""
  return ROOT


@pytest.fixture(scope='session')
def shared_data() -> pathlib.Path:
  """Real dumps and texts next to the project; tests that want them are skipped where there are none."""
  folder = ROOT.parent / 'shared' / 'data'
  if not folder.is_dir():
    pytest.skip(f'no real data at {folder}')
  return folder
