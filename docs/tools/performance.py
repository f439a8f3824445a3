"""The tables and the picture of docs/performance.md, from what `python -m benchmarks.run` has measured.

python -m docs.tools.performance runs/benchmarks      take these results into docs/performance.json, and render
python -m docs.tools.performance --time_to_quality=runs/time_to_quality     and those of that benchmark
python -m docs.tools.performance                      render from docs/performance.json alone
"""

import argparse
import io
import json
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks import time_to_quality
from docs.tools.rendering import rounded, table, with_tables
from rembert.plotting import style

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / 'docs' / 'performance.json'
PAGE = ROOT / 'docs' / 'performance.md'
PICTURE = ROOT / 'docs' / 'images' / 'performance.png'
QUALITY, QUALITY_PICTURE = ROOT / 'docs' / 'time_to_quality.csv', ROOT / 'docs' / 'images' / 'time_to_quality.png'
KEPT = ('name', 'seconds', 'cpu_seconds', 'facts', 'peak_bytes', 'failure', 'work', 'one_core')
KEPT_RATIOS = ('times_this_project', 'times_this_project_in_cpu_seconds')
# As on the page; others follow.
ORDER = (
  *('train_step', 'head', 'finetuning', 'encoding'),
  *('reading', 'pretraining', 'checkpointing', 'starting', 'growth'),
)
PACKAGES = ('python', 'jax', 'flax', 'torch', 'transformers')
# Settings that the tables leave out; the plot has them, and docs/performance.json.
ONLY_DRAWN = {
  *(('head', 'v120k'), ('head', 'v32k'), ('train_step', 'base_compiled')),
  *(('reading', 'rows64'), ('checkpointing', 'small')),
}


def processor(record: Mapping) -> str:
  """Whose processor or GPU a result was measured on, as short as it can be said."""
  if gpu := record['machine'].get('gpu'):
    return gpu
  return ' '.join(re.sub(r'\((R|TM)\)|\bProcessor\b', ' ', record['machine']['cpu']).split())


def taken(results: Mapping[str, dict], folder: pathlib.Path) -> dict[str, dict]:
  """Results by the names of their files and by processor, those of `folder` in the place of older ones."""
  found = dict(results)
  for file in sorted(folder.glob('*.json')):
    record = json.loads(file.read_text())
    contestants = [
      {name: each[name] for name in (*KEPT, *KEPT_RATIOS) if name in each} for each in record['contestants']
    ]
    found[f'{file.stem}, {processor(record)}'] = rounded(record | {'contestants': contestants})

  def place(name: str) -> tuple:
    file, _, on = name.partition(', ')
    benchmark, _, setting = file.partition('-')
    return (ORDER.index(benchmark) if benchmark in ORDER else len(ORDER), benchmark, setting, on)

  return {name: found[name] for name in sorted(found, key=place)}


# --- tables -----------------------------------------------------------------------------------------------------------


def benchmark_tables(results: Mapping[str, dict]) -> dict[str, str]:
  """A table per benchmark, by its name, with its settings and all processors; one of GPUs, and one of test systems."""
  by_benchmark: dict[str, list[dict]] = {}
  for record in results.values():
    if (record['benchmark'], record['setting']) not in ONLY_DRAWN:
      by_benchmark.setdefault('gpu' if record['machine'].get('gpu') else record['benchmark'], []).append(record)
  tables = {
    name: _growth(records) if name == 'growth' else _comparison(records) for name, records in by_benchmark.items()
  }
  return tables | {'machine': _machine(results.values())}


def _comparison(records: Sequence[dict]) -> str:
  """A row per candidate of each setting: for each processor its relative time, or the seconds of this project."""
  processors = sorted(set(map(processor, records)))
  empty = [''] * len(processors)
  settings: dict[str, dict[str, list[str]]] = {}
  described = _descriptions({record['setting']: record['description'] for record in records})
  for record in records:
    rows, place = settings.setdefault(record['setting'], {}), 1 + processors.index(processor(record))
    for index, each in enumerate(record['contestants']):
      named = each['name'].removeprefix('this project').removeprefix(', ')
      first = f'**{record["setting"]}**{", " * bool(named)}{named}{described[record["setting"]]}'
      row = rows.setdefault(each['name'], [each['name'] if index else first, *empty])
      row[place] = _cell(each) if each['seconds'] else each['failure']
  for record in records:
    if record.get('conclusion'):
      settings[record['setting']][f'conclusion, {processor(record)}'] = [record['conclusion'], *empty]
  chosen = [row for rows in settings.values() for row in rows.values()]
  return table(['', *processors], chosen)


def _growth(records: Sequence[dict]) -> str:
  """A row per setting: seconds by size, and the exponent of the power that fits them."""
  processors = sorted(set(map(processor, records)))
  rows: dict[str, list[str]] = {}
  for record in records:
    sizes = ' · '.join(each['name'] for each in record['contestants'])
    row = rows.setdefault(
      record['setting'], [record['description'], f'{sizes} {record["setting"]}', *[''] * len(processors)]
    )
    seconds = ' · '.join(f'{statistics.median(each["seconds"]):.3g}' for each in record['contestants'])
    row[2 + processors.index(processor(record))] = f'{seconds} s; {record["conclusion"]}'
  return table(['', 'sizes', *processors], list(rows.values()))


