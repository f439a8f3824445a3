"""Tables and figures of whole reports against tests/golden/report: the CSV files, and the numbers that were drawn.

Regenerated, if a change of a number is intended, by

    PYTHONPATH=.:tests/support python tests/report/test_golden.py        # part of `make golden`
"""

import contextlib
import difflib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping

import made_up_sweep
import matplotlib.figure
import pytest

from rembert.report.__main__ import main

GOLDEN = pathlib.Path(__file__).parent.parent / 'golden' / 'report'


# --- what the reports are made of -------------------------------------------------------------------------------------


def write_sweep(folder: pathlib.Path) -> list[pathlib.Path]:
  """Seven models; one was pre-trained twice and analysed for Tables 8 and 9, of the last there is only a part."""
  missing = ('learned/hidden1024/tydiqa', 'learned/hidden1024/panx_whole/seed_1', 'analyses/hidden1024')
  models = ['coupled768', 'in768_out768', 'in128_out128', 'in128_out768', 'in128_out3072', 'layers23to12', 'hidden1024']
  made_up_sweep.write_sweep(folder, models, seeds=2, is_there=lambda workdir: not workdir.startswith(missing))
  content = json.loads((folder / 'sweep.json').read_text())
  by_name = {model['name']: model for model in content['models']}
  twice = by_name['in128_out128']
  twice['pretrained'].append({'seed': 1, 'workdir': 'pretrain/in128_out128/seed_1'})
  made_up_sweep.write_pretraining(folder / 'pretrain/in128_out128/seed_1', 'in128_out128', seed=1)
  for seed in (0, 1):
    workdir = f'learned/in128_out128/xnli_whole/pretrained_1_seed_{seed}'
    values = {language: 50.5 + seed - 2.25 * at for at, language in enumerate(made_up_sweep.LANGUAGES)}
    made_up_sweep.write_results(folder / workdir, 'xnli', {'xnli': values})
    entry = {
      'pretrain_seed': 1,
      'seed': seed,
      'task': 'xnli',
      'evaluated': ['xnli'],
      'variant': '',
      'learning_rate': None,
    }
    twice['learned'].append(entry | {'workdir': workdir})
  for seed in (0, 1):
    rho = lambda value, seed=seed: {'rho': value + seed, 'low': value - 3, 'high': value + 3}
    sets = {
      'MEN_dataset_natural_form_full': {'input': rho(40.25), 'output': rho(30.5), 'covered': 100},
      'rare-word': {'input': rho(20.0), 'output': None, 'covered': 50},
    }
    probe = {'task': 'spr2', 'encoders': {'model': {'mean': {'micro_f1': 80.5 + seed}}, 'random': None}}
    for what, results in (('word_similarity', {'sets': sets}), ('edge_probing', probe)):
      workdir = f'analyses/in128_out128/{what}_{seed}'
      made_up_sweep.write_analysis(folder / workdir, what, results, 'in128_out128')
      twice['analyses'].append({'pretrain_seed': seed, 'what': what, 'workdir': workdir})
  (folder / 'sweep.json').write_text(json.dumps(content))
  return [folder]


def write_benchmark(folder: pathlib.Path) -> list[pathlib.Path]:
  """What launch.xtreme leaves: learning rates to choose from, languages that one seed lacks, retrieval."""
  folder /= 'seed_9/bench'  # nothing above it counts
  for rate, level in (('1e-05', 60.25), ('2e-05', 55.5)):
    for seed in (0, 1):
      scores = {'en': level + seed, 'de': level - 10.5, 'sw': level - 20} | ({} if seed else {'zh': level - 25})
      workdir = folder / 'panx' / f'rate_{rate}' / f'seed_{seed}'
      made_up_sweep.write_results(workdir, 'panx', {'panx': scores}, dev=80 - level + seed)
  for seed in (0, 2):
    questions = {'xquad': {'en': 70.5, 'de': 60.0 + seed}, 'mlqa': {'en': 65.25, 'es': 50.0}}
    made_up_sweep.write_results(folder / 'squad' / 'as_in_table_15' / f'seed_{seed}', 'squad', questions, baseline=None)
  languages = {'de': {'accuracy': 40.25, 'chance': 0.1}, 'fr': {'accuracy': 31.0, 'chance': 0.1}, 'sw': {'chance': 0.1}}
  (folder / 'tatoeba').mkdir()
  retrieval = {'task': 'tatoeba', 'languages': languages, 'mean_over': ['de', 'fr']}
  (folder / 'tatoeba' / 'results.json').write_text(json.dumps(retrieval))
  (folder / 'xtreme.json').write_text('{"name": "the model"}')
  return [folder]


