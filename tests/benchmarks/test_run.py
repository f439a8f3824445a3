import json
import os
import pickle
import types

import pytest
import rich.console

from benchmarks import data_pipeline, run, startup
from benchmarks.interleaved import Benchmark, Candidate, Measurement, Unavailable

OURS = Candidate('this project', print, (), {'rows': 100, 'MB': 0.5})
THEIRS = Candidate('theirs', print, (), {'rows': 10, 'MB': 0.05})
PRODUCT = Candidate('(product)', print, (), {'GFLOP': 8.0})
ABSENT = Candidate('absent', print, (), {'rows': 10})
MEASURED = {
  'this project': Measurement([2.0, 4.0, 2.0], [2.0, 2.0, 2.0], {'kept': 12_345}),
  'theirs': Measurement([1.0, 2.0, 0.8], [0.5, 0.5, 0.5], {'kept': 9}),
  '(product)': Measurement([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], {'loss': 0.5}),
  'absent': Measurement(failure='wishful is not installed'),
}
CANDIDATES = [OURS, THEIRS, PRODUCT, ABSENT]


def test_the_table_has_rates_facts_ratios_for_the_same_work_and_why_a_candidate_did_not_run():
  columns = {str(each.header): [*map(str, each.cells)] for each in run.table('title', CANDIDATES, MEASURED).columns}
  assert columns['rows/s'][:3] == ['50.00', '10.00', '']
  assert columns['GFLOP/s'][:3] == ['', '', '8.00']
  assert columns['kept'][:3] == ['12,345', '9', '']
  assert columns['loss'][:3] == ['', '', '0.500']
  assert columns['relative time'][:3] == ['', '5.00', '']
  assert columns['min … max'][:3] == ['', '4.00 … 5.00', '']
  assert columns['in CPU seconds'][:3] == ['', '2.50', '']
  assert columns['seconds'][3] == 'NOT MEASURED: wishful is not installed'


def test_the_record_has_raw_samples_and_what_was_derived_from_them():
  ours, theirs, product, absent = json.loads(json.dumps(run.record(CANDIDATES, MEASURED)))
  assert (theirs['seconds'], theirs['times_this_project']) == ([1.0, 2.0, 0.8], [5.0, 5.0, 4.0])
  assert ours['work'] == {'rows': 100, 'MB': 0.5}
  assert 'times_this_project' not in ours
  assert 'times_this_project' not in product
  assert (absent['failure'], absent['seconds']) == ('wishful is not installed', [])


@pytest.mark.parametrize('name', run.BENCHMARKS)
def test_candidates_do_the_same_work_with_the_same_cores(name, tmp_path, monkeypatch):
  monkeypatch.setattr(startup, 'make_vocabulary', lambda size, file: None)
  monkeypatch.setattr(data_pipeline, 'make_store', lambda setting, scratch: scratch / 'store')
  benchmark = run.BENCHMARKS[name]
  ours, *others = benchmark.candidates(next(iter(benchmark.settings.values())), tmp_path)
  assert pickle.loads(pickle.dumps([ours, *others])) == [ours, *others]
  for other in others:
    if not other.name.startswith('('):
      assert (other.work, other.one_core) == (ours.work, ours.one_core)


def test_a_setting_that_lacks_its_data_is_named_in_one_line(monkeypatch, tmp_path):
  def candidates(setting, scratch):
    raise Unavailable('no NVIDIA GPU')

  monkeypatch.setitem(run.BENCHMARKS, 'some', Benchmark({'large': None}, candidates))
  console = rich.console.Console(record=True, width=200)
  run.measure('some', 'large', run.parse_arguments([f'--output={tmp_path}']), console)
  assert 'some, large: NOT MEASURED: no NVIDIA GPU' in console.export_text()
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('arguments', [['--rounds=4'], ['--only=nothing'], ['--setting=nothing']])
def test_flags_that_make_no_sense_are_refused(arguments):
  with pytest.raises(SystemExit):
    run.parse_arguments(arguments)


def test_one_baseline_may_be_chosen_and_a_conclusion_follows_the_table(monkeypatch, tmp_path):
  benchmark = Benchmark(
    {'one': types.SimpleNamespace(description='of something')},
    lambda setting, scratch: CANDIDATES,
    conclusion=lambda setting, measured: f'{len(measured)} were measured {setting.description}',
  )
  measure = lambda candidates, *_, **__: {each.name: MEASURED[each.name] for each in candidates}
  monkeypatch.setitem(run.BENCHMARKS, 'some', benchmark)
  monkeypatch.setattr(run, 'measure_interleaved', measure)
  console = rich.console.Console(record=True, width=200)
  run.measure('some', 'one', run.parse_arguments([f'--output={tmp_path}', '--baseline=(product)']), console)
  assert '2 were measured of something' in console.export_text()
  written = json.loads((tmp_path / 'some-one-_product_.json').read_text())
  assert [each['name'] for each in written['contestants']] == ['this project', '(product)']
  assert written['conclusion'] == '2 were measured of something'
  assert 'gpu' not in written['machine']


def test_results_of_a_gpu_name_it(monkeypatch, tmp_path):
  tool = tmp_path / 'bin' / 'nvidia-smi'
  tool.parent.mkdir()
  tool.write_text('#!/bin/sh\necho NVIDIA H200\necho NVIDIA L4\n')
  tool.chmod(0o755)
  monkeypatch.setenv('PATH', str(tool.parent), prepend=os.pathsep)
  setting = types.SimpleNamespace(description='of something', platform='cuda')
  monkeypatch.setitem(run.BENCHMARKS, 'some', Benchmark({'one': setting}, lambda *_: CANDIDATES))
  monkeypatch.setattr(run, 'measure_interleaved', lambda *_, **__: MEASURED)
  run.measure('some', 'one', run.parse_arguments([f'--output={tmp_path}']), rich.console.Console(record=True))
  assert json.loads((tmp_path / 'some-one.json').read_text())['machine']['gpu'] == 'NVIDIA H200'