def quality_table(rows: pd.DataFrame) -> str:
  """Where each candidate is after its minutes."""
  lines, _ = time_to_quality.summarize(rows)
  return table(['', 'tokens/s', 'million tokens', 'eval loss'], lines)


def _descriptions(settings: Mapping[str, str]) -> dict[str, str]:
  """`: ` and the parts of each description that differ from the first of its family (`base` of `base_x`) or table."""
  first, made = next(iter(settings)), {}
  for name, description in settings.items():
    family = name.partition('_')[0]
    other = family if family in settings and family != name else first
    known = set() if name == first else set(re.split(r', | · ', settings[other]))
    different = [part for part in re.split(r', | · ', description) if part not in known]
    made[name] = ': ' * bool(different) + ', '.join(different)
  return made


def _cell(contestant: dict) -> str:
  if ratios := contestant.get('times_this_project'):
    return f'**{statistics.median(ratios):.2f}** ({min(ratios):.2f}–{max(ratios):.2f})'
  return f'{statistics.median(contestant["seconds"]):.3g} s'


def _machine(records) -> str:
  """Processors, with the versions and days on which they were measured."""
  rows: dict[str, tuple[dict[str, None], set[str]]] = {}
  for record in records:
    machine, versions = record['machine'], record['versions']
    packages = ', '.join(f'{name} {versions[name]}' for name in PACKAGES if versions.get(name))
    name = f'{processor(record)}, {machine["cores"]} cores, {machine["memory_bytes"] / 1e9:.0f} GB'
    names, dates = rows.setdefault(packages, ({}, set()))
    names[name] = None
    dates.add(record['date'][:10])
  cells = [['; '.join(names), packages, ', '.join(sorted(dates))] for packages, (names, dates) in rows.items()]
  return table(['machines', 'versions', 'on'], cells)


# --- picture ----------------------------------------------------------------------------------------------------------


def picture(results: Mapping[str, dict]) -> bytes:
  """How many times as long others take: a line for each, a bar for each processor, from 1, where this project is."""
  found: dict[str, dict[str, float]] = {}
  for record in results.values():
    for each in record['contestants']:
      if each.get('times_this_project') and not each['name'].startswith(('…', '(')):
        line = found.setdefault(f'{record["benchmark"]}, {record["setting"]}: {each["name"]}', {})
        line[processor(record)] = statistics.median(each['times_this_project'])
  processors = sorted({name for line in found.values() for name in line})
  all_ratios = [ratio for line in found.values() for ratio in line.values()]
  with style.canvas(width=8, height=1.8 + 0.42 * len(found)) as canvas:
    axes = canvas.axes
    for index, line in enumerate(found.values()):
      thickness = 0.8 / len(line)
      for bar, (name, ratio) in enumerate(line.items()):
        y = index + thickness * (bar - (len(line) - 1) / 2)
        colour = style.SERIES[processors.index(name) % len(style.SERIES)]
        axes.barh(y, ratio - 1, left=1, height=0.9 * min(thickness, 0.5), color=colour)
        axes.annotate(
          f'{ratio:.2f}' if ratio < 10 else f'{ratio:.0f}',
          *((ratio, y), (4 if ratio >= 1 else -4, 0)),
          textcoords='offset points',
          va='center',
          ha='left' if ratio >= 1 else 'right',
          fontsize=7.5,
        )
    for name, colour in zip(processors, style.SERIES, strict=False):
      axes.barh(0, 0, left=1, color=colour, label=name)
    canvas.legend()
    axes.set_yticks(range(len(found)), list(found), fontsize=8.5)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xscale('log')
    axes.set_xlim(min(0.6, *(0.6 * ratio for ratio in all_ratios)), 1.5 * max(all_ratios))
    ticks = [
      tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]
    ]
    axes.set_xticks(ticks, [f'{tick:g}' for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color=style.INK, linewidth=1)
    axes.grid(False, axis='y')
    axes.set_xlabel('times as long as this project')
  return canvas.png()


def in_few_colours(png: bytes) -> bytes:
  """The same with a palette of 64 colours: a third of the bytes, for a picture as long as this."""
  from PIL import Image  # Matplotlib asks for it

  content = io.BytesIO()
  Image.open(io.BytesIO(png)).convert('RGB').quantize(64).save(content, 'PNG', optimize=True)
  return content.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    prog='python -m docs.tools.performance', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  flags.add_argument('folder', nargs='?', type=pathlib.Path, help='where benchmarks.run has written; default: none')
  flags.add_argument('--time_to_quality', type=pathlib.Path, help='where benchmarks.time_to_quality has written')
  options = flags.parse_args(arguments)
  if options.time_to_quality:
    QUALITY.write_bytes((options.time_to_quality / 'results.csv').read_bytes())
  quality = pd.read_csv(QUALITY)
  results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
  if options.folder:
    results = taken(results, options.folder)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + '\n')
  tables = benchmark_tables(results) | {'time_to_quality': quality_table(quality)}
  PAGE.write_text(with_tables(PAGE.read_text(), tables))
  QUALITY_PICTURE.write_bytes(in_few_colours(time_to_quality.plot(quality)))
  PICTURE.write_bytes(in_few_colours(picture(results)))


if __name__ == '__main__':
  main()
