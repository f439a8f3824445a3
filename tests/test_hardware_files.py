"""gin/hardware and docs/hardware.md: they go with the large run, and say what was compiled."""

import json
import re

import pytest
from gin_files import configured, statements

from docs.tools import hardware

NAMES = sorted(path.stem for path in (hardware.ROOT / 'gin' / 'hardware').glob('*.gin'))
CHIPS = {'cpu': 8, 'h200': 1, 'h200x8': 8, 'v4_64': 64, 'v4_128': 128, 'v5e_64': 64, 'v5e_256': 256}
CHIPS |= {'v5p_64': 64, 'v6e_64': 64, 'tpu7x_64': 128, 'tpu_8': 8}
REPORTS = json.loads(hardware.REPORTS.read_text())


def gin_file(name: str) -> str:
  return f'gin/hardware/{name}.gin'


def test_every_file_is_known_here():
  assert set(NAMES) == set(CHIPS)


@pytest.mark.parametrize('name', NAMES)
def test_a_file_changes_how_the_large_model_is_trained_and_not_what_is_trained(name):
  plain, config = configured('gin/pretrain_large.gin'), configured('gin/pretrain_large.gin', gin_file(name))
  for part in ('model', 'data', 'vocabulary', 'masking', 'packing', 'optimizer', 'paper'):
    assert getattr(config, part) == getattr(plain, part)
  for field in ('steps', 'batch_size', 'sequence_length', 'seed'):
    assert getattr(config.train, field) == getattr(plain.train, field)
  mesh = config.mesh
  assert mesh.require_platform == {'v': 'tpu', 't': 'tpu', 'h': 'gpu', 'c': 'cpu'}[name[0]]
  assert mesh.data == -1 or mesh.data * mesh.fsdp * mesh.tensor == CHIPS[name]
  config.train.check_divides(CHIPS[name])
  for statement in statements(gin_file(name)):
    assert re.match(r'(mesh|execution|hardware)\.\w+ = |train\.accumulation_steps = ', statement), statement


# --- what was compiled ----------------------------------------------------------------------------


def test_the_page_and_the_head_comments_show_what_was_compiled():
  page = hardware.PAGE.read_text()
  assert page == hardware.rendered_page(page, REPORTS)
  for name in hardware.HARDWARE:
    text = (hardware.ROOT / gin_file(name)).read_text()
    assert text == hardware.rendered_header(text, REPORTS[name])


@pytest.mark.parametrize('name', hardware.HARDWARE)
def test_the_files_are_as_they_were_compiled_and_fit(name):
  config, report = configured('gin/pretrain_large.gin', gin_file(name)), REPORTS[name]
  assert report['fits']
  assert report['memory']['peak'] < report['memory']['hbm']
  assert report['mesh'] == {'data': config.mesh.data, 'fsdp': config.mesh.fsdp, 'tensor': config.mesh.tensor}
  assert report['parts'] == config.train.accumulation_steps
  assert {field: report['execution'][field] for field in ('dtype', 'remat', 'attention')} == {
    field: getattr(config.execution, field) for field in ('dtype', 'remat', 'attention')
  }


def test_more_replicas_do_not_make_a_chip_send_more():
  sent = {name: sum(row['bytes'] for row in REPORTS[name]['collectives']) for name in hardware.SCALING}
  assert sent['scaling_256'] == pytest.approx(sent['scaling_64'], rel=0.05)
  assert sent['scaling_512'] == pytest.approx(sent['scaling_64'], rel=0.05)


def test_logits_at_masked_positions_are_what_makes_the_step_fit():
  masked, everywhere = REPORTS['head_at_masked_positions'], REPORTS['head_at_all_positions']
  if everywhere['fits']:
    assert everywhere['memory']['temporaries'] > 2 * masked['memory']['temporaries']
