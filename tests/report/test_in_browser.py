"""The page in a real Chromium, wide and narrow, light and dark: no console message, no fetch, all can be reached.

    make browser

Needs Playwright's client (tests/report/requirements.txt) and a Chromium of the system or of Playwright's own.
"""

import os
import pathlib
import shutil

import made_up_sweep
import pytest

from rembert.report.__main__ import main

playwright = pytest.importorskip('playwright.sync_api', reason='needs Playwright: make browser')

SIZES = {'wide': (1280, 900), 'narrow': (400, 800)}
# Contrast that WCAG 2 asks of text.
LEAST_CONTRAST = 4.5
LUMINANCE = """
const of = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = text => text.match(/[\\d.]+/g).map(Number);
"""


@pytest.fixture(scope='module')
def browser():
  """Chromium, without a window."""
  found = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
  # A container's root has no sandbox to go to; what is opened is our own page.
  arguments = ['--no-sandbox'] if os.geteuid() == 0 else []
  with playwright.sync_playwright() as started:
    path = found or started.chromium.executable_path
    if not pathlib.Path(path).exists():
      pytest.skip('needs Chromium: none is installed')
    chromium = started.chromium.launch(executable_path=path, args=arguments)
    yield chromium
    chromium.close()


@pytest.fixture(scope='module')
def report(tmp_path_factory) -> pathlib.Path:
  """The page of a sweep with a name that is too long for any screen, and markup in it."""
  folder = tmp_path_factory.mktemp('browser') / 'sweep'
  made_up_sweep.write_sweep(folder, ['in128_out128', 'in128_out3072'], seeds=2)
  text = (folder / 'sweep.json').read_text()
  (folder / 'sweep.json').write_text(text.replace('"name": "in128_out3072"', f'"name": "<b>{"long" * 40}"'))
  assert main([str(folder)]) == 0
  return folder / 'report' / 'index.html'


@pytest.fixture(params=[(size, scheme) for size in SIZES for scheme in ('light', 'dark')], ids='-'.join)
def opened(request, browser, report):
  """The page, what the console said, and what was asked for."""
  size, scheme = request.param
  width, height = SIZES[size]
  context = browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
  page, said, asked = context.new_page(), [], []
  page.on('console', lambda message: said.append(message.text))
  page.on('pageerror', lambda error: said.append(str(error)))
  page.on('request', lambda request: asked.append(request.url))
  page.goto(report.as_uri())
  yield page, said, asked
  context.close()


def test_there_are_no_console_messages_and_no_requests(opened, report):
  page, said, asked = opened
  page.mouse.wheel(0, 100_000)
  assert said == []
  assert asked == [report.as_uri()]


def test_the_page_is_no_wider_than_the_screen(opened):
  page, _, _ = opened
  scroll, inner = page.evaluate('[document.documentElement.scrollWidth, innerWidth]')
  assert scroll <= inner
  wide = page.evaluate(
    """[...document.querySelectorAll('body *')].filter(e => !e.closest('.frame, nav ul, svg, .skip')
       && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
  )
  assert wide == []


def test_tab_reaches_the_links_and_every_table(opened):
  page, _, _ = opened
  links = page.locator('nav a').count()
  frames = page.locator('.frame:visible').count()
  reached = []
  for _ in range(10 + links + 4 * frames + page.locator('.file').count()):
    page.keyboard.press('Tab')
    reached.append(
      page.evaluate(
        """(() => { const e = document.activeElement;
        const name = e.getAttribute('aria-labelledby') || e.getAttribute('href');
        return [e.className, e.closest('nav') ? 'nav' : '', name];
        })()"""
      )
    )
    if len({each[2] for each in reached if each[0].startswith('frame')}) == frames:
      break
  assert reached[0][0] == 'skip'
  assert len({each[2] for each in reached if each[1] == 'nav'}) == links
  assert len({each[2] for each in reached if each[0].startswith('frame')}) == frames


def test_a_wide_table_is_moved_by_the_keyboard(opened):
  page, _, _ = opened
  page.set_viewport_size({'width': 400, 'height': 800})  # on a wide screen there may be none
  frames = page.locator('.frame:visible')
  wide = [n for n in range(frames.count()) if frames.nth(n).evaluate('e => e.scrollWidth > e.clientWidth + 50')]
  assert wide
  frame = frames.nth(wide[0])
  frame.focus()
  page.keyboard.press('ArrowRight')
  page.wait_for_function('e => e.scrollLeft > 0', arg=frame.element_handle())


def test_links_lead_to_their_sections(opened):
  page, _, _ = opened
  page.locator('nav a', has_text='XTREME').click()
  top = page.locator('h2', has_text='XTREME').evaluate('e => e.getBoundingClientRect().top')
  bar = page.locator('nav').evaluate('e => e.getBoundingClientRect().bottom')
  assert bar <= top < page.viewport_size['height'] / 2


def test_text_can_be_told_from_its_background(opened):
  page, _, _ = opened
  faint = page.evaluate(
    f"""(() => {{ {LUMINANCE}
    const ground = e => {{ for (; e; e = e.parentElement) {{
      const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return numbers(c); }} }};
    const found = [];
    const texts = 'h1, h2, p, dt, dd, a, td, th, li, caption, figcaption, svg.picture text';
    for (const e of document.querySelectorAll(texts)) {{
      const style = getComputedStyle(e);
      const ink = numbers(e.tagName === 'text' ? style.fill : style.color);
      const [low, high] = [of(ink), of(ground(e))].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05);
      if (ratio < {LEAST_CONTRAST}) found.push([e.tagName, e.className, ratio]);
    }}
    return found; }})()"""
  )
  assert faint == []


def test_pictures_are_large_enough_to_be_read(opened):
  page, _, _ = opened
  sizes = page.evaluate(
    """[...document.querySelectorAll('svg.picture text')].map(e => { const m = e.getScreenCTM();
       return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(m.c, m.d); })"""
  )
  assert min(sizes) > 7.5


def test_words_of_a_picture_stay_within_it(opened):
  page, _, _ = opened
  outside = page.evaluate(
    """[...document.querySelectorAll('svg.picture')].flatMap(svg => { const box = svg.getBoundingClientRect();
       return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
         return b.left < box.left - 4 || b.right > box.right + 4; }).map(t => svg.getAttribute('aria-label') + ': '
         + t.textContent); })"""
  )
  assert outside == []


def test_print_is_light_and_shows_all_of_a_table(opened):
  page, _, _ = opened
  page.emulate_media(media='print')
  assert not page.locator('nav').is_visible()
  assert page.evaluate('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)'
  assert page.locator('.frame').first.evaluate('e => getComputedStyle(e).overflowX') == 'visible'
  assert page.locator('figure').first.evaluate('e => getComputedStyle(e).breakInside') == 'avoid'


def test_names_of_models_are_text(opened):
  page, _, _ = opened
  assert page.locator('b').count() == 0
  assert page.get_by_text('<b>long').count() > 0
