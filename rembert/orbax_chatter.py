"""Orbax and TensorStore, silenced: they narrate every file they touch, and tell a failure once per array."""

import logging
import sys


def silence() -> None:
  """Lets only exceptions through; what matters to the user is said by whoever saves or restores."""
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).setLevel(logging.CRITICAL)
  sys.unraisablehook = _show_unless_loop_is_closed


def _show_unless_loop_is_closed(unraisable) -> None:
  """When one array cannot be read or written, TensorStore tells a loop that is gone of all others."""
  if str(unraisable.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(unraisable)