def write_runs(folder: pathlib.Path) -> list[pathlib.Path]:
  """Two pre-training runs and an analysis, side by side; a name that a spreadsheet would compute."""
  results = {'a': None, 'b': float('inf'), 'c': [1, 2], 'd': {'e': '=1+1'}, 'f': list(range(1000)), 'g': True, 'h': {}}
  results |= {'by_size': {'small': {'rank': 3, 'share': 0.123456}, 'large': {'rank': 30_000, 'share': -1.5}}}
  return [
    made_up_sweep.write_pretraining(folder / 'in128_out128', 'in128_out128'),
    made_up_sweep.write_pretraining(folder / '=wide', 'in128_out3072'),
    made_up_sweep.write_analysis(folder / 'spectra', 'something_new', results),
  ]


REPORTS = {
  'sweep': write_sweep,
  'benchmark': write_benchmark,
  'run': lambda folder: [made_up_sweep.write_pretraining(folder)],
  'runs': write_runs,
}


# --- what they come to ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def recorded_figures() -> Iterator[dict[bytes, list[dict]]]:
  """PNG to the lines, bars and words of its axes, of all figures that are drawn meanwhile."""
  found, savefig = {}, matplotlib.figure.Figure.savefig

  def record(figure, content, *arguments, **options):
    savefig(figure, content, *arguments, **options | {'dpi': 20})  # as good as the full size, at a fifth of the time
    if options.get('format') == 'png':
      found[content.getvalue()] = [drawn(axes) for axes in figure.axes]

  matplotlib.figure.Figure.savefig = record
  try:
    yield found
  finally:
    matplotlib.figure.Figure.savefig = savefig


def drawn(axes) -> dict:
  """What a picture says: labels, values of lines and bars, names on the axes."""
  numbers = lambda values: [float(f'{value:.6g}') for value in values]
  legend = axes.figure.legends[0].get_texts() if axes.figure.legends else []
  return {
    'title': axes.get_title(loc='left'),
    'labels': [axes.get_xlabel(), axes.get_ylabel()],
    'legend': [text.get_text() for text in legend],
    'lines': [[line.get_label(), numbers(line.get_xdata()), numbers(line.get_ydata())] for line in axes.lines],
    'bars': [numbers((bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height())) for bar in axes.patches],
    'words': [text.get_text() for text in axes.texts],
  }


def make_report(name: str, folder: pathlib.Path) -> Mapping[str, str]:
  """Name of a file to what it holds: the CSV files as they are, and `figures.json`."""
  sources, output = REPORTS[name](folder / name), folder / 'report'
  with recorded_figures() as figures:
    assert main([*map(str, sources), f'--output={output}']) == 0
  by_file = {
    file.stem: figures[file.read_bytes()] for file in sorted(output.glob('*.png')) if file.read_bytes() in figures
  }
  lines = [f'{json.dumps(name)}: {json.dumps(axes, ensure_ascii=False)}' for name, axes in by_file.items()]
  files = {file.name: file.read_text() for file in sorted(output.glob('*.csv'))}
  return files | {'figures.json': '{\n' + ',\n'.join(lines) + '\n}\n'}


@pytest.mark.parametrize('name', REPORTS)
def test_tables_and_figures_are_the_golden_ones(name, tmp_path):
  found = make_report(name, tmp_path)
  golden = {file.name: file.read_text() for file in (GOLDEN / name).iterdir()}
  assert sorted(found) == sorted(golden)
  for file, text in golden.items():
    assert found[file] == text, '\n'.join(
      difflib.unified_diff(text.splitlines(), found[file].splitlines(), file, lineterm='')
    )


if __name__ == '__main__':
  for each in REPORTS:
    shutil.rmtree(GOLDEN / each, ignore_errors=True)
    (GOLDEN / each).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
      for file_name, content in make_report(each, pathlib.Path(scratch)).items():
        (GOLDEN / each / file_name).write_text(content)
