"""Command line of reports: `python -m rembert.report DIR…`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rembert.command_line import command_parser, run_command

if TYPE_CHECKING:
  from rembert.report.scores import Results

DESCRIPTION = """\
Make one page of the results of runs: loss and languages, parameters, the paper's tables and figures compared with ours,
XTREME by task, analyses and settings. The page is one self-contained HTML file; next to
it are all plots as PNG and all tables as CSV."""

EPILOG = """\
DIR is one of
  the --workdir of a run of pre-training, fine-tuning, evaluation or analysis
  the --workdir of launch.xtreme
  the directory of a sweep (sweep.json)
Several are compared on one page. Unfinished runs are included with the results available so far.

examples
  python -m rembert.report runs/pretrain_smoke
  python -m rembert.report runs/out768 runs/out3072 --output=reports/widths --title='768 and 3072'

exit codes
  0 done · 2 wrong usage, or a directory without results · 1 anything else
"""


def sections() -> Sequence[Callable]:
  """Functions (`Results`) → section, in the order of the page; imported when needed, so that --help is fast."""
  from rembert.report import figures, paper_tables, runs, xtreme

  before = (runs.overview, figures.losses, figures.languages, runs.parameters)
  of_the_paper = (paper_tables.paper_tables, figures.figures, paper_tables.probing_tables)
  return (*before, *of_the_paper, xtreme.xtreme, xtreme.every_score, runs.analyses, runs.configuration)


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  flags = command_parser('rembert.report', DESCRIPTION, EPILOG)
  flags.add_argument('folders', nargs='+', metavar='DIR', help='directory of a run, a benchmark or a sweep; see below')
  flags.add_argument('--output', metavar='DIR', help='directory of the page (default: report/ in the first DIR)')
  flags.add_argument('--title', metavar='TEXT', help='heading of the page (default: the names of the models)')
  flags.add_argument('--traceback', action='store_true', help='print the full traceback of an error')
  return flags


def make(
  results: 'Results', title: str | None = None, on_progress: Callable[[float, str], None] = lambda share, note: None
) -> tuple[str, dict[str, bytes]]:
  """Makes the page, and the files next to it by name.

  The title is by default the names of the sweeps and models; `on_progress` receives the fraction done and the name of
  the next section.
  """
  import rembert
  from rembert.report.html import Page
  from rembert.report.runs import scale_in_words

  page, functions = Page(), sections()
  for number, section in enumerate(functions):
    on_progress(number / len(functions), section.__name__.replace('_', ' '))
    page.add(section(results))
  names = [source.facts.get('name') or ', '.join(model.name for model in source.models) for source in results.sources]
  facts = [fact for source in results.sources for fact in ((source.kind, source.folder), *source.facts.items())]
  facts.append(('made by', f'rembert {rembert.__version__}'))
  title = title or f'RemBERT: {" · ".join(filter(None, names))}'
  return page.html(title, [*filter(None, [scale_in_words(results)])], facts), page.files


def report(folders: Sequence[str], output: str | None, title: str | None) -> None:
  """Reads results and writes a report, showing the progress."""
  import jax

  jax.config.update('jax_platforms', 'cpu')  # JAX only counts parameters here; a run may be using the accelerator
  from etils import epath

  from rembert.files import check_folder, write_errors, write_whole
  from rembert.report import load
  from rembert.report.scores import Results
  from rembert.tracking.console import Console, human_bytes

  console, folder = Console(), epath.Path(output or epath.Path(folders[0]) / 'report')
  check_folder(folder, 'the report', fix='choose another directory: --output=DIR')
  with console.task('reading'):
    results = Results(load.read(folders))
  with console.task('drawing') as progress:
    html, files = make(results, title, progress)
  with write_errors('the report', folder, fix='choose another directory: --output=DIR'):
    for name, content in files.items():
      write_whole(folder / name, content)
    write_whole(folder / 'index.html', html)
  pictures = sum(name.endswith('.png') for name in files)
  console.say(
    f'report: {folder / "index.html"} ({human_bytes(len(html.encode()))}; {pictures} plot(s) as PNG, '
    f'{len(files) - pictures} table(s) as CSV)'
  )


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns its exit code."""
  options = parser().parse_args(argv)
  return run_command(
    'rembert',
    lambda: report(options.folders, options.output, options.title),
    show_traceback=options.traceback,
  )


if __name__ == '__main__':
  sys.exit(main())
