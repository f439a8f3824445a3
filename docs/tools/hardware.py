"""The tables of docs/hardware.md: steps compiled ahead of time for machines that are not here.

python -m docs.tools.hardware                     compile what docs/hardware.json lacks, then write tables and headers
python -m docs.tools.hardware --only v5e_64 --again
python -m docs.tools.hardware --render            write tables and headers from docs/hardware.json alone
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

from docs.tools.rendering import rounded, table, with_tables

ROOT = pathlib.Path(__file__).parents[2]
REPORTS = ROOT / 'docs' / 'hardware.json'
PAGE = ROOT / 'docs' / 'hardware.md'
MODEL = 'gin/pretrain_large.gin'
BOUND_BY_MEMORY = 'v6e_64'


@dataclasses.dataclass(frozen=True)
class Compilation:
  """One step to compile: gin files after the model's, and bindings."""

  topology: str
  gin_file: str
  bindings: tuple[str, ...] = ()
  model: str = MODEL


def _hardware(name: str, topology: str) -> Compilation:
  return Compilation(topology, f'gin/hardware/{name}.gin')


HARDWARE = {
  'v4_64': _hardware('v4_64', 'v4:4x4x4'),
  'v4_128': _hardware('v4_128', 'v4:4x4x8'),
  'v5e_64': _hardware('v5e_64', 'v5e:8x8'),
  'v5e_256': _hardware('v5e_256', 'v5e:16x16'),
  'v5p_64': _hardware('v5p_64', 'v5p:4x4x4'),
  'v6e_64': _hardware('v6e_64', 'v6e:8x8'),
  'tpu7x_64': _hardware('tpu7x_64', 'tpu7x:4x4x4'),
}
# With micro-batches where a whole batch does not fit.
FINETUNING = {
  f'finetuning_{task}_{topology[:3]}': Compilation(
    topology, 'gin/hardware/tpu_8.gin', (f'train.accumulation_steps={parts}',), f'gin/finetune_{task}.gin'
  )
  for topology, task, parts in (
    *(('v5e:2x4', 'xnli', 1), ('v5e:2x4', 'udpos', 1), ('v5e:2x4', 'squad', 2)),
    *(('v6e:2x4', 'xnli', 1), ('v6e:2x4', 'udpos', 1), ('v6e:2x4', 'squad', 1)),
  )
}


def _replicas(chips: int, topology: str) -> Compilation:
  """Eight sequences per chip, state sharded over eight chips, replicated over the rest."""
  bindings = ('mesh.fsdp=8', f'mesh.data={chips // 8}', f'train.batch_size={8 * chips}')
  return Compilation(topology, 'gin/hardware/v5e_256.gin', bindings)


SCALING = {
  'scaling_8': _replicas(8, 'v5e:2x4'),
  'scaling_64': _replicas(64, 'v5e:8x8'),
  'scaling_256': _replicas(256, 'v5e:16x16'),
  'scaling_512': _replicas(512, '2*v5e:16x16'),
}

_PLAIN = (
  'execution.loss_chunk=0',
  'execution.remat=full',
  'execution.trim_last_layer=False',
  'train.batch_size=4096',
  'train.accumulation_steps=1',
)
HEADS = {
  'head_at_masked_positions': Compilation('v5p:4x4x4', 'gin/hardware/v5p_64.gin', _PLAIN),
  'head_at_all_positions': Compilation('v5p:4x4x4', 'gin/hardware/v5p_64.gin', (*_PLAIN, 'masking.rate=1.0')),
  'head_in_chunks': Compilation('v5p:4x4x4', 'gin/hardware/v5p_64.gin', _PLAIN[1:]),
}


class Way(NamedTuple):
  """The settings of a hardware file."""

  remat: str = 'dots_and_attention'
  data: int = 8
  fsdp: int = 8
  parts: int = 1
  trims: bool = False

  @property
  def name(self) -> str:
    """For docs/hardware.json."""
    return f'{self.remat}_{self.data}x{self.fsdp}_{self.parts}_{"trimmed" if self.trims else "whole"}'

  @property
  def bindings(self) -> tuple[str, ...]:
    """Over those of a file."""
    return (
      f'execution.remat={self.remat}',
      f'mesh.data={self.data}',
      f'mesh.fsdp={self.fsdp}',
      f'train.accumulation_steps={self.parts}',
      f'execution.trim_last_layer={self.trims}',
    )


