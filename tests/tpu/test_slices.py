"""Steps compiled for TPU slices that are not here, each in a process of its own, as a user would."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tpu
ROOT = pathlib.Path(__file__).parent.parent.parent
SMALL = {
  'RemBertConfig.vocab_size': 2000,
  'RemBertConfig.num_hidden_layers': 3,
  'RemBertConfig.hidden_size': 256,
  'RemBertConfig.num_attention_heads': 4,
  'RemBertConfig.intermediate_size': 512,
  'RemBertConfig.input_embedding_size': 128,
  'RemBertConfig.output_embedding_size': 384,
  'train.sequence_length': 128,
  'train.batch_size': 64,
  'train.accumulation_steps': 2,
  'mesh.data': -1,
  'mesh.fsdp': 4,
}


@pytest.fixture(autouse=True)
def libtpu():
  pytest.importorskip('libtpu')


def compile_for(topology, folder, *gin_files, **changes):
  """The process, and its report if it wrote one."""
  output = folder / 'report.json'
  files = [f'--gin_file={name}' for name in ('gin/pretrain_large.gin', *gin_files)]
  bindings = [f'--gin.{name}={value}' for name, value in changes.items()]
  result = subprocess.run(
    [
      sys.executable,
      '-m',
      'rembert.main',
      *files,
      '--mode=compile',
      f'--topology={topology}',
      f'--output={output}',
      *bindings,
    ],
    cwd=ROOT,
    env={name: value for name, value in os.environ.items() if name not in ('JAX_PLATFORMS', 'XLA_FLAGS')},
    capture_output=True,
    text=True,
    timeout=1800,
    check=False,
  )
  return result, json.loads(output.read_text()) if output.exists() else None


@pytest.mark.parametrize(
  ('topology', 'kind', 'gib'),
  [
    ('v4:2x2x2', 'TPU v4', 32),
    ('v5e:2x4', 'TPU v5 lite', 16),
    ('v5p:2x2x2', 'TPU v5', 95),
    ('v6e:2x4', 'TPU v6 lite', 32),
    ('tpu7x:2x2x1', 'TPU7x', 96),  # two devices per chip
  ],
)
def test_the_step_compiles_for_every_generation(tmp_path, topology, kind, gib):
  changes = SMALL | {'execution.attention': 'splash', 'execution.remat': 'dots_and_attention'}
  result, report = compile_for(topology, tmp_path, **changes)
  assert result.returncode == 0, result.stderr
  assert (report['devices'], report['device_kind']) == (8, kind)
  assert report['memory']['hbm'] == gib * 2**30
  assert report['memory']['peak'] < report['memory']['hbm']
  assert report['roofline']['step_seconds'] >= report['flops_per_chip']['executed'] / 1e15
  if report['unreadable'] is None:
    kinds = {(row['kind'], row['group']) for row in report['collectives']}
    assert ('all-gather', 4) in kinds
    assert any(group in (2, 8) for kind, group in kinds if kind == 'all-reduce')
    assert report['roofline']['memory'] > 0
  else:
    assert 'traffic are unknown' in result.stdout


def test_between_slices_goes_nothing_but_the_sum_of_replicas(tmp_path):
  result, report = compile_for('2*v5e:2x4', tmp_path, **SMALL)
  assert result.returncode == 0, result.stderr
  assert (report['devices'], report['slices'], report['mesh']['data']) == (16, 2, 4)
  assert report['unreadable'] is None
  between = [row for row in report['collectives'] if row['network'] == 'DCN']
  assert between
  assert not [row for row in between if row['kind'] == 'all-gather']
  assert report['roofline']['dcn'] > 0


def test_a_mesh_that_would_gather_over_the_slow_network_is_refused(tmp_path):
  result, _ = compile_for('2*v5e:2x4', tmp_path, **SMALL | {'mesh.data': 1, 'mesh.fsdp': 16})
  assert result.returncode == 2
  assert 'over 2 slices' in result.stderr


def test_what_is_too_large_exits_with_1_the_sizes_and_what_to_change(tmp_path):
  changes = SMALL | {'train.batch_size': 2**18, 'execution.remat': 'none', 'train.accumulation_steps': 1}
  result, report = compile_for('v5e:2x4', tmp_path, **changes)
  assert result.returncode == 1, result.stderr
  assert not report['fits']
  assert 'RESOURCE_EXHAUSTED' in report['out_of_memory'][0]
  assert '15.75G' in ' '.join(report['out_of_memory'])
  assert '--gin.train.accumulation_steps=' in result.stdout


def test_a_slice_that_does_not_exist_is_an_error_with_libtpus_message(tmp_path):
  result, _ = compile_for('v5e:3x3', tmp_path, **SMALL)
  assert result.returncode == 2
  assert 'v5e:3x3' in result.stderr
  assert 'Traceback' not in result.stderr


def test_flags_of_the_gin_file_reach_libtpu_after_those_of_the_user(tmp_path, monkeypatch):
  monkeypatch.setenv('LIBTPU_INIT_ARGS', '--xla_tpu_enable_data_parallel_all_reduce_opt=false')
  result, _ = compile_for('v5e:2x4', tmp_path, 'gin/hardware/v5e_64.gin', **SMALL)
  assert result.returncode == 0, result.stderr
  assert 'LIBTPU_INIT_ARGS: --xla_tpu_data_parallel_opt_different_sized_ops=true\n' in result.stdout


def test_the_large_step_fits_64_chips_of_v5e(tmp_path):
  result, report = compile_for('v5e:8x8', tmp_path, 'gin/hardware/v5e_64.gin')
  assert result.returncode == 0, result.stderr
  assert report['memory']['peak'] < 0.95 * report['memory']['hbm']
