"""What is printed: plain lines without a terminal, a bar in one, nothing in quiet processes."""

import io
import re
import types

import pytest
import rich.console

from rembert.tracking import console as console_module
from rembert.tracking.console import Console, human_bytes, human_duration

METRICS = {'learning_rate': 0.0015, 'loss': 4.3219, 'accuracy': 0.2567, 'tokens_per_second': 12_345.0, 'mfu': 0.417}
EVALUATION = {'eval/loss': 3.5, 'eval/accuracy': 0.301, 'eval/unigram_entropy': 6.25}


@pytest.fixture
def clock(monkeypatch):
  """The console's clock, to be set: `clock.now`."""
  clock = types.SimpleNamespace(now=100.0)
  monkeypatch.setattr(console_module, 'time', types.SimpleNamespace(monotonic=lambda: clock.now))
  return clock


def console_on(*, is_terminal, clock):
  """A console as wide as a wide terminal, and what it has written."""
  console = Console(
    console=rich.console.Console(
      file=io.StringIO(), force_terminal=is_terminal, width=160, highlight=False, get_time=lambda: clock.now
    )
  )
  return console, console.rich.file.getvalue


@pytest.fixture
def plain(clock):
  return console_on(is_terminal=False, clock=clock)


def test_bytes_and_durations_for_people():
  sizes = {
    0: '0 B',
    999: '999 B',
    1000: '1 kB',
    1_234_567: '1.23 MB',
    999_400: '999 kB',
    999_999: '1 MB',
    999.9: '1 kB',
  }
  sizes |= {16_900_000_000: '16.9 GB', 1_990_000_000_000: '1.99 TB'}
  assert {count: human_bytes(count) for count in sizes} == sizes
  durations = {
    0: '0:00',
    9.4: '0:09',
    59.6: '1:00',
    61: '1:01',
    3599.7: '1:00:00',
    3725: '1:02:05',
    360_000: '100:00:00',
  }
  assert {seconds: human_duration(seconds) for seconds in durations} == durations


def test_without_a_terminal_a_line_has_loss_rate_and_time_left(plain, clock):
  console, written = plain
  assert not console.is_live
  with console.training(100, 300) as progress:
    clock.now += 10
    progress.step(150)
    assert written() == ''
    progress.metrics(150, METRICS)
  # 50 steps in 10 s: the 150 that are left take 30 s. What was done before the resume does not count.
  assert written() == 'step 150/300 · loss 4.322 · accuracy 25.7% · lr 0.0015 · 12.3k tokens/s · MFU 42% · 0:30 left\n'


def test_a_row_at_the_step_of_a_resume_and_an_evaluation(plain):
  console, written = plain
  with console.training(100, 100) as progress:
    progress.metrics(100, {'loss': 1.0, 'accuracy': 0.0})
    progress.evaluation(80, EVALUATION)
  assert written().splitlines() == [
    'step 100/100 · loss 1.000 · accuracy 0.0% · 0.0k tokens/s · 0:00 left',
    'step 80 · eval loss 3.500 (unigram baseline 6.250) · accuracy 30.1%',
  ]


def test_a_long_task_says_now_and_then_that_it_lives_and_at_its_end_that_it_is_done(plain, clock):
  console, written = plain
  with pytest.raises(ValueError, match='broken'), console.task('failing'):
    raise ValueError('broken')
  with console.task('tokenising') as update:
    for second in range(40):
      clock.now += 1
      update(second / 40, f'{second} documents')
  assert written().splitlines() == [
    'tokenising: 38% 15 documents · 0:27 left',
    'tokenising: 78% 31 documents · 0:09 left',
    'tokenising: done in 40.0 s',
  ]


def test_a_table_has_its_title_columns_and_rows(plain):
  console, written = plain
  console.table('Held-out text', ('', 'loss', 'accuracy'), [('de', '3.5', '30%'), ('all', '12.25', '9%')])
  lines = [line.rstrip() for line in written().splitlines()]
  assert lines[0] == 'Held-out text'
  assert [line.split() for line in lines[1:] if line.strip(' ─')] == [
    ['loss', 'accuracy'],
    ['de', '3.5', '30%'],
    ['all', '12.25', '9%'],
  ]
  # Numbers end where their column ends.
  assert len({len(line) for line in lines if line.endswith('%')}) == 1


def test_paths_are_shown_as_they_are_and_long_lines_are_not_wrapped(capsys):
  console = Console()
  for path in '/runs/[base]/1', '/runs/[/base]', '/runs/:smile:/1':
    console.say(path)
    console.facts(path, {'workdir': path})
    console.table(path, ('',), [(path,)])
    assert capsys.readouterr().out.count(path) == 5
  console.say('x' * 1000)
  assert capsys.readouterr().out == 'x' * 1000 + '\n'


def test_in_a_terminal_a_bar_has_loss_rate_and_time_left(clock):
  console, written = console_on(is_terminal=True, clock=clock)
  assert console.is_live
  with console.task('tokenising') as update:
    update(0.25, '3 documents')
  assert 'tokenising' in written()
  assert '100%' in written()
  with console.training(100, 300) as progress:
    for step in 150, 200:
      clock.now += 10
      progress.step(step)
    progress.metrics(200, METRICS)
  assert '\x1b[' in written()
  last = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', written()).splitlines()[-1].split('━')
  assert last[0] == 'training '
  # 20 seconds went by; 5 steps a second, and 100 to go.
  assert ' '.join(last[-1].split()) == (
    '67% loss 4.322 · accuracy 25.7% · lr 0.0015 · 12.3k tokens/s · MFU 42% 0:00:20 left 0:00:20'
  )


def test_other_processes_print_nothing(capsys):
  console = Console(is_quiet=True)
  assert not console.is_live
  console.say('text')
  console.table('title', ('a',), [('b',)])
  console.facts('title', {'a': 'b'})
  with console.task('task') as update:
    update(0.5, 'note')
  with console.training(0, 10) as progress:
    progress.step(1)
    progress.metrics(1, METRICS)
    progress.evaluation(1, EVALUATION)
  captured = capsys.readouterr()
  assert captured.out == captured.err == ''