# Alternatives to the settings of the files for 64 chips; docs/hardware.json has their reports.
COMPARED = {
  'v4_64': (
    Way(data=4, fsdp=16),
    Way(data=16, fsdp=4),
    Way(data=1, fsdp=64),
    Way(data=4, fsdp=16, parts=2),
    Way('dots', data=4, fsdp=16),
    Way('full', data=4, fsdp=16),
  ),
  'v5p_64': (
    Way(data=16, fsdp=4, trims=True),
    Way(data=16, fsdp=4),
    Way(data=4, fsdp=16),
    Way(data=16, fsdp=4, parts=2),
    Way('dots', data=16, fsdp=4),
    Way('full', data=16, fsdp=4),
  ),
  'v6e_64': (
    Way(data=1, fsdp=64, trims=True),
    Way(parts=2, trims=True),
    Way('dots', trims=True),
    Way('full', trims=True),
  ),
}
ALTERNATIVES = {
  f'{file}_{way.name}': dataclasses.replace(HARDWARE[file], bindings=way.bindings)
  for file, ways in COMPARED.items()
  for way in ways
}
COMPILATIONS = HARDWARE | ALTERNATIVES | SCALING | HEADS | FINETUNING


# --- compiling --------------------------------------------------------------------------------------------------------


def compile_step(compilation: Compilation) -> dict:
  """The report of `--mode=compile`, rounded; SystemExit where there is none."""
  with tempfile.TemporaryDirectory() as folder:
    report = pathlib.Path(folder) / 'report.json'
    command = [
      sys.executable,
      '-m',
      'rembert.main',
      f'--gin_file={compilation.model}',
      f'--gin_file={compilation.gin_file}',
    ]
    command += ['--mode=compile', f'--topology={compilation.topology}', f'--output={report}']
    code = subprocess.run([*command, *(f'--gin.{binding}' for binding in compilation.bindings)], cwd=ROOT).returncode
    if not report.exists():
      sys.exit(code or 1)
    return rounded(json.loads(report.read_text()))


# --- tables -----------------------------------------------------------------------------------------------------------


def _gb(count: float | None) -> str:
  return '?' if count is None else f'{count / 1e9:.1f}'


def _sent(report: dict, network: str) -> float | None:
  rows = report['collectives']
  return None if rows is None else sum(row['bytes'] for row in rows if row['network'] == network)


def _bound(report: dict) -> list[str]:
  bound = report['roofline']
  sign = '>' if bound['memory'] is None else '≥'
  unhidden = '?' if bound['memory'] is None else f'{bound["unhidden_seconds"]:.2f} s, {bound["unhidden_mfu"]:.0%}'
  return [f'{sign} {bound["step_seconds"]:.3f} s ({bound["bound_by"]})', f'≤ {bound["mfu"]:.0%}', unhidden]


def _mesh(report: dict) -> str:
  return f'{report["mesh"]["data"]} × {report["mesh"]["fsdp"]}'


def _parts(report: dict) -> str:
  return f'{report["parts"]} × {report["rows_per_part"]}'


def hardware_table(reports: dict[str, dict]) -> str:
  """Every file of gin/hardware that can be compiled ahead of time."""
  rows = []
  for name in HARDWARE:
    if (report := reports.get(name)) and report['fits']:
      memory = report['memory']
      rows.append(
        [
          f'[{name}](../gin/hardware/{name}.gin)',
          report['topology'],
          _mesh(report),
          _parts(report),
          f'{_gb(memory["peak"])} of {_gb(memory["hbm"])}',
          _gb(report['hbm_traffic_bytes']),
          _gb(_sent(report, 'ICI')),
          *_bound(report),
        ]
      )
  columns = ['file', 'slice', 'data × fsdp', 'micro-batches × sequences', 'GB per chip', 'HBM, GB', 'ICI, GB']
  return table([*columns, 'step', 'MFU', 'without overlap'], rows)


def scaling_table(reports: dict[str, dict]) -> str:
  """More chips with the same number of sequences per chip."""
  rows = []
  for name in SCALING:
    if (report := reports.get(name)) and report['fits']:
      rows.append(
        [
          f'{report["devices"]}' + (f' in {report["slices"]} slices' if report['slices'] > 1 else ''),
          f'{report["batch_size"]:,}',
          _mesh(report),
          _gb(report['memory']['peak']),
          _gb(_sent(report, 'ICI')),
          f'{_sent(report, "DCN") / 1e9:.2f}' if report['slices'] > 1 else '',
          *_bound(report)[:2],
        ]
      )
  columns = ['chips', 'sequences', 'data × fsdp', 'GB per chip', 'ICI, GB', 'DCN, GB']
  return table([*columns, 'step', 'MFU'], rows)


