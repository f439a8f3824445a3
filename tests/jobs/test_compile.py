"""Compiling ahead of time, on forced CPU devices: the whole job but the compiler of a TPU."""

import json

import jax
import pytest

from rembert import configuration, main
from rembert.aot import flops
from rembert.jobs import compile as compile_ahead
from rembert.jobs import pretrain
from rembert.train.sharding import MeshConfig, make_mesh

pytestmark = pytest.mark.usefixtures('traced_once')

SMALL = [
  'RemBertConfig.num_hidden_layers=1',
  'execution.unroll=1',
  'RemBertConfig.vocab_size=500',
  'RemBertConfig.pad_vocab_to_multiple_of=4',
  'RemBertConfig.hidden_size=32',
  'RemBertConfig.num_attention_heads=2',
  'RemBertConfig.intermediate_size=64',
  'RemBertConfig.input_embedding_size=16',
  'RemBertConfig.output_embedding_size=48',
  'train.sequence_length=16',
]


def command(tmp_path, *arguments, gin=()):
  flags = [f'--gin.{binding}' for binding in (*SMALL, *gin)]
  name = ['--gin_file=gin/pretrain_smoke.gin', '--mode=compile', f'--workdir={tmp_path}']
  return main.main([*name, *flags, *arguments])


def test_the_report_stands_on_the_screen_and_in_the_workdir(tmp_path, capsys):
  sizes = ['mesh.data=2', 'mesh.fsdp=4', 'train.accumulation_steps=2', 'train.ema_decay=0.9']
  assert command(tmp_path, '--topology=cpu:8', gin=sizes) == 0
  shown = capsys.readouterr().out
  for words in ('Memory per chip', 'temporaries', 'all-gather of 4 chips', 'state per chip', 'batch', 'No roofline'):
    assert words in shown
  report = json.loads((tmp_path / 'compile' / 'cpu_8.json').read_text())
  assert report['fits']
  assert (report['rows_per_device'], report['parts'], report['rows_per_part']) == (4, 2, 2)
  assert report['mesh'] == {'data': 2, 'fsdp': 4, 'tensor': 1}
  # Parameters, their average and moments are arguments, and the new ones take their place.
  held = report['held_bytes']
  state = held['parameters'] + held['moving average'] + held['optimizer']
  assert report['memory']['arguments'] == pytest.approx(state + held['batch'], rel=0.01)
  assert report['memory']['aliased'] == pytest.approx(state, rel=0.01)
  per_part = [row for row in report['collectives'] if row['kind'] == 'all-gather' and row['group'] == 4]
  assert per_part
  assert all(row['network'] == 'ICI' for row in report['collectives'])
  assert report['hbm_traffic_bytes'] > report['memory']['arguments']
  by_part = report['hbm_traffic_by_part']
  assert sum(by_part.values()) == report['hbm_traffic_bytes']
  assert {'attention', 'attention backward', 'feed_forward', 'loss', 'optimizer'} <= {
    part.removesuffix(' matmuls') for part in by_part
  }
  assert report['unreadable'] is None
  assert (tmp_path / 'compile' / 'cpu_8.hlo.txt').read_text().startswith('HloModule')
  # FLOPs are the model's by hand: no padding rows of the vocabulary here, and nothing is computed twice.
  configuration.load(['gin/pretrain_smoke.gin'], [*SMALL, *sizes])
  config, slots = pretrain.configured(), pretrain.configured().masking.slots(16)
  by_hand = 32 * flops.train_flops_per_row(config.model, 16, slots, last_queries=slots)
  assert config.train_flops_per_step == by_hand
  assert report['flops_per_chip'] == {'model': by_hand / 8, 'executed': by_hand / 8}


def test_fine_tuning_is_compiled_with_its_evaluation(tmp_path, capsys):
  files = ['--gin_file=gin/finetune_xnli.gin', '--gin_file=gin/hardware/tpu_8.gin', '--mode=compile']
  of_a_cpu = ['mesh.require_platform=None', 'execution.attention=einsum', 'finetune.eval_batch_size=16']
  flags = [f'--gin.{binding}' for binding in (*SMALL, *of_a_cpu)]
  assert main.main([*files, f'--workdir={tmp_path}', *flags, '--topology=cpu:8']) == 0
  assert 'Evaluation of 16 sequences' in capsys.readouterr().out
  report = json.loads((tmp_path / 'compile' / 'cpu_8.json').read_text())
  assert (report['fits'], report['batch_size'], report['mesh']['data']) == (True, 128, 8)
  configuration.load(['gin/finetune_xnli.gin'], [*SMALL, 'execution.trim_last_layer=True'])
  forward = flops.forward_flops_per_row(compile_ahead.configured().model, 16, 0, last_queries=1)
  assert report['flops_per_chip']['model'] == 3 * 128 / 8 * forward
  evaluation = report['evaluation']
  assert (evaluation['batch_size'], evaluation['flops_per_chip']['model']) == (16, 16 / 8 * forward)
  assert forward < evaluation['flops_per_chip']['executed'] / 2 < 1.2 * forward  # pooler and classifier
  assert evaluation['memory']['peak'] < report['memory']['peak']


