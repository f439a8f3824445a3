import dataclasses
import json

import pytest

from benchmarks import kernel_trace, train_step
from benchmarks.kernel_trace import Kernel, by_part, operations, own_times, read_kernels
from benchmarks.settings import SMALL, Setting

COMPILED = """
HloModule jit_train_step
ENTRY %main {
  %dot.7 = f32[4,4]{1,0} dot(%a, %b), metadata={op_name="jit(train_step)/transpose(jvp(jit(layer_step)))/dot_general"}
  %plain = f32[4]{0} add(%a, %b)
  ROOT add_select_fusion.1 = f32[4]{0} fusion(%dot.7), metadata={op_name="jit(train_step)/mul" source_line=3}
}
"""


def test_an_operation_is_what_jax_has_traced():
  assert operations(COMPILED) == {
    'dot.7': 'jit(train_step)/transpose(jvp(jit(layer_step)))/dot_general',
    'add_select_fusion.1': 'jit(train_step)/mul',
  }


def test_what_runs_within_another_is_counted_once():
  events = [(0, 100, 'loop'), (10, 20, 'product'), (30, 60, 'call'), (40, 10, 'product'), (100, 5, 'after')]
  assert own_times(reversed(events)) == [('loop', 20), ('product', 20), ('call', 50), ('product', 10), ('after', 5)]


@pytest.mark.parametrize(
  ('name', 'operation', 'part', 'kind'),
  [
    ('ynn.1', 'jit(train_step)/jvp(jit(layer_step))/dot_general', 'layers, forward', 'products'),
    ('ynn.2', 'jit(train_step)/transpose(jvp(jit(layer_step)))/mul', 'layers, backward', kernel_trace.PASSES),
    ('nvjet_hsh_128x256', 'jit(train_step)/jvp()/while/body', 'embeddings, head and loss, forward', 'products'),
    (
      'fusion',
      'jit(train_step)/transpose(jvp())/scatter-add',
      'embeddings, head and loss, backward',
      'rows looked up or added',
    ),
    ('add_select_fusion', 'jit(train_step)/select_n', 'clipping, AdamW, metrics', kernel_trace.PASSES),
    ('cudnn_generated_fort_native_sdpa_sm90_flash_bprop', '', kernel_trace.REST, 'attention kernels'),
    ('MemcpyD2D', '', kernel_trace.REST, 'copies'),
  ],
)
def test_a_kernel_has_a_part_and_a_kind(name, operation, part, kind):
  kernel = Kernel(name, operation, 1.0, 1.0)
  assert (kernel.part, kernel.kind) == (part, kind)


def test_parts_stand_in_the_order_of_the_step_and_add_up():
  made = [
    Kernel('a', 'jit(train_step)/mul', 3.0, 1),
    Kernel('b', 'jit(train_step)/jvp(jit(layer_step))/add', 1.0, 1),
    Kernel('c', 'jit(train_step)/jvp(jit(layer_step))/dot_general', 2.0, 1),
    Kernel('d', 'jit(train_step)/jvp(jit(layer_step))/dot_general', 2.0, 1),
  ]
  assert list(by_part(made).items()) == [
    (('layers, forward', 'products'), 4.0),
    (('layers, forward', kernel_trace.PASSES), 1.0),
    (('clipping, AdamW, metrics', kernel_trace.PASSES), 3.0),
  ]


def test_a_step_on_this_machine_is_taken_apart(tmp_path, monkeypatch, capsys):
  config = dataclasses.replace(SMALL, vocab_size=500, hidden_size=32, num_hidden_layers=2, intermediate_size=64)
  monkeypatch.setitem(train_step.SETTINGS, 'small', Setting(config, rows=16, length=16, slots=3))
  kernel_trace.main(['--setting', 'small', '--output', str(tmp_path)])
  said = capsys.readouterr().out
  written = json.loads((tmp_path / 'small.json').read_text())
  found = {(each['part'], each['kind']) for each in written['kernels']}
  assert {(part, 'products') for part in ('layers, forward', 'layers, backward')} <= found
  assert ('clipping, AdamW, metrics', kernel_trace.PASSES) in found
  assert all(each['seconds'] >= 0 and each['runs'] >= 1 for each in written['kernels'])
  assert 'layers, backward' in said
  assert 'ms a step' in said


def test_a_large_step_is_taken_apart_on_a_gpu_alone(monkeypatch):
  monkeypatch.setattr('pathlib.Path.exists', lambda path: False)
  with pytest.raises(SystemExit, match='large: NOT MEASURED: no NVIDIA GPU'):
    kernel_trace.main(['--setting', 'large'])


class Event:
  def __init__(self, start, length, name, **stats):
    self.start_ns, self.duration_ns, self.name, self.stats = start, length, name, list(stats.items())


class Named:
  def __init__(self, name, **fields):
    self.name = name
    vars(self).update(fields)


def test_of_a_gpu_streams_are_read_with_kernels_that_belong_to_no_operation(tmp_path, monkeypatch):
  stream = Named(
    'Stream #13(Compute)',
    events=[
      Event(0, 4e6, 'nvjet_x', hlo_op='dot.7'),
      Event(4e6, 2e6, 'MemcpyD2D'),
      Event(9e6, 4e6, 'y', hlo_op='dot.7'),
    ],
  )
  grouped = Named('XLA Ops', events=[Event(0, 9e6, 'dot.7', hlo_op='dot.7')])
  host = Named('/host:CPU', lines=[Named('python', events=[Event(0, 9e9, 'wait', hlo_op='wait')])])
  planes = [host, Named('/device:GPU:0', lines=[grouped, stream])]
  monkeypatch.setattr('jax.profiler.ProfileData.from_file', lambda file: Named('', planes=planes))
  (tmp_path / 'a.xplane.pb').touch()
  product, copy = read_kernels(tmp_path, COMPILED, steps=2)
  assert (product.name, product.part, product.runs) == ('dot.7', 'layers, backward', 1)
  assert product.seconds == pytest.approx(4e-3)
  assert (copy.name, copy.kind, copy.seconds) == ('MemcpyD2D', 'copies', pytest.approx(1e-3))
