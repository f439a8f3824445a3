"""docs/performance.md says what was measured: its tables are those of docs/performance.json."""

import json

import pandas as pd
import pytest

from benchmarks import time_to_quality
from docs.tools import performance
from docs.tools.rendering import with_tables

RESULTS = json.loads(performance.RESULTS.read_text())
RECORD = {
  'benchmark': 'some',
  'setting': 'small',
  'date': '2026-01-02T03:04:05+00:00',
  'description': 'two rows',
  'versions': {'python': '3.11', 'jax': '0.1', 'torch': None},
  'machine': {'cpu': 'A processor', 'cores': 2, 'memory_bytes': 8e9, 'load_before': 0.0, 'system': 'x'},
  'conclusion': '',
  'contestants': [
    {
      **{'name': 'this project', 'seconds': [0.5, 0.25, 0.5], 'cpu_seconds': [1, 1, 1], 'peak_bytes': 2_000_000_000},
      **{'work': {'rows': 200}, 'failure': '', 'facts': {}, 'preparation_seconds': 3.0},
    },
    {
      **{'name': 'theirs', 'seconds': [1.0, 1.0, 1.23456], 'cpu_seconds': [2, 2, 2], 'peak_bytes': 1_000_000_000},
      **{'work': {'rows': 200}, 'failure': '', 'facts': {}, 'one_core': False},
      **{'times_this_project': [2.0, 4.0, 2.5], 'times_this_project_in_cpu_seconds': [2.0, 2.0, 2.0]},
    },
    {'name': 'absent', 'seconds': [], 'peak_bytes': 0, 'work': {'rows': 200}, 'failure': 'wishful is not installed'},
  ],
}


def test_the_page_and_its_picture_are_of_the_results_that_are_kept():
  text = performance.PAGE.read_text()
  quality = pd.read_csv(performance.QUALITY)
  tables = performance.benchmark_tables(RESULTS) | {'time_to_quality': performance.quality_table(quality)}
  assert text == with_tables(text, tables)
  assert time_to_quality.summarize(quality)[1] in ' '.join(text.split())


@pytest.mark.parametrize(
  ('words', 'benchmark', 'setting', 'unit'),
  [
    ('base', 'train_step', 'base', ' GB'),
    ('fine-tuning', 'finetuning', '', ''),
    ('sentence embeddings', 'encoding', '', ''),
  ],
)
def test_peaks_of_memory_on_the_page_are_those_of_the_results(words, benchmark, setting, unit):
  peaks: dict[bool, list[float]] = {True: [], False: []}
  for record in RESULTS.values():
    if record['benchmark'] == benchmark and record['setting'].startswith(setting):
      for each in record['contestants']:
        if each['name'] != 'plain JAX sketch' and not each['name'].startswith('('):
          peaks[each['name'].startswith(('this project', '…'))].append(each['peak_bytes'] / 1e9)
  ours, others = (f'{min(found):.1f} to {max(found):.1f}' for found in (peaks[True], peaks[False]))
  assert f'{words} {ours}{unit} ({others})' in ' '.join(performance.PAGE.read_text().split())


def test_a_table_has_medians_and_ratios_and_says_who_is_missing():
  tables = performance.benchmark_tables({'a': RECORD})
  assert set(tables) == {'some', 'machine'}
  head, _, ours, theirs, absent = tables['some'].splitlines()
  assert head == '|  | A processor |'
  assert ours == '| **small**: two rows | 0.5 s |'
  assert theirs == '| theirs | **2.50** (2.00–4.00) |'
  assert absent == '| absent | wishful is not installed |'
  assert '| A processor, 2 cores, 8 GB | python 3.11, jax 0.1 | 2026-01-02 |' in tables['machine']


def test_results_of_gpus_have_a_table_of_their_own():
  on_gpu = RECORD | {'setting': 'large', 'machine': RECORD['machine'] | {'gpu': 'A GPU'}}
  tables = performance.benchmark_tables({'a': RECORD, 'b': on_gpu})
  assert '**large**' not in tables['some']
  assert tables['gpu'].splitlines()[:3:2] == ['|  | A GPU |', '| **large**: two rows | 0.5 s |']
  assert 'A processor, 2 cores, 8 GB; A GPU, 2 cores, 8 GB' in tables['machine']


