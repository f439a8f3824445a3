"""Console output: lines, tables, progress with rate and time left.

In a terminal Rich draws a live bar; elsewhere (a log file, CI) the same information comes as plain lines.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import rich.box
import rich.console
import rich.progress
import rich.table

# Shows the progress of a task: a fraction from 0 to 1, and optionally a note.
Progress = Callable[..., None]
# Seconds between progress lines of a plain log.
_PLAIN_EVERY_SECONDS = 15


def human_bytes(count: float) -> str:
  """Formats 1234567 as `1.23 MB`."""
  for unit in ('B', 'kB', 'MB', 'GB'):
    if abs(count) < 999.5:  # larger numbers would be rounded to 1000
      return f'{count:.3g} {unit}'
    count /= 1000
  return f'{count:.3g} TB'


def human_duration(seconds: float) -> str:
  """Formats 3725 as `1:02:05`."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}' if hours else f'{minutes}:{seconds:02d}'


class Console:
  """Console output of the first process; the others are quiet (`is_quiet`)."""

  def __init__(self, *, is_quiet: bool = False, console: rich.console.Console | None = None):
    # Neither markup nor emoji codes: a directory may be named `[base]` or `:de:`.
    self.rich = console or rich.console.Console(
      quiet=is_quiet, highlight=False, soft_wrap=False, markup=False, emoji=False
    )
    self.is_live = self.rich.is_terminal and not is_quiet

  def say(self, text: str) -> None:
    """Prints one line."""
    self.rich.print(text, markup=False, soft_wrap=True)

  def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; the first column is left-aligned, the others right-aligned."""
    table = rich.table.Table(title=title, title_justify='left', box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
      table.add_column(column, justify='left' if index == 0 else 'right', overflow='fold')
    for row in rows:
      table.add_row(*row)
    self.rich.print(table)

  def facts(self, title: str, facts: Mapping[str, str]) -> None:
    """Prints names and values, one pair per line."""
    table = rich.table.Table(title=title, title_justify='left', box=rich.box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style='bold', no_wrap=True)
    table.add_column(overflow='fold')
    for name, value in facts.items():
      table.add_row(name, value)
    self.rich.print(table)

  @contextlib.contextmanager
  def task(self, description: str) -> Iterator[Progress]:
    """Shows the progress of a task; yields update(fraction, note)."""
    start = said = time.monotonic()
    if self.is_live:
      with _progress(self.rich) as progress:
        bar = progress.add_task(description, total=1.0, note='')

        def update_bar(fraction: float, note: str = '') -> None:
          progress.update(bar, completed=fraction, note=note)

        yield update_bar
        update_bar(1.0)
      return

    def update(fraction: float, note: str = '') -> None:
      nonlocal said
      if time.monotonic() - said > _PLAIN_EVERY_SECONDS:
        said = time.monotonic()
        left = f' · {human_duration((said - start) * (1 - fraction) / fraction)} left' if fraction > 0 else ''
        self.say(f'{description}: {fraction:.0%} {note}{left}')

    yield update
    self.say(f'{description}: done in {time.monotonic() - start:.1f} s')

  @contextlib.contextmanager
  def training(self, start: int, steps: int) -> Iterator['TrainingProgress']:
    """Shows the progress of the training loop from step `start` to `steps`."""
    if not self.is_live:
      yield TrainingProgress(self, start, steps, None)
      return
    with _progress(self.rich) as progress:
      yield TrainingProgress(self, start, steps, progress)


def _progress(console: rich.console.Console) -> rich.progress.Progress:
  return rich.progress.Progress(
    rich.progress.TextColumn('{task.description}'),
    rich.progress.BarColumn(bar_width=None),
    rich.progress.TaskProgressColumn(),
    rich.progress.TextColumn('{task.fields[note]}'),
    rich.progress.TimeElapsedColumn(),
    rich.progress.TextColumn('left'),
    rich.progress.TimeRemainingColumn(),
    console=console,
    expand=True,
  )


class TrainingProgress:
  """The progress bar, or lines, of the training loop."""

  def __init__(self, console: Console, start: int, steps: int, progress: rich.progress.Progress | None):
    self._console, self._start, self._steps, self._progress = console, start, steps, progress
    self._began = time.monotonic()
    self._bar = (
      progress.add_task('training', completed=start, total=steps, note='') if progress else rich.progress.TaskID(0)
    )

  def step(self, step: int) -> None:
    """Moves the bar after update number `step`."""
    if self._progress:
      self._progress.update(self._bar, completed=step)

  def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
    """Shows a row of training metrics."""
    note = f'loss {metrics["loss"]:.3f}'
    if 'accuracy' in metrics:
      note += f' · accuracy {metrics["accuracy"]:.1%}'
    if 'learning_rate' in metrics:
      note += f' · lr {metrics["learning_rate"]:.3g}'
    note += f' · {metrics.get("tokens_per_second", 0) / 1000:.1f}k tokens/s'
    if 'mfu' in metrics:
      note += f' · MFU {metrics["mfu"]:.0%}'
    if self._progress:
      self._progress.update(self._bar, note=note)
      return
    elapsed = time.monotonic() - self._began
    left = elapsed / max(step - self._start, 1) * (self._steps - step)
    self._console.say(f'step {step}/{self._steps} · {note} · {human_duration(left)} left')

  def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
    """Prints a row of evaluation metrics; scores of a task, 0 to 100, have keys `eval/dev/…`."""
    parts = [f'step {step}', f'eval loss {metrics["eval/loss"]:.3f}']
    if 'eval/unigram_entropy' in metrics:
      parts[-1] += f' (unigram baseline {metrics["eval/unigram_entropy"]:.3f})'
    if 'eval/accuracy' in metrics:
      parts.append(f'accuracy {metrics["eval/accuracy"]:.1%}')
    parts += [f'{name.split("/")[-1]} {value:.1f}' for name, value in metrics.items() if name.startswith('eval/dev/')]
    self._console.say(' · '.join(parts))
