"""Dumps written by hand."""

import bz2
import pathlib
from collections.abc import Mapping
from xml.sax.saxutils import escape

import pytest


def _written(folder: pathlib.Path, language: str, articles: Mapping[str, str], *, part: int = 1) -> pathlib.Path:
  pages = ''.join(
    f'<page><title>{escape(title)}</title><ns>0</ns><id>{number}</id>'
    f'<revision><text>{escape(text)}</text></revision></page>'
    for number, (title, text) in enumerate(articles.items(), 1)
  )
  file = folder / f'{language}wiki-1-pages-articles{part}.xml.bz2'
  file.write_bytes(bz2.compress(f'<mediawiki>{pages}</mediawiki>'.encode()))
  return file


@pytest.fixture(scope='session')
def write_dump():
  """Function (folder, language, {title: wikitext}, part=1) → the file, named as Wikipedia names its dumps."""
  return _written
