"""Orbax and TensorStore, silenced: they narrate every file they touch, and tell a failure once per array."""

import logging
import sys

# When one array cannot be read or written, all others that were under way are told so, each to nobody.
_TOLD_ONCE_MORE = ('Event loop is closed', 'Encountered error while reading array index')


def silence() -> None:
  """Lets only exceptions through; what matters to the user is said by whoever saves or restores."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).setLevel(logging.CRITICAL)
  sys.unraisablehook = _show_unless_told_once_more


def _show_unless_told_once_more(unraisable) -> None:
  if not str(unraisable.exc_value).startswith(_TOLD_ONCE_MORE):
    sys.__unraisablehook__(unraisable)
