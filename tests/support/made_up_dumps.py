"""Dumps of a few German pages."""

import pathlib
from xml.sax.saxutils import escape

RIVER = 'Die Donau ist ein Fluss in Europa und mündet nach vielen Biegungen in das Schwarze Meer.'
TOWN = 'Die Stadt liegt am Ufer der Donau und hat einen alten Hafen mit vielen kleinen Schiffen.'
LAKE = 'Der See ist im Winter gefroren, und im Sommer baden dort die Kinder aus der ganzen Stadt.'


def page(title: str, text: str, number: int = 1) -> str:
  """An article."""
  return (
    f'<page><title>{escape(title)}</title><ns>0</ns><id>{number}</id>'
    f'<revision><text>{escape(text)}</text></revision></page>'
  )


def dump_of(*pages: str) -> bytes:
  """An export."""
  return ('<mediawiki xml:lang="de">' + '\n'.join(pages) + '</mediawiki>').encode()


def files_of(folder) -> dict[str, bytes]:
  """Every file below a folder, with its bytes."""
  paths = sorted(path for path in pathlib.Path(folder).rglob('*') if path.is_file())
  return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