def test_a_mixture_cannot_be_compiled(tmp_path, capsys):
  mixture = ['--gin.finetune.mixture=mine', '--gin.finetune.head=qa']
  flags = ['--gin_file=gin/finetune_squad.gin', '--mode=compile', '--topology=cpu:8', f'--workdir={tmp_path}']
  assert main.main([*flags, *mixture]) == 2
  assert 'only fine-tuning on a task of XTREME' in capsys.readouterr().err


OUT_OF_MEMORY = (
  'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (38.04G) exceeds '
  'available HBM (15.75G).\nsome more'
)


@pytest.fixture
def room_for(monkeypatch):
  """Sets how many rows of a device and part the compiler has room for."""
  make_step, compile_lowered, rows_per_part = pretrain.make_step, jax.stages.Lowered.compile, []

  def make_and_remember(config, trainable):
    rows_per_part.append(config.train.batch_size // 8 // config.train.accumulation_steps)
    return make_step(config, trainable)

  def set_room(rows):
    def compile_or_refuse(lowered):
      if rows_per_part[-1] > rows:
        raise jax.errors.JaxRuntimeError(OUT_OF_MEMORY)
      return compile_lowered(lowered)

    monkeypatch.setattr(jax.stages.Lowered, 'compile', compile_or_refuse)

  monkeypatch.setattr(pretrain, 'make_step', make_and_remember)
  return set_room


def test_what_does_not_fit_exits_with_1_the_sizes_and_what_to_change(tmp_path, capsys, room_for):
  room_for(3)
  assert command(tmp_path, '--topology=cpu:8', '--search_batch') == 1
  shown = ' '.join(capsys.readouterr().out.split())
  for words in ('Does not fit', '38.04G', 'fits: 2', '--gin.train.accumulation_steps=2', '--gin.execution.remat=full'):
    assert words in shown
  report = json.loads((tmp_path / 'compile' / 'cpu_8.json').read_text())
  assert (report['fits'], report['most_rows_per_part']) == (False, 2)
  assert '15.75G' in report['out_of_memory'][0]


@pytest.mark.parametrize(('room', 'most'), [(4, 4), (0, 0)])
def test_the_most_rows_that_fit_are_found(tmp_path, capsys, room_for, room, most):
  room_for(room)
  assert command(tmp_path, '--topology=cpu:8', '--search_batch') == (0 if room else 1)
  assert json.loads((tmp_path / 'compile' / 'cpu_8.json').read_text())['most_rows_per_part'] == most
  assert f'fits: {most}' in capsys.readouterr().out


def test_an_error_of_another_kind_is_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
  def fail(lowered):
    raise jax.errors.JaxRuntimeError('INTERNAL: something else')

  monkeypatch.setattr(jax.stages.Lowered, 'compile', fail)
  with pytest.raises(jax.errors.JaxRuntimeError, match='something else'):
    command(tmp_path, '--topology=cpu:8')


def test_a_program_that_cannot_be_printed_is_reported(tmp_path, capsys, monkeypatch):
  def fail(compiled):
    raise jax.errors.JaxRuntimeError('INTERNAL: RET_CHECK failure in some pass\nand a stack')

  monkeypatch.setattr(jax.stages.Compiled, 'as_text', fail)
  assert command(tmp_path, '--topology=cpu:8', f'--output={tmp_path}/report.json') == 0
  assert (
    'are unknown; cannot read the compiled text: INTERNAL: RET_CHECK failure in some pass' in capsys.readouterr().out
  )
  report = json.loads((tmp_path / 'report.json').read_text())
  assert report['collectives'] is None
  assert report['hbm_traffic_bytes'] is None


def test_the_step_is_that_of_training_and_donates_its_state():
  configuration.load(['gin/pretrain_smoke.gin'], SMALL)
  config, mesh = pretrain.configured(), make_mesh(MeshConfig())
  trainable = pretrain.make_trainable(config, mesh)
  with jax.set_mesh(mesh):
    lowered = pretrain.make_step(config, trainable).lower(trainable.restore_target(), config.abstract_batch(mesh), None)
  assert all(argument.donated for argument in jax.tree.leaves(lowered.args_info[0][0]))


@pytest.mark.parametrize(
  ('arguments', 'gin', 'words'),
  [
    ([], [], '--topology=v5e:8x8'),
    (['--topology=cpu:2x2'], [], "invalid topology 'cpu:2x2'"),
    (['--topology=cpu:8'], ['mesh.require_platform=tpu'], 'the devices are cpu, not tpu'),
    (['--topology=cpu:8'], ['train.batch_size=30'], '--gin.train.batch_size=32'),
    (['--topology=cpu:8'], ['execution.attention=splash'], 'is a kernel for the TPU'),
  ],
)
def test_wrong_usage_exits_with_2(tmp_path, capsys, arguments, gin, words):
  assert command(tmp_path, *arguments, gin=gin) == 2
  assert words in capsys.readouterr().err
