"""The pages of docs/: all in the navigation, links and pictures there, the reference complete. Needs no MkDocs."""

import ast
import dataclasses
import pathlib
import re

import configuration_fields
import pytest
import repository_links
import yaml

from rembert import configuration

ROOT = pathlib.Path(__file__).parent.parent.parent
DOCS = ROOT / 'docs'
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob('*.md'))
# Next to docs/: what the page of the repository shows too.
OTHERS = ('README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md')
MOST_BYTES_OF_A_PICTURE, MOST_BYTES_OF_PICTURES = 300_000, 1_500_000


def settings() -> dict:
  return yaml.safe_load((ROOT / 'mkdocs.yml').read_text(encoding='utf-8'))


def navigated(entries) -> list[str]:
  """Pages of a navigation, in its order."""
  if isinstance(entries, str):
    return [entries]
  parts = entries.values() if isinstance(entries, dict) else entries
  return [page for part in parts for page in navigated(part)]


def text_of(page: str) -> str:
  return (ROOT / page).read_text(encoding='utf-8')


# --- navigation -------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once_and_nothing_else_is():
  shown = [f'docs/{page}' for page in navigated(settings()['nav'])]
  assert len(shown) == len(set(shown))
  assert sorted(shown) == PAGES, 'mkdocs.yml: nav'


@pytest.mark.parametrize('page', PAGES)
def test_a_page_begins_with_its_title_and_has_no_other(page):
  prose = repository_links.without_code(text_of(page))
  assert text_of(page).startswith('# ')
  assert len(re.findall(r'^# ', prose, re.MULTILINE)) == 1


def test_warnings_about_links_are_not_switched_off():
  validation = settings()['validation']
  assert set(validation['links'].values()) | set(validation['nav'].values()) == {'warn'}
  assert settings()['theme']['font'] is False


# --- links and pictures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize('page', [*PAGES, *OTHERS])
def test_relative_links_lead_to_what_is_there(page):
  lost = [
    f'{page}:{link.line} {link.target}'
    for link in repository_links.relative_links(text_of(page))
    if not (ROOT / repository_links.path_of(link.target, page)).exists()
  ]
  assert not lost


@pytest.mark.parametrize('page', [*PAGES, *OTHERS])
def test_anchors_are_headings(page):
  prose = repository_links.without_code(text_of(page))
  lost = [each for each in re.findall(r'\]\(#([^)]+)\)', prose) if each not in repository_links.anchors(text_of(page))]
  for link in repository_links.relative_links(text_of(page)):
    path, anchor = repository_links.path_of(link.target, page), link.target.partition('#')[2]
    is_of_docstring = '.' in anchor  # `make docs` looks for those
    if anchor and not is_of_docstring and anchor not in repository_links.anchors(text_of(path)):
      lost.append(f'{page}:{link.line} {link.target}')
  assert not lost


def test_pictures_are_used_and_small():
  pictures = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in (DOCS / 'images').iterdir()}
  used = {
    repository_links.path_of(link.target, page)
    for page in [*PAGES, *OTHERS]
    for link in repository_links.relative_links(text_of(page))
  }
  assert not pictures.keys() - used
  assert max(pictures.values()) < MOST_BYTES_OF_A_PICTURE
  assert sum(pictures.values()) < MOST_BYTES_OF_PICTURES


def test_links_in_code_are_no_links():
  text = 'a [b](c.md)\n\n    [d](e.md)\n\n```\n[f](g.md)\n```\n\n`[h](i.md)` ![j](k.png) [l](https://m.org/) [n](#o)\n'
  assert [link.target for link in repository_links.relative_links(text)] == ['c.md', 'k.png']


def test_links_out_of_docs_lead_to_pages_of_the_site():
  lost = []
  text = '[a](../../README.md#xtreme) [b](../../gin/models) [c](../hardware.md) [d](../no_such_page.md)'
  shown = repository_links.rewritten(text, 'docs/guides/report.md', lost.append)
  assert shown == (
    '[a](../repository/README.md#xtreme) [b](../repository/gin/models/index.md) [c](../hardware.md) '
    '[d](../no_such_page.md)'
  )
  assert [link.target for link in lost] == ['../no_such_page.md']
  back = repository_links.rewritten('[a](docs/hardware.md) [b](LICENSE)', 'README.md', lost.append)
  assert back == '[a](../hardware.md) [b](LICENSE.md)'
  assert repository_links.outside(text, 'docs/guides/report.md') == {'README.md', 'gin/models'}


# --- reference --------------------------------------------------------------------------------------------------------


def packages() -> list[str]:
  found = [path.parent for top in ('rembert', 'tasks', 'launch') for path in (ROOT / top).rglob('__init__.py')]
  return sorted(path.relative_to(ROOT).as_posix().replace('/', '.') for path in found)


def test_every_package_is_in_the_reference():
  shown = set()
  for page in (DOCS / 'reference').glob('*.md'):
    shown |= set(re.findall(r'^::: ([\w.]+)', page.read_text(encoding='utf-8'), re.MULTILINE))
  is_shown = lambda name: any(name == each or name.startswith(f'{each}.') for each in shown)
  # The two are shown module by module, since their own packages have pages too.
  assert [name for name in packages() if not is_shown(name)] == ['rembert', 'tasks']
  for name in shown:
    module = ROOT / name.replace('.', '/')
    is_function = name == 'rembert.inference.model.load'
    assert is_function or module.with_suffix('.py').exists() or (module / '__init__.py').exists(), name


def test_everything_that_gin_can_set_is_in_the_reference():
  tables = configuration_fields.markers(text_of('docs/reference/configuration.md'))
  path_of = lambda cls: f'{cls.__module__}.{cls.__qualname__}'
  assert tables == [(name, path_of(cls)) for name, cls in configuration.CONFIGURABLES.items()]


@pytest.mark.parametrize('cls', configuration.CONFIGURABLES.values(), ids=configuration.CONFIGURABLES)
def test_tables_say_of_every_field_its_default_and_what_it_is(cls):
  shown = configuration_fields.fields(f'{cls.__module__}.{cls.__qualname__}')
  assert [field.name for field in shown] == [field.name for field in dataclasses.fields(cls)]
  assert all(field.text for field in shown)
  default = {field.name: field.default for field in dataclasses.fields(cls)}
  for field in shown:
    try:
      assert ast.literal_eval(field.default) == default[field.name]
    except ValueError:  # a name, such as that of the sample corpus
      assert field.default.isidentifier()
