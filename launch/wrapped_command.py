"""The command behind `--` of a program that runs another."""

import argparse
import sys
from collections.abc import Sequence


def add_command(parser: argparse.ArgumentParser, help_text: str) -> None:
  """Adds `-- COMMAND`, the rest of the command line, as `command`."""
  parser.add_argument('command', nargs=argparse.REMAINDER, metavar='-- COMMAND', help=help_text)


def command_of(parser: argparse.ArgumentParser, rest: Sequence[str]) -> list[str]:
  """The command without its `--`; `python` is the one that runs this. Ends the program where there is none."""
  command = list(rest[1:] if rest[:1] == ['--'] else rest)
  if not command:
    parser.error('nothing to run: … -- python -m rembert.main --gin_file=gin/pretrain_smoke.gin')
  if command[0] == 'python':
    command[0] = sys.executable
  return command
