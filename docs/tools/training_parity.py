"""The figures of docs/replication on training here and in torch: the same model, batches and optimizer on both sides.

python -m docs.tools.training_parity             train, and write the CSV, the picture and the table of the page
python -m docs.tools.training_parity --render    from docs/replication/training_parity.csv alone

Training needs torch, which `make parity` installs.
"""

import argparse
import csv
import io
import math
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from docs.tools.rendering import table, with_tables
from docs.tools.training_pairs import Step, finetuning, pretraining, train_twice
from rembert.plotting import style

FOLDER = pathlib.Path(__file__).parents[1] / 'replication'
FIGURES, PAGE, PICTURE = (FOLDER / name for name in ('training_parity.csv', 'index.md', 'training_parity.png'))
DTYPES = ('float32', 'float64')
LIMIT = 1e-3  # of differences of losses in nats, and of the distance
PRETRAINING, STEPS = 'masked language modelling', 300
# BERT's optimizer; the smoke run has other moments, for its few steps.
BINDINGS = ('train.steps=300', 'optimizer.warmup_steps=30', 'optimizer.b2=0.999', 'optimizer.bias_correction=False')
FINETUNING, FINETUNING_STEPS = {'pairs (XNLI)': 'xnli', 'tags (UDPOS)': 'udpos', 'spans (SQuAD)': 'squad'}, 100
# At 3e-4 spans are chaotic: a difference of 1e-14 grows fivefold at every step.
FINETUNING_BINDINGS = (
  'train.steps=100',
  'train.batch_size=8',
  'train.sequence_length=128',
  'xtreme.doc_stride=64',
  'xtreme.max_query_length=32',
  'optimizer.warmup_steps=10',
  'optimizer.learning_rate=1e-4',
)

# (name of the training, dtype) to its steps.
Figures = dict[tuple[str, str], list[Step]]


def train() -> Iterator[tuple[tuple[str, str], list[Step]]]:
  """Pre-training, and fine-tuning of the encoder that it leads to, in both dtypes."""
  with tempfile.TemporaryDirectory() as workdir:
    first, vocabulary = pretraining(workdir, STEPS, *BINDINGS)
    steps, params = train_twice(first)
    yield (PRETRAINING, 'float32'), steps
    yield (PRETRAINING, 'float64'), train_twice(first, 'float64')[0]
    for name, task in FINETUNING.items():
      bindings, encoder = FINETUNING_BINDINGS, params['encoder']
      training = finetuning(task, first, vocabulary, FINETUNING_STEPS, *bindings, encoder=encoder)
      for dtype in DTYPES:
        yield (name, dtype), train_twice(training, dtype)[0]


# --- CSV --------------------------------------------------------------------------------------------------------------


def as_csv(figures: Figures) -> str:
  """A line per training, dtype and step, with the fields of `Step`."""
  text = io.StringIO()
  lines = csv.writer(text, lineterminator='\n')
  lines.writerow(['training', 'dtype', 'step', *Step._fields])
  for (name, dtype), steps in figures.items():
    for number, step in enumerate(steps, 1):
      lines.writerow([name, dtype, number, f'{step.loss:.6g}', f'{step.difference:.2e}', f'{step.distance:.2e}'])
  return text.getvalue()


def read_csv(text: str) -> Figures:
  """What `as_csv` has written."""
  figures: Figures = {}
  for row in csv.DictReader(io.StringIO(text)):
    step = Step(*(float(row[field]) for field in Step._fields))
    figures.setdefault((row['training'], row['dtype']), []).append(step)
  return figures


# --- page -------------------------------------------------------------------------------------------------------------


def parity_table(figures: Figures) -> str:
  """The largest difference of losses, and the distance at the end."""
  rows = []
  for name in dict.fromkeys(name for name, _ in figures):
    both = [figures[name, dtype] for dtype in DTYPES]
    losses = f'{both[0][0].loss:.2f} → {both[0][-1].loss:.2f}'
    differences = [f'{max(abs(step.difference) for step in steps):.0e}' for steps in both]
    distances = [f'{steps[-1].distance:.0e}' for steps in both]
    rows.append([name, str(len(both[0])), losses, ' · '.join(differences), ' · '.join(distances)])
  return table(['training', 'steps', 'loss', 'largest difference of losses', 'distance at the end'], rows)


def picture(figures: Figures) -> bytes:
  """Differences of losses and distances over steps; float64 is dashed."""
  with style.canvas(1, 2, width=9, height=4) as canvas:
    names = list(dict.fromkeys(name for name, _ in figures))
    for (name, dtype), steps in figures.items():
      look = {
        'color': style.SERIES[names.index(name)],
        'linestyle': style.DASHES[DTYPES.index(dtype)],
        'linewidth': 1.2,
      }
      numbers = range(1, len(steps) + 1)
      for axes, values in zip(
        canvas.axes, ([abs(step.difference) for step in steps], [step.distance for step in steps]), strict=True
      ):
        # Zero has no place on this axis.
        axes.plot(numbers, [value or math.nan for value in values], **look, label=f'{name}, {dtype}')
    for axes, title in zip(canvas.axes, ('|difference of losses|, nats', 'distance of parameters'), strict=True):
      axes.axhline(LIMIT, color=style.INK, linewidth=1)
      axes.set_yscale('log')
      axes.yaxis.set_major_formatter(lambda value, _: f'{value:.0e}')  # without mathtext, which the style switches off
      axes.set_title(title, loc='left')
      style.step_axis(axes)
    canvas.figure.legend(*canvas.axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=2)
  return canvas.png()


def main(arguments: Sequence[str] | None = None) -> None:
  """The command."""
  flags = argparse.ArgumentParser(
    prog='python -m docs.tools.training_parity',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  flags.add_argument('--render', action='store_true', help='do not train')
  if not flags.parse_args(arguments).render:
    figures = {}
    for key, figures[key] in train():
      print(*key, figures[key][-1], flush=True)
      FIGURES.write_text(as_csv(figures))
  figures = read_csv(FIGURES.read_text())
  PAGE.write_text(with_tables(PAGE.read_text(), {'parity': parity_table(figures)}))
  PICTURE.write_bytes(picture(figures))


if __name__ == '__main__':
  main()
