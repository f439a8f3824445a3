"""The other sections, on made-up workdirs: numbers that have to be there, and nothing where there is nothing."""

import functools
import json

import made_up_sweep
import pytest

from rembert import paper
from rembert.model.parameter_count import count_parameters
from rembert.report import reading
from rembert.report.page import MISSING, Cell, Details, Picture, Table
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
  time,
  xtreme,
)

ALL = (analyses, configurations, curves, figures, languages, models, parameters, probes, scores_by_run, time, xtreme)


def cells(row):
  return [cell.text if isinstance(cell, Cell) else cell for cell in row]


def tables_of(section):
  found = [block.table if isinstance(block, Details) else block for block in section.blocks]
  return {block.caption: block for block in found if isinstance(block, Table)}


def pictures_of(section):
  return {block.name: block for block in section.blocks if isinstance(block, Picture)}


@pytest.fixture(scope='module')
def sweep(tmp_path_factory):
  folder = tmp_path_factory.mktemp('parts') / 'sweep'
  return reading.read([made_up_sweep.write_sweep(folder, ['in128_out128', 'in128_out768', 'layers23to12'], seeds=2)])


@pytest.fixture(scope='module')
def section_of(sweep, run):
  """Module and `sweep` or `run` to its section, drawn once for all tests."""
  sources = {'sweep': sweep, 'run': run}
  return functools.cache(lambda module, name: module.section(sources[name]))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  return reading.read([made_up_sweep.write_pretraining(tmp_path_factory.mktemp('parts') / 'run')])


