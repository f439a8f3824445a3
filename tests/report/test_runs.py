"""Models, runs and analyses: numbers that have to be there, and no section where there is nothing."""

import made_up_sweep

from rembert.report import load
from rembert.report.__main__ import sections
from rembert.report.runs import analyses, overview, scale_in_words
from rembert.report.scores import Results


def test_where_there_is_nothing_there_is_no_section(tmp_path):
  for name in ('metrics.jsonl', 'config.gin'):
    (tmp_path / name).write_text('')
  nothing = Results(load.read([tmp_path]))
  assert [section for section in sections() if section(nothing).blocks] == [overview]


def test_the_scale_is_reported_with_its_consequence(sweep, tmp_path):
  words = scale_in_words(sweep)
  assert words.startswith('mini: hidden size 96, 4 to 8 layers, vocabulary size 2,000.')
  assert 'not the level' in words
  large = made_up_sweep.write_pretraining(tmp_path / 'large')
  settings = (large / 'config.gin').read_text()
  grown = settings.replace('hidden_size = 96', 'hidden_size = 768').replace('layers = 4', 'layers = 12')
  (large / 'config.gin').write_text(grown)
  assert 'not the level' not in scale_in_words(Results(load.read([large])))


# --- analyses ---------------------------------------------------------------------------------------------------------


def test_pictures_of_analyses_are_on_the_page(sweep, pictures):
  shown = pictures(analyses(sweep)).values()
  assert len(shown) == 10
  assert all(picture.drawing.startswith(b'\x89PNG') and picture.alt for picture in shown)


def test_what_is_called_png_and_is_none_is_left_out(tmp_path, pictures):
  workdir = made_up_sweep.write_analysis(tmp_path / 'x', 'something_new', {})
  (workdir / 'fake.png').write_text('<svg onload=x>')
  (picture,) = pictures(analyses(Results(load.read([workdir])))).values()
  assert picture.caption == 'Something new, x.'