def test_a_setting_is_described_by_what_differs_from_the_first_or_from_its_family():
  settings = {
    'base': 'batch 2, float32 · L 12',
    'base_half': 'batch 2, bfloat16 · L 12',
    'small': 'batch 9, float32 · L 4',
  }
  records = {name: RECORD | {'setting': name, 'description': text} for name, text in settings.items()}
  records['small_half'] = RECORD | {'setting': 'small_half', 'description': 'batch 9, bfloat16 · L 4'}
  lines = performance.benchmark_tables(records)['some'].splitlines()
  assert [line.split(' | ')[0] for line in lines if line.startswith('| **')] == [
    '| **base**: batch 2, float32, L 12',
    '| **base_half**: bfloat16',
    '| **small**: batch 9, L 4',
    '| **small_half**: bfloat16',
  ]


def test_growth_has_a_row_for_each_kind_of_size():
  sizes = [{'name': f'{size:,}', 'seconds': [size / 1e3] * 3} for size in (10, 1000)]
  record = RECORD | {
    'benchmark': 'growth',
    'setting': 'shards',
    'contestants': sizes,
    'conclusion': 'time ∝ shards^1.00',
  }
  other = record | {'machine': RECORD['machine'] | {'cpu': 'Another'}}
  [head, _, row] = performance.benchmark_tables({'a': record, 'b': other})['growth'].splitlines()
  assert head == '|  | sizes | A processor | Another |'
  cell = '0.01 · 1 s; time ∝ shards^1.00'
  assert row == f'| two rows | 10 · 1,000 shards | {cell} | {cell} |'


def test_new_results_take_the_place_of_older_ones_and_other_processors_the_next_column(tmp_path):
  names = [f'{name}, Maker Chip' for name in ('train_step-base', 'train_step-base_bfloat16', 'some-small')]
  on = lambda cpu: RECORD | {'machine': RECORD['machine'] | {'cpu': cpu}}
  before = {name: on('Maker Chip') for name in names} | {names[-1]: {'old': 1}}
  (tmp_path / 'train_step-base.json').write_text(json.dumps(on('Maker(R) Fast(TM) Chip 7 Processor')))
  (tmp_path / 'some-small.json').write_text(json.dumps(on('Maker Chip')))
  taken = performance.taken(before, tmp_path)
  assert list(taken) == [names[0], 'train_step-base, Maker Fast Chip 7', *names[1:]]
  [ours, theirs, _] = taken[names[-1]]['contestants']
  assert theirs['seconds'] == [1.0, 1.0, 1.235]  # samples are kept
  assert 'preparation_seconds' not in ours
  both = performance.benchmark_tables({name: taken[name] for name in list(taken)[:2]})
  assert both['some'].startswith('|  | Maker Chip | Maker Fast Chip 7 |')


def test_what_is_kept_can_be_rendered_again(tmp_path, monkeypatch):
  for name in ('RESULTS', 'PAGE', 'PICTURE', 'QUALITY', 'QUALITY_PICTURE'):
    monkeypatch.setattr(performance, name, tmp_path / name)
  (tmp_path / 'quality').mkdir()
  runs = pd.DataFrame(
    [(name, 0, step, 100 * step, 60.0 * step, 9 - step) for name in time_to_quality.CANDIDATES for step in (1, 2)],
    columns=time_to_quality.FIELDS,
  )
  runs.to_csv(tmp_path / 'quality' / 'results.csv', index=False)
  (tmp_path / 'new').mkdir()
  (tmp_path / 'new' / 'some-small.json').write_text(json.dumps(RECORD))
  page = ''.join(f'<!-- table: {name} -->\n<!-- end -->\nwords\n' for name in ('some', 'machine', 'time_to_quality'))
  (tmp_path / 'PAGE').write_text(page)
  performance.main([str(tmp_path / 'new'), f'--time_to_quality={tmp_path}/quality'])
  rendered, drawn = (tmp_path / 'PAGE').read_text(), (tmp_path / 'PICTURE').read_bytes()
  assert '| theirs | **2.50**' in rendered
  assert drawn.startswith(b'\x89PNG')
  assert f'| {time_to_quality.THEIRS} | 2 | 0.00 | 7.000 |' in rendered
  assert (tmp_path / 'QUALITY_PICTURE').read_bytes().startswith(b'\x89PNG')
  performance.main([])
  assert (tmp_path / 'PAGE').read_text() == rendered
  with pytest.raises(AssertionError, match='no place for the table unheard_of'):
    with_tables(page, performance.benchmark_tables({'a': RECORD | {'benchmark': 'unheard_of'}}))