def heads_table(reports: dict[str, dict]) -> str:
  """Logits at every position, at masked positions, and in chunks."""
  rows = []
  masked = reports.get('head_at_masked_positions')
  for name in HEADS:
    if report := reports.get(name):
      fits, label = report['fits'], name.removeprefix('head_').replace('_', ' ')
      temporaries = report['memory']['temporaries'] if fits else None
      factor = temporaries / masked['memory']['temporaries'] if fits and masked and masked['fits'] else None
      executed = f'{report["flops_per_chip"]["executed"]:.3g}' if fits else ''
      told = _gb(temporaries) if fits else f'does not fit: {report["out_of_memory"][0]}'
      rows.append([label, told, f'{factor:.2f}' if factor else '', executed])
  return table(['logits', 'temporaries, GB per chip', 'relative', 'FLOPs per chip'], rows)


def traffic_table(reports: dict[str, dict]) -> str:
  """Parts of the traffic with memory of the step that memory bounds, and the bound without each."""
  report = reports[BOUND_BY_MEMORY]
  bound, total, parts = report['roofline'], report['hbm_traffic_bytes'], report.get('hbm_traffic_by_part', {})
  rows = []
  for part, count in [*parts.items(), ('', 0)]:
    if part and count < 0.03 * total:
      continue
    seconds = max(bound['compute'], bound['ici'], bound['memory'] * (1 - count / total))
    mfu = bound['mfu'] * bound['step_seconds'] / seconds
    rows.append([part or '**nothing**', _gb(count or total), f'≥ {seconds:.3f} s', f'≤ {mfu:.0%}'])
  return table(['without', 'GB', 'step', 'MFU'], rows)


def finetuning_table(reports: dict[str, dict]) -> str:
  """Steps of fine-tuning and evaluation on eight chips."""
  rows = []
  for name, compilation in FINETUNING.items():
    if report := reports.get(name):
      evaluation, memory = report['evaluation'], report['memory']
      task = pathlib.Path(compilation.model).stem
      rows.append(
        [
          f'[{task}](../{compilation.model})',
          report['topology'],
          _parts(report),
          f'{_gb(memory["peak"])} of {_gb(memory["hbm"])}',
          *_bound(report)[:2],
          f'{evaluation["batch_size"]}',
          _gb(evaluation['memory']['peak']),
          _bound(evaluation)[0],
        ]
      )
  columns = ['file', 'slice', 'micro-batches × sequences', 'GB per chip', 'step', 'MFU']
  return table([*columns, 'evaluated', 'GB per chip', 'evaluation step'], rows)


def compiled_line(report: dict) -> str:
  """The line of a hardware file's head comment that holds its figures."""
  memory, bound = report['memory'], report['roofline']
  return (
    f'# Compiled (libtpu {report["versions"]["libtpu"]}): {_gb(memory["peak"])} of {_gb(memory["hbm"])} GB per chip; '
    f'{"more than" if bound["memory"] is None else "at least"} {bound["step_seconds"]:.3f} s per step '
    f'({bound["bound_by"]}), MFU at most {bound["mfu"]:.0%}.'
  )


def rendered_page(page: str, reports: dict[str, dict]) -> str:
  """The page with its tables replaced."""
  makers = {'hardware': hardware_table, 'traffic': traffic_table, 'scaling': scaling_table, 'heads': heads_table}
  makers['finetuning'] = finetuning_table
  return with_tables(page, {name: make(reports) for name, make in makers.items()})


def rendered_header(text: str, report: dict) -> str:
  """A hardware file with the figures of `report` in its head comment."""
  return re.sub(r'^# Compiled.*$', lambda _: compiled_line(report), text, count=1, flags=re.MULTILINE)


def render(reports: dict[str, dict]) -> None:
  """Writes page and headers."""
  PAGE.write_text(rendered_page(PAGE.read_text(), reports))
  for name, compilation in HARDWARE.items():
    if (report := reports.get(name)) and report['fits']:
      file = ROOT / compilation.gin_file
      file.write_text(rendered_header(file.read_text(), report))


def main() -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    prog='python -m docs.tools.hardware', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  flags.add_argument('--only', nargs='*', choices=COMPILATIONS, metavar='NAME', help=', '.join(COMPILATIONS))
  flags.add_argument('--again', action='store_true', help='compile what docs/hardware.json has already')
  flags.add_argument('--render', action='store_true', help='compile nothing')
  options = flags.parse_args()
  reports = json.loads(REPORTS.read_text()) if REPORTS.exists() else {}
  wanted = [] if options.render else options.only or list(COMPILATIONS)
  for name in wanted:
    if options.again or name not in reports:
      print(f'--- {name}', flush=True)
      reports[name] = compile_step(COMPILATIONS[name])
      ordered = {known: reports[known] for known in COMPILATIONS if known in reports}
      REPORTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + '\n')
  render(reports)


if __name__ == '__main__':
  main()
