"""Models, runs and analyses: numbers that have to be there, and no section where there is nothing."""

import json

import made_up_sweep
import pytest

from rembert.model.parameter_count import count_parameters
from rembert.report import load
from rembert.report.__main__ import SECTIONS, section_of
from rembert.report.html import MISSING
from rembert.report.runs import analyses, configuration, overview, parameters, scale_in_words, time
from rembert.report.scores import Results


@pytest.mark.parametrize('name', SECTIONS)
def test_where_there_is_nothing_there_is_no_section(name, tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('')
  (tmp_path / 'config.gin').write_text('')
  section = section_of(name)(Results(load.read([tmp_path])))
  assert name == 'overview' or not section.blocks


def test_parameters_are_those_of_the_modules_before_and_after(sweep, run, tables):
  counts = count_parameters(run.models[0].config)
  frame = tables(parameters(run))['Parameters by part'].frame
  assert list(frame['all']) == [f'{counts.pre_training:,}', f'{counts.fine_tuning:,}']
  after = frame.loc['run', 'fine-tuning']
  assert after['MLM transform'] == after['output embedding'] == MISSING
  cut = tables(parameters(sweep))['Parameters by part'].frame.loc['layers23to12']
  before, after = (int(text.replace(',', '')) for text in cut['layers'])
  assert before == 2 * after  # half of the layers are kept
  assert cut['the paper'].iloc[0] == '193M'


def test_time_is_that_of_the_account(run, tables):
  row = tables(time(run))['Where the time went'].frame.loc['run']
  assert (row['all'], row['step'], row['goodput'], row['a step']) == ('1:55', '1:40', '87.0%', '0.5 s')


def test_settings_that_differ_are_a_table_and_those_that_do_not_are_folded(tmp_path):
  folders = [made_up_sweep.write_pretraining(tmp_path / name, name) for name in ('in128_out128', 'in128_out768')]
  different, shared = configuration(Results(load.read(folders))).blocks
  assert different.caption == 'What differs'
  assert different.frame.loc['RemBertConfig.output_embedding_size'].to_list() == ['16', '96']
  assert len(different.frame) == 1
  assert (different.is_folded, shared.is_folded) == (False, True)


def test_the_overview_says_how_far_everything_is(tmp_path, tables):
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out128'], seeds=2, is_there=lambda workdir: 'seed_0' in workdir)
  (folder / 'pretrain/in128_out128/seed_0/metrics.jsonl').open('a').write('{"step": \n')
  table = tables(overview(Results(load.read([folder]))))['What there is']
  row = table.frame.loc['in128_out128']
  assert (row['pre-trained'], row['judged'], row['analysed']) == ('1 of 1', '7 of 14', '0 of 2')
  assert any('1 line(s) of metrics.jsonl cannot be read' in note for note in table.notes)


def test_the_scale_is_said_and_what_follows_from_it(sweep, tmp_path):
  words = scale_in_words(sweep)
  assert words.startswith('mini: 96 wide, 4 to 8 layers, vocabulary of 2,000.')
  assert 'cannot be compared' in words
  large = made_up_sweep.write_pretraining(tmp_path / 'large')
  file = large / 'checkpoints/200/meta/metadata'
  grown = {'RemBertConfig.hidden_size': 768, 'RemBertConfig.num_hidden_layers': 12}
  file.write_text(json.dumps(json.loads(file.read_text()) | grown))
  assert 'cannot be compared' not in scale_in_words(Results(load.read([large])))


# --- analyses ---------------------------------------------------------------------------------------------------------


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
