"""What the tests of gin files share: configurations that are built once, and the comments at the head of files."""

import functools
import re
import shlex

from documented_commands import ROOT

from rembert import configuration
from rembert.jobs import pretrain


@functools.cache
def configured(*gin_files: str, bindings: tuple[str, ...] = ()) -> pretrain.PretrainConfig:
  """The pre-training run of some gin files."""
  configuration.load(gin_files, bindings)
  return pretrain.configured()


def head_comment(gin_file: str) -> str:
  """The lines up to the first empty one, without their #."""
  text = (ROOT / gin_file).read_text(encoding='utf-8')
  return re.sub(r'^# ?', '', text[: text.index('\n\n')], flags=re.MULTILINE)


def head_commands(gin_file: str) -> list[list[str]]:
  """The commands of the head comment, from `python` on."""
  lines = head_comment(gin_file).replace('\\\n', ' ').splitlines()
  return [shlex.split(line) for line in lines if line.strip().startswith('python -m ')]


def statements(gin_file: str) -> list[str]:
  """The lines that set something; of a value over several lines the first."""
  values = re.sub(r'\(\n.*?\n\)', '()', (ROOT / gin_file).read_text(encoding='utf-8'), flags=re.DOTALL)
  return [line for line in values.splitlines() if line and not line.startswith('#')]


def printed_table(output: str) -> str:
  """What a command prints, with one space between columns."""
  return re.sub(r' +', ' ', output)
