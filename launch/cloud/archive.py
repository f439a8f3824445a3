"""The project as one file, to be unpacked on other machines."""

import gzip
import io
import pathlib
import subprocess
import tarfile

import rembert
from rembert.errors import UsageError

ROOT = pathlib.Path(rembert.__file__).parent.parent
# What runs need, where git cannot say what belongs to the project: in an installed copy.
_PARTS = ('gin', 'launch', 'rembert', 'tasks', 'requirements.txt', 'setup.py')


def write_archive(target: pathlib.Path, root: pathlib.Path = ROOT) -> None:
  """Writes all files that git tracks, as they lie here, committed or not; the same files give the same bytes."""
  if not (root / 'requirements.txt').exists():
    raise UsageError(
      'there is no lock to make an environment from',
      where=str(root),
      fix='start from a checkout of the project',
    )
  target.parent.mkdir(parents=True, exist_ok=True)
  content = io.BytesIO()
  with tarfile.open(fileobj=content, mode='w') as archive:
    for name in _files(root):
      archive.add(root / name, arcname=name, recursive=False, filter=_plain)
  with open(target, 'wb') as file, gzip.GzipFile('', 'wb', fileobj=file, mtime=0) as packed:
    packed.write(content.getvalue())


def _files(root: pathlib.Path) -> list[str]:
  if (root / '.git').exists():
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=root, capture_output=True, check=True, timeout=60).stdout
    names = [name for name in listed.decode().split('\0') if name]
  else:
    paths = [path for part in _PARTS for path in (root / part, *(root / part).rglob('*'))]
    names = [str(path.relative_to(root)) for path in paths if '__pycache__' not in path.parts]
  return sorted(name for name in names if (root / name).is_file())


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
  member.uid = member.gid = member.mtime = 0
  member.uname = member.gname = ''
  member.mode = 0o755 if member.mode & 0o100 else 0o644
  return member