@pytest.mark.parametrize('module', ALL)
def test_where_there_is_nothing_there_is_no_section(module, tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('')
  (tmp_path / 'config.gin').write_text('')
  section = module.section(reading.read([tmp_path]))
  assert module is models or not section.blocks


def test_parameters_are_those_of_the_modules_before_and_after(section_of, run):
  counts = count_parameters(run[0].models[0].runs[0].model)
  (group,) = tables_of(section_of(parameters, 'run'))['Parameters by part'].groups
  before, after = map(cells, group.rows)
  assert before[7] == f'{counts.pre_training:,}'
  assert after[7] == f'{counts.fine_tuning:,}'
  assert after[5:7] == [MISSING, MISSING]  # no MLM transform, no output embedding
  assert sum(parameters.bar_parts(counts.by_part).values()) == counts.pre_training
  assert sum(parameters.bar_parts(counts.kept_by_part).values()) == counts.fine_tuning
  cut = tables_of(section_of(parameters, 'sweep'))['Parameters by part'].groups[2]
  assert cells(cut.rows[0])[3] == f'{2 * int(cells(cut.rows[1])[3].replace(",", "")):,}'  # half of the layers is kept
  assert cells(cut.rows[0])[-1] == '193M'


@pytest.mark.parametrize(('count', 'words'), [(1_234_567, '1.23M'), (99_999_999, '100M'), (994_591_804, '995M')])
def test_millions_are_written_as_the_paper_does(count, words):
  assert parameters.millions(count) == words


def test_a_run_alone_has_its_loss_and_a_sweep_an_overlay(section_of):
  assert set(pictures_of(section_of(curves, 'run'))) == {'Loss', 'MLM accuracy'}
  assert 'frequent each piece is costs 7.200' in pictures_of(section_of(curves, 'run'))['Loss'].caption
  assert set(pictures_of(section_of(curves, 'sweep'))) == {'Held-out loss', 'MLM accuracy', 'Training loss'}


def test_losses_of_other_vocabularies_come_with_a_warning(tmp_path, section_of):
  folders = [made_up_sweep.write_pretraining(tmp_path / name) for name in ('a', 'b')]
  file = folders[0] / 'checkpoints/200/meta/metadata'
  file.write_text(json.dumps(json.loads(file.read_text()) | {'RemBertConfig.vocab_size': 3000}))
  words = [block for block in curves.section(reading.read(folders)).blocks if isinstance(block, str)]
  assert 'vocabularies differ' in words[0]
  assert not any(isinstance(block, str) for block in section_of(curves, 'sweep').blocks)


def test_languages_are_a_curve_and_a_line_each(section_of):
  table = tables_of(section_of(languages, 'run'))['Each language']
  assert [row[0] for row in table.groups[0].rows] == ['en', 'de', 'ru', 'sw', 'zh']  # the lowest loss first
  together = tables_of(section_of(languages, 'sweep'))['Languages of all models']
  assert list(together.columns) == ['language', 'in128_out128', 'in128_out768', 'layers23to12']
  assert len(pictures_of(section_of(languages, 'sweep'))) == 3


def test_figure_1_has_a_point_for_every_number_of_layers(section_of, sweep):
  curve = figures.by_kept_layers(sweep[0].models[0])
  assert {task: list(points) for task, points in curve.items()} == {'xnli': [2, 3, 4]}
  assert all(point.runs == 2 for point in curve['xnli'].values())
  assert figures.by_kept_layers(sweep[0].models[2]) == {}  # Table 5 cuts layers for another reason
  assert {'Figure 1 XNLI', 'Figure 1 of the paper', 'Figure 2', 'Figure 2 of the paper'} == set(
    pictures_of(section_of(figures, 'sweep'))
  )


def test_figure_2_has_every_layer_but_the_embeddings(sweep):
  assert list(figures.by_layer(sweep[0].models[0])) == [1, 2, 3, 4]
  assert list(figures.by_layer(sweep[0].models[2])) == list(range(1, 9))


@pytest.mark.parametrize('results', [{}, {'layers': 3}, {'layers': [1], 'mean': 'x'}, {'layers': ['a'], 'mean': [1.0]}])
def test_retrieval_that_is_none_is_no_curve(results, tmp_path):
  workdir = made_up_sweep.write_analysis(tmp_path, 'layer_retrieval', results)
  assert figures.by_layer(reading.read([workdir])[0].models[0]) == {}


def test_the_papers_curves_have_the_colours_of_our_models(sweep):
  places = {name: place for place, name, _ in figures._as_ours(paper.FIGURE_1, sweep[0].models)}
  assert (places['in128_out128'], places['in128_out768']) == (0, 1)
  assert places['in128_out3072'] == 3  # nobody stands for it: a colour that is free


def test_a_task_has_its_languages_mean_gap_and_who_has_not_read(section_of, sweep):
  table = tables_of(section_of(xtreme, 'sweep'))['XNLI: 5 language(s)']
  by_language, summary = table.groups
  assert next(row[0] for row in by_language.rows) == 'en'
  assert [row[0] for row in summary.rows] == ['mean', 'zero-shot gap']
  assert table.columns[-1] == 'without reading'
  assert cells(summary.rows[0])[-1] == '33.3'
  scores = xtreme.scores_by_name(sweep[0].models)['in128_out128']['xnli'].summary()
  assert cells(summary.rows[1])[1] == f'{scores.gap.mean:.1f} ± {scores.gap.deviation:.1f}'


def test_what_was_changed_in_fine_tuning_has_its_own_table(section_of):
  table = tables_of(section_of(xtreme, 'sweep'))['Changes in fine-tuning']
  assert [row[0] for row in table.groups[0].rows] == [
    'as it is',
    'RemBertConfig.num_hidden_layers=2',
    'RemBertConfig.num_hidden_layers=3',
  ]


def test_the_leaderboards_row_stands_beside_the_papers(section_of):
  table = tables_of(section_of(xtreme, 'sweep'))["The leaderboard's row: Tables 7 and 16"]
  names = [row[0] for row in table.groups[0].rows]
  assert names[-2:] == ['RemBERT (paper)', 'XLM-R (paper)']
  assert cells(table.groups[0].rows[-2])[-2:] == ['75.4', '74.4']
  assert cells(table.groups[0].rows[0])[1].endswith('*')  # five languages of fifteen


def test_scores_on_dev_are_drawn_for_every_task(section_of):
  assert {'XNLI on dev', 'NER on dev', 'PAWS-X on dev', 'SQuAD on dev', 'TyDi QA on dev'} <= set(
    pictures_of(section_of(xtreme, 'sweep'))
  )


def test_analyses_are_tables_and_their_pictures_lie_in_the_page(section_of):
  section = section_of(analyses, 'sweep')
  found = tables_of(section)
  assert 'mean · accuracy' in [row[0] for row in found['Masked pieces predicted'].groups[0].rows]
  assert [group.title for group in found['Masked pieces predicted: languages'].groups] == [
    'in128_out128',
    'in128_out768',
    'layers23to12',
  ]
  pictures = pictures_of(section).values()
  assert len(pictures) == 6
  assert all(picture.drawing.svg.get('src').startswith('data:image/png;base64,') for picture in pictures)
  assert all(picture.drawing.svg.get('alt') for picture in pictures)


def test_an_analysis_of_any_form_is_shown_as_far_as_it_can_be(tmp_path):
  results = {'a': None, 'b': float('inf'), 'c': [1, 2], 'd': {'e': '<b>'}, 'f': list(range(1000)), 'g': True, 'h': {}}
  workdir = made_up_sweep.write_analysis(tmp_path / 'x', 'something_new', results)
  (workdir / 'fake.png').write_text('<svg onload=x>')
  section = analyses.section(reading.read([workdir]))
  (table,) = tables_of(section).values()
  assert dict(map(cells, table.groups[0].rows)) == {'b': MISSING, 'c': '1  2', 'd · e': '<b>', 'g': 'True'}
  assert len(pictures_of(section)) == 1  # what is called .png and is none is left out


def test_table_8_has_both_embeddings_beside_the_papers(tmp_path):
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out128', 'coupled768'], is_there=lambda workdir: False)
  content = json.loads((folder / 'sweep.json').read_text())
  rho = lambda value: {'rho': value, 'low': None, 'high': None}
  sets = {
    'MEN_dataset': {'input': rho(40.0), 'output': rho(30.0)},
    'rare-word': {'input': rho(20.0), 'output': None},
    'SimLex-999': {'input': rho(None), 'output': rho(1.0)},
  }
  for seed, shift in enumerate((0.0, 2.0)):
    men = {'input': rho(40.0 + shift), 'output': rho(30.0)}
    made_up_sweep.write_analysis(folder / f'w{seed}', 'word_similarity', {'sets': sets | {'MEN_dataset': men}})
    entry = {'pretrain_seed': seed, 'what': 'word_similarity', 'workdir': f'w{seed}'}
    content['models'][0]['analyses'].append(entry)
  (folder / 'sweep.json').write_text(json.dumps(content))
  (table,) = tables_of(probes.section(reading.read([folder]))).values()
  group = next(group for group in table.groups if group.title == 'E_out = 128')
  ours, printed = map(cells, group.rows)
  assert ours == ['ours', '41.0 ± 1.4/30.0 ± 0.0', MISSING, '20.0 ± 0.0', f'{MISSING}/1.0 ± 0.0', MISSING, MISSING]
  assert printed == ['paper', '40.7/36.6', '37.7/32.8', '23.6/16.4', '17.5/17.3', '48.9/46.4', '59.0']
  coupled = next(group for group in table.groups if group.title == 'coupled')
  assert cells(coupled.rows[1])[1] == '40.8'  # one table is both


def test_table_9_takes_each_probe_by_its_name(tmp_path):
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out768'], is_there=lambda workdir: False)
  content = json.loads((folder / 'sweep.json').read_text())
  for task, score in (('spr2', 80.0), ('coref-ontonotes', 90.0)):
    results = {'task': task, 'encoders': {'model': {'mean': {'micro_f1': score}}, 'random': None}}
    made_up_sweep.write_analysis(folder / task, 'edge_probing', results)
    content['models'][0]['analyses'].append({'pretrain_seed': 0, 'what': 'edge_probing', 'workdir': task})
  (folder / 'sweep.json').write_text(json.dumps(content))
  (table,) = tables_of(probes.section(reading.read([folder]))).values()
  ours, printed = map(cells, table.groups[1].rows)
  assert dict(zip(table.columns[1:], ours, strict=True)) == {
    'from': 'ours',
    **dict.fromkeys(('POS', 'Const.', 'Deps.', 'Entities', 'SRL', 'Coref W.', 'SPR1', 'Rel.', 'Avg'), MISSING),
    'SPR2': '80.0',
    'Coref O.': '90.0',
  }
  assert printed[-1] == '87.1'


def test_time_is_that_of_the_account(section_of):
  table = tables_of(section_of(time, 'run'))['Where the time went']
  row = dict(zip(table.columns, cells(table.groups[0].rows[0]), strict=True))
  assert (row['all'], row['step'], row['goodput'], row['a step']) == ('1:55', '1:40', '87.0%', '0.5 s')


def test_settings_that_differ_are_a_table_and_those_that_do_not_are_folded(tmp_path):
  folders = [made_up_sweep.write_pretraining(tmp_path / name, name) for name in ('in128_out128', 'in128_out768')]
  section = configurations.section(reading.read(folders))
  table = tables_of(section)['What differs']
  assert [cells(row) for row in table.groups[0].rows] == [['RemBertConfig.output_embedding_size', '16', '96']]
  assert [type(block) for block in section.blocks] == [Table, Details]


def test_the_overview_says_how_far_everything_is(tmp_path):
  folder = made_up_sweep.write_sweep(tmp_path, ['in128_out128'], seeds=2, is_there=lambda workdir: 'seed_0' in workdir)
  (folder / 'pretrain/in128_out128/seed_0/metrics.jsonl').open('a').write('{"step": \n')
  (table,) = tables_of(models.section(reading.read([folder]))).values()
  row = dict(zip(table.columns, cells(table.groups[0].rows[0]), strict=True))
  assert (row['pre-trained'], row['judged'], row['analysed']) == ('1 of 1', '7 of 14', '0 of 2')
  assert any('1 line(s) of metrics.jsonl cannot be read' in note for note in table.notes)


def test_the_scale_is_said_and_what_follows_from_it(sweep, tmp_path):
  words = models.scale_in_words(sweep)
  assert words.startswith('mini: 96 wide, 4 to 8 layers, vocabulary of 2,000.')
  assert 'cannot be compared' in words
  large = made_up_sweep.write_pretraining(tmp_path / 'large')
  file = large / 'checkpoints/200/meta/metadata'
  grown = {'RemBertConfig.hidden_size': 768, 'RemBertConfig.num_hidden_layers': 12}
  file.write_text(json.dumps(json.loads(file.read_text()) | grown))
  assert 'cannot be compared' not in models.scale_in_words(reading.read([large]))
