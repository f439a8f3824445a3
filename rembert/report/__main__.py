"""The command line: `python -m rembert.report DIR…`."""

import argparse
import sys
from collections.abc import Sequence

from rembert.command_line import run_command

DESCRIPTION = """\
One page from what runs have left behind: loss and language curves, where the parameters sit, the paper's tables and
figures with ours beside them, XTREME task by task, analyses, time and settings. The page is one HTML file that needs
nothing beside it and prints well; every picture lies beside it as PNG, every table as CSV."""

EPILOG = """\
what DIR can be
  the --workdir of a run of pre-training, fine-tuning, evaluation or analysis
  the --workdir of launch.xtreme: tasks, seeds, learning rates
  the folder of a sweep (sweep.json): the paper's tables, with significance over seeds and languages
Several are set side by side: curves in one picture, and a table of what differs in their settings. A run or sweep that
is not finished is shown as far as it is.

examples
  a run, to be read in the browser (runs/pretrain_smoke/report/index.html):
    python -m rembert.report runs/pretrain_smoke
  two runs side by side:
    python -m rembert.report runs/out768 runs/out3072 --output=reports/widths --title='768 against 3072'
  a whole sweep:
    python -m rembert.report runs/sweep

exit codes
  0 done · 2 wrong usage, or a folder with nothing known in it · 1 anything else
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  flags = argparse.ArgumentParser(
    prog='python -m rembert.report',
    description=DESCRIPTION,
    epilog=EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  flags.add_argument('folders', nargs='+', metavar='DIR', help='of a run, a benchmark or a sweep; see below')
  flags.add_argument('--output', metavar='DIR', help='where the page goes (default: report/ in the first DIR)')
  flags.add_argument('--title', metavar='TEXT', help='heading of the page (default: the names of the models)')
  flags.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def report(folders: Sequence[str], output: str | None, title: str | None) -> None:
  """Reads, draws and writes; tells how far it is."""
  import jax

  jax.config.update('jax_platforms', 'cpu')  # counts parameters, computes nothing: a run may have the accelerator
  from etils import epath

  from rembert.report import making, reading
  from rembert.training.console import Console, human_bytes

  console = Console()
  with console.task('reading'):
    sources = reading.read(folders)
  with console.task('drawing') as progress:
    page = making.make(sources, title, progress)
  file = making.write(page, output or epath.Path(folders[0]) / 'report')
  pictures = sum(name.endswith('.png') for name in page.files)
  size = human_bytes(len(page.html.encode()))
  console.say(
    f'report: {file} ({size}; beside it {pictures} picture(s) as PNG, {len(page.files) - pictures} table(s) as CSV)'
  )


def main(argv: Sequence[str] | None = None) -> int:
  """The program; returns its exit code."""
  options = parser().parse_args(argv)
  return run_command(
    'rembert',
    lambda: report(options.folders, options.output, options.title),
    show_traceback=options.traceback,
  )


if __name__ == '__main__':
  sys.exit(main())
