"""Analyses of any form are shown as far as they can be."""

import made_up_sweep

from rembert.report import load
from rembert.report.analyses import analyses
from rembert.report.html import MISSING
from rembert.report.scores import Results


def test_analyses_are_tables_and_their_pictures_lie_in_the_page(sweep, tables, pictures):
  section = analyses(sweep)
  found = tables(section)
  assert 'mean · accuracy' in found['Masked pieces predicted'].frame.index
  groups = found['Masked pieces predicted: languages'].frame.index.get_level_values('model')
  assert list(dict.fromkeys(groups)) == [model.name for model in sweep.models]
  shown = pictures(section).values()
  assert len(shown) == 10
  assert all(picture.drawing.startswith(b'\x89PNG') and picture.alt for picture in shown)


def test_an_analysis_of_any_form_is_shown_as_far_as_it_can_be(tmp_path, tables, pictures):
  results = {'a': None, 'b': float('inf'), 'c': [1, 2], 'd': {'e': '<b>'}, 'f': list(range(1000)), 'g': True, 'h': {}}
  workdir = made_up_sweep.write_analysis(tmp_path / 'x', 'something_new', results)
  (workdir / 'fake.png').write_text('<svg onload=x>')
  section = analyses(Results(load.read([workdir])))
  (table,) = tables(section).values()
  assert table.frame['x'].to_dict() == {'b': MISSING, 'c': '1  2', 'd · e': '<b>', 'g': 'True'}
  assert [table.look(row, 'x') for row in table.frame.index] == ['', 'text', 'text', 'text']
  assert len(pictures(section)) == 1  # what is called .png and is none is left out


def test_of_a_long_table_the_first_rows_are_shown_folded(tmp_path, tables):
  results = {'rows': {f'r{number:03d}': {'x': number} for number in range(450)}}
  (table,) = tables(analyses(Results(load.read([made_up_sweep.write_analysis(tmp_path, 'new', results)])))).values()
  assert (len(table.frame), table.is_folded) == (400, True)
  assert table.notes == ['The first 400 of 450 lines; analysis.json has all.']
