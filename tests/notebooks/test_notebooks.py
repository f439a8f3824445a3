"""The notebooks: stored without output, and run from beginning to end as a reader runs them.

    make notebooks

The runs need tests/notebooks/requirements.txt; what is looked at in the files needs nothing.
"""

import ast
import json
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / 'notebooks').glob('*.ipynb'))
# Of a clone: read by notebooks, written by none.
CLONE = ('rembert', 'tasks', 'gin', 'launch', 'tests')


def cells(file: pathlib.Path, kind: str) -> list[str]:
  return [''.join(cell['source']) for cell in json.loads(file.read_text())['cells'] if cell['cell_type'] == kind]


def test_there_are_two():
  assert [file.name for file in NOTEBOOKS] == ['finetune_zero_shot.ipynb', 'first_pretraining.ipynb']


@pytest.mark.parametrize('file', NOTEBOOKS, ids=lambda file: file.stem)
def test_nothing_is_stored_but_text_and_code(file):
  content = json.loads(file.read_text())
  for cell in content['cells']:
    assert not cell.get('outputs')
    assert cell.get('execution_count') is None
    assert cell['metadata'] == {}
  assert set(content['metadata']) == {'kernelspec', 'language_info'}
  assert len({cell['id'] for cell in content['cells']}) == len(content['cells'])
  assert file.stat().st_size < 20_000


@pytest.mark.parametrize('file', NOTEBOOKS, ids=lambda file: file.stem)
def test_code_is_python_and_each_cell_is_introduced(file):
  for code in cells(file, 'code'):
    ast.parse(code)
  assert cells(file, 'markdown')[0].startswith('# ')
  assert len(cells(file, 'markdown')) >= len(cells(file, 'code')) - 3


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'folder', 'made'),
  [
    ('first_pretraining', '.', 'runs/notebook_pretraining/loss.png'),
    ('finetune_zero_shot', 'notebooks', 'runs/notebook_tagger/results.json'),
  ],
)
def test_it_runs_in_the_project_and_in_its_own_folder(name, folder, made, tmp_path):
  nbformat = pytest.importorskip('nbformat', reason='needs nbclient and ipykernel: make notebooks')
  nbclient = pytest.importorskip('nbclient', reason='needs nbclient and ipykernel: make notebooks')
  for part in CLONE:
    (tmp_path / part).symlink_to(ROOT / part)
  shutil.copytree(ROOT / 'notebooks', tmp_path / 'notebooks')
  notebook = nbformat.read(tmp_path / 'notebooks' / f'{name}.ipynb', as_version=4)
  nbclient.NotebookClient(
    notebook, timeout=900, kernel_name='python3', resources={'metadata': {'path': str(tmp_path / folder)}}
  ).execute()
  assert (tmp_path / made).is_file()
  outputs = [output for cell in notebook.cells for output in cell.get('outputs', ())]
  shown = {kind for output in outputs for kind in output.get('data', ())}
  assert {'image/png', 'text/html'} <= shown
