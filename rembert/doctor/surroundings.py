"""What surrounds a run: room on the disks, open files, the clock, a proxy."""

import datetime
import itertools
import pathlib
import resource
import shutil
import urllib.parse
from collections.abc import Iterator

from rembert.doctor.examined import Examined
from rembert.doctor.findings import Finding, problem, warning, well
from rembert.files import is_remote
from rembert.tracking.console import human_bytes, human_duration

_ROOM_PROBLEM, _ROOM_WARNING = 1e9, 5e9
_FILES = 1024
_MADE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
_SKEW_SECONDS = 120
_MOST_FILES = 10_000
_METADATA_SERVER = 'metadata.google.internal'


def existing(path: str | pathlib.Path) -> pathlib.Path:
  """A path, or the nearest folder above it that is there."""
  path = pathlib.Path(path).absolute()
  return next(folder for folder in (path, *path.parents) if folder.exists())


def check_disk(examined: Examined) -> Iterator[Finding]:
  """Room where a run writes."""
  named = {'workdir': examined.workdir, 'data_dir': examined.data_dir, 'store': examined.store}
  places = {name: path for name, path in named.items() if path and not is_remote(path)}
  for name, path in (places or {'this folder': str(examined.folder)}).items():
    folder = existing(path)
    free = examined.free_bytes(folder) if examined.free_bytes else shutil.disk_usage(folder).free
    text = f'{human_bytes(free)} free for {name}'
    fix = f'make room on the disk of {folder}, or choose another'
    if free < _ROOM_PROBLEM:
      yield problem(text, fix)
    elif free < _ROOM_WARNING:
      yield warning(text, fix)
    else:
      yield well(text)


def check_open_files(examined: Examined) -> Iterator[Finding]:
  """Files that may be open at once: a shard of a token store takes one."""
  limit = examined.open_files
  if limit is None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
  if limit == resource.RLIM_INFINITY:
    yield well('any number of open files')
    return
  shards = 0
  if examined.store and not is_remote(examined.store):
    shards = sum(1 for _ in pathlib.Path(examined.store).glob('*/*.array_record'))
  if shards + _FILES // 4 > limit:
    yield problem(f'{limit} open files are allowed, and the store has {shards} shards', 'ulimit -n 65536')
  elif limit < _FILES:
    yield warning(f'{limit} open files are allowed; stores and checkpoints may need more', 'ulimit -n 65536')
  else:
    yield well(f'{limit:,} open files')


def check_clock(examined: Examined) -> Iterator[Finding]:
  """The clock: goodput, locks in buckets, certificates and `make` go by it."""
  now = examined.now()
  if now < _MADE:
    year = datetime.datetime.fromtimestamp(now, datetime.UTC).year
    yield problem(f'the clock says {year}, before this program was written', 'set it: sudo timedatectl set-ntp true')
    return
  roots = [path for path in (examined.workdir, examined.store, examined.data_dir) if path and not is_remote(path)]
  ahead = [
    (file.stat().st_mtime - now, file)
    for root in map(pathlib.Path, roots)
    for file in itertools.islice(root.rglob('*'), _MOST_FILES)
    if file.is_file() and file.stat().st_mtime > now + _SKEW_SECONDS
  ]
  if ahead:
    seconds, file = max(ahead)
    yield warning(
      f'{file} is from the future, by {human_duration(seconds)}: this clock or that of another host is wrong',
      f'set the clock (sudo timedatectl set-ntp true), then touch {file}',
    )
  else:
    yield well('no file is from the future' if roots else 'set')


def check_proxy(examined: Examined) -> Iterator[Finding]:
  """Proxies: downloads go by them, and hosts of one run must not."""
  environment = examined.environment
  given = {name: environment[name] for name in _spellings('https_proxy', 'http_proxy') if environment.get(name)}
  if not given:
    yield well('none')
    return
  is_well = True
  for name, address in given.items():
    parts = urllib.parse.urlsplit(address)
    try:
      is_address = parts.scheme in ('http', 'https', 'socks5', 'socks5h') and bool(parts.hostname and parts.port)
    except ValueError:  # a port that is no number
      is_address = False
    if not is_address:
      is_well = False
      yield problem(f'{name} is not an address of a proxy', f'export {name}=http://HOST:PORT, or unset {name}')
  excepted = {host.strip() for name in _spellings('no_proxy') for host in environment.get(name, '').split(',')}
  coordinator = environment.get('JAX_COORDINATOR_ADDRESS', '').rpartition(':')[0]
  missing = [host for host in ('localhost', _METADATA_SERVER, coordinator) if host and host not in excepted]
  if missing and '*' not in excepted:
    is_well = False
    yield warning(
      f'{", ".join(given)} is set, and {", ".join(missing)} would be asked by way of it',
      'export no_proxy=' + ','.join(sorted({*excepted, '127.0.0.1', *missing} - {''})),
    )
  if is_well:
    hosts = {urllib.parse.urlsplit(address).hostname for address in given.values()}
    yield well(f'by way of {", ".join(sorted(filter(None, hosts)))}')  # never with user and password


def _spellings(*names: str) -> list[str]:
  return [spelling for name in names for spelling in (name, name.upper())]
