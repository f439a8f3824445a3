"""Settings of MkDocs that mkdocs.yml cannot express.

Links out of `docs/` lead to pages that are made of the files they name; tables of configurations are made of classes.
"""

import logging
import re

from configuration_fields import with_tables
from mkdocs.structure.files import File, InclusionLevel
from repository_links import outside, page_text, rewritten, site_page

_log = logging.getLogger('mkdocs.hooks.repository_links')  # a warning ends a strict build
# What a browser would load by itself; links that a reader follows are another matter.
_LOADED = re.compile(
  r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="?(?:https?:)?//[^\s">]*', re.IGNORECASE
)
_paths: dict[str, str] = {}  # of generated pages, in the repository, by where the site has them


def on_files(files, *, config):
  """Adds a page for each file and folder outside of `docs/` that is linked to, and for those that these link to."""
  _paths.clear()
  texts = {f'docs/{file.src_uri}': file.content_string for file in files.documentation_pages()}
  while texts:
    page, text = texts.popitem()
    for path in outside(text, page) - set(_paths.values()):
      content = page_text(path)
      uri = site_page(path)
      _paths[uri] = path
      files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
      if path.endswith('.md') or uri.endswith('/index.md'):
        texts[path] = content
  return files


def on_page_markdown(markdown, *, page, config, files):
  """Writes links and tables as the site needs them; what is not there is a warning, with its line."""
  del config, files
  uri = page.file.src_uri
  path = _paths.get(uri, f'docs/{uri}')

  def missing(link):
    _log.warning('%s:%d links to %s, which is not there', path, link.line, link.target)

  return with_tables(rewritten(markdown, path, missing))


def on_post_page(output, *, page, config):
  """The page as HTML; what it would load from elsewhere is a warning."""
  del config
  for match in _LOADED.finditer(output):
    _log.warning('%s would load %s', page.file.src_uri, match[0])
  return output
