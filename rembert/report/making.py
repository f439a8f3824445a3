"""A report from folders: what is read goes through every section and becomes a page, with its files beside it."""

from collections.abc import Callable, Sequence

from etils import epath

import rembert
from rembert.report import page, reading
from rembert.report.sections import (
  analyses,
  configurations,
  curves,
  figures,
  languages,
  models,
  parameters,
  probes,
  scores_by_run,
  tables,
  time,
  xtreme,
)
from rembert.storage import write_errors, write_whole

# In the order of the page.
SECTIONS = (
  ('models', models.section),
  ('loss', curves.section),
  ('languages', languages.section),
  ('parameters', parameters.section),
  ('paper tables', tables.section),
  ('figures', figures.section),
  ('tables 8 and 9', probes.section),
  ('XTREME', xtreme.section),
  ('every score', scores_by_run.section),
  ('analyses', analyses.section),
  ('time', time.section),
  ('configuration', configurations.section),
)


def make(
  sources: Sequence[reading.Source],
  title: str | None = None,
  on_progress: Callable[[float, str], None] = lambda fraction, note: None,
) -> page.Page:
  """The page of what was read.

  Args:
    sources: of `reading.read`.
    title: of the page; the names of the folders by default.
    on_progress: share that is done, and what is next.
  """
  sections = []
  for number, (name, section) in enumerate(SECTIONS):
    on_progress(number / len(SECTIONS), name)
    sections.append(section(sources))
  scale = models.scale_in_words(sources)
  facts = []
  for source in sources:
    facts.append((source.kind, source.folder))
    facts += source.facts.items()
  facts.append(('made by', f'rembert {rembert.__version__}'))
  return page.make(title or default_title(sources), [scale] if scale else [], facts, sections)


def default_title(sources: Sequence[reading.Source]) -> str:
  """What the page is called where nobody says: the sweep, the model, or the models."""
  names = [source.facts.get('name') or ', '.join(model.name for model in source.models) for source in sources]
  return f'RemBERT: {" · ".join(name for name in names if name)}'


def write(made: page.Page, folder: epath.PathLike) -> epath.Path:
  """Writes the page and its files into a folder, and returns the page's path."""
  folder = epath.Path(folder)
  with write_errors('the report', folder, fix='choose another folder: --output=DIR'):
    for name, content in made.files.items():
      write_whole(folder / name, content)
    write_whole(folder / 'index.html', made.html)
  return folder / 'index.html'
