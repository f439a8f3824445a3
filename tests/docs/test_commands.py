"""Every command that README.md, docs/ and CONTRIBUTING.md show: accepted by its program, and run at a small scale.

tests/support/small_scale.py says how commands are made small, and which cannot be run here.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Sequence, Set

import parsed_commands
import pytest
import small_scale
from command_sandbox import CommandServer, copy_sandbox, make_sandbox
from documented_commands import ROOT, Command, Options, Shown, pages, shown, shown_on
from small_scale import NoRule, Way, planned, tried_with

# Played first: the other pages use what they make.
FIRST = ('README.md', 'docs/guides/own_text.md', 'docs/guides/xtreme.md')
PAGES = [page for page in pages() if shown_on(page)]
# Inline code may name a part of a command; what it does say has to be right.
_INCOMPLETE = re.compile(
  r'the following arguments are required|--gin_file=FILE is missing|is missing, where|nothing to run'
)


def commands_of(page: str) -> list[Command]:
  return [each for each in shown_on(page) if isinstance(each, Command)]


# --- what is a command ------------------------------------------------------------------------------------------------


FENCES = {'python': 'import rembert', 'text': 'make of it what you like', 'gin': 'a.b = 1', 'bash': 'ls y\n# remark'}
FENCES |= {'console': '$ make help\nits output', '': 'ls → x'}


@pytest.mark.parametrize(
  ('page', 'found'),
  [
    (
      'Text.\n\n    make smoke\n    a picture → of boxes\n    python -m a --b=c  # remark\n    x = 1\n',
      ['make smoke', 'python -m a --b=c'],
    ),
    (
      '\n    python -m a --b=1 \\\n        --c="d  e"      a remark\n                    which ends, make no mistake\n',
      ["python -m a --b=1 '--c=d  e'"],
    ),
    (
      '\n    --gin.a.b=1 --gin.c.d=2      what they do\n    --topology=v4:2x2x1 | cpu:8\n\nand `--gin.e.f=3` within.\n',
      ['--gin.a.b=1 --gin.c.d=2', '--topology=v4:2x2x1', '--topology=cpu:8', '--gin.e.f=3'],
    ),
    (
      ''.join(f'```{language}\n{text}\n```\n\n' for language, text in FENCES.items()),
      ['ls y', 'make help', "ls '→' x"],
    ),
    (
      'Run `make smoke`, or `gcloud`; `python -m a.b verify c` compares; `a_name` does not. `x && y`\n',
      ['make smoke', 'python -m a.b verify c'],
    ),
  ],
  ids=['indented', 'joined at backslashes', 'options', 'fences', 'inline'],
)
def test_what_a_page_shows_are_commands_and_options(page, found):
  commands = list(shown(page, 'page.md'))
  assert [each.text for each in commands] == found
  assert all(isinstance(each, Options) == each.text.startswith('--') for each in commands)


def test_two_commands_in_a_line_and_where_they_stand():
  found = list(shown('Text\n\n    pip install x && make help\n', 'page.md'))
  assert [(each.line, each.text) for each in found] == [(3, 'pip install x'), (3, 'make help')]


# --- every command, quickly -------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def desk(tmp_path_factory):
  """A folder with what commands look for before they do anything."""
  folder = tmp_path_factory.mktemp('desk')
  for name in ('gin', 'launch', 'requirements.txt'):
    (folder / name).symlink_to(ROOT / name)
  (folder / 'download').symlink_to(ROOT / 'tests/data/xtreme')
  return folder


@pytest.fixture(scope='module')
def known_options():
  return parsed_commands.known_options() | small_scale.OF_OTHERS.keys()


def refusal(words: Sequence[str], *, dry_run: bool = False) -> str:
  """Why a program would refuse a command, or ''."""
  try:
    parsed_commands.check(words, dry_run=dry_run)
  except parsed_commands.Refused as refused:
    return str(refused)
  return ''


def wrong_with_command(command: Command) -> list[str]:
  try:
    plan = planned(command)
  except NoRule as error:
    return [str(error)]
  # As the page shows it: with what is added there would be less to refuse.
  words, found = list(dataclasses.replace(plan, added=()).arguments), []
  if '-m' in words and words[words.index('-m') + 1] not in ('venv', 'pip'):
    # The program, and what it hands on: a command behind -- is held to the same.
    for part in (words, words[words.index('--') + 1 :] if '--' in words else []):
      if 'rembert.main' in part or part is words:
        reason = refusal(part)
        found += [reason] if reason and not (command.is_inline and _INCOMPLETE.search(reason)) else []
  if 'make' in words:
    targets = set(re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.MULTILINE))
    named = (word for word in command.words[command.words.index('make') + 1 :] if '=' not in word)
    found += [f'make has no target {word}' for word in named if word not in targets]
  names = lambda options: {word.partition('=')[0] for word in options if word.startswith('--')}
  set_otherwise = names(plan.added) & names(plan.words) - {'--gin_file'} - small_scale.OVERRIDDEN
  return found + [f'{name} would be set otherwise than the page does' for name in set_otherwise]


def wrong_with_options(options: Options, known: Set[str]) -> list[str]:
  words = tried_with(options.words)
  names = {word.partition('=')[0] for word in options.words if word.startswith('--')}
  if words is None or (names & known and '=' not in options.text):  # `--data_dir`: what it takes is not said
    unknown = (name for name in names - known if not name.startswith(('--gin.', '--finetune_gin.')))
    return [f'no program has {name}' for name in unknown]
  return list(filter(None, [refusal(words, dry_run=True)]))


def wrong(each: Shown, known: Set[str]) -> list[str]:
  """What is wrong with a command or with options of a page."""
  found = wrong_with_command(each) if isinstance(each, Command) else wrong_with_options(each, known)
  for word in small_scale.filled_in(each.words):
    for file in re.findall(r'(?:^|=|/code/)((?:gin|launch|tests|docs|benchmarks|tasks)/[\w./-]+)', word):
      found += [] if (ROOT / file).exists() else [f'there is no {file}']
  return [f'{each}\n  {reason}' for reason in found]


@pytest.mark.parametrize('page', PAGES)
def test_programs_accept_what_a_page_shows(page, desk, known_options, monkeypatch):
  """Commands, their files and targets of make, options that stand alone; and the small scale changes nothing else."""
  monkeypatch.chdir(desk)
  found = [reason for each in shown_on(page) for reason in wrong(each, known_options)]
  assert not found, '\n'.join(found)


@pytest.mark.parametrize(
  'line',
  [
    '--gin.train.stepz=3',
    '--mesh',
    '--gin.train.batch_size=-3',
    '--learning_rates=x',
    'python -m rembert.main --gin_file=gin/pretrain_smoke.gin --gin.train.stepz=3',
    'python -m rembert.main --gin_file=gin/pretrain_smok.gin',
    'python -m rembert.main --gin_file=gin/pretrain_smoke.gin --work_dir=x',
    'python -m tasks.vocabulary --dumps=x --sizes=3 --output=y',
    'python -m launch.tpu_vm creates large --type=v4-8',
    'python -m launch.tpu_vm create large --type=v9-8',
    'python -m launch.supervise -- python -m rembert.main --gin_file=gin/pretrain_smoke.gin --mode=dance',
    'python -m launch.xtreme --init=x --data_dir=download --tasks=nope',
    'python -m launch.sweep gin/experiments/table99 --scale=mini --data_dir=download',
    'curl https://example.org',
    'make cofee',
  ],
)
def test_what_a_program_would_refuse_is_found(line, desk, known_options, monkeypatch):
  monkeypatch.chdir(desk)
  [each] = shown(f'\n    {line}\n', 'page.md')
  assert wrong(each, known_options)


def test_every_rule_is_of_use():
  lines = [' '.join(small_scale.filled_in(command.words)) for page in PAGES for command in commands_of(page)]
  used = {rule.pattern for line in lines if (rule := small_scale.rule_of(line))}
  assert not [rule.pattern for rule in small_scale.WAYS if rule.pattern not in used]
  assert not [rule.pattern for rule in small_scale.WAYS if rule.way is not Way.RUN and not rule.why]
  assert not [pattern for pattern, _ in small_scale.SMALLER if not any(re.search(pattern, line) for line in lines)]


def test_a_command_that_nothing_covers_is_refused_with_what_to_do():
  with pytest.raises(NoRule, match=r'(?s)page\.md:3.*no rule.*WAYS'):
    planned(Command('page.md', 3, ('curl', 'https://example.org')))


# --- every command, run -----------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def server(tmp_path_factory):
  server = CommandServer(tmp_path_factory.mktemp('server'))
  yield server
  server.close()


@pytest.fixture(scope='module')
def after_first(server, tmp_path_factory):
  """A sandbox in which the first pages were run, what went wrong on each, and the commands that were run."""
  folder, done = make_sandbox(tmp_path_factory.mktemp('readme') / 'clone'), set()
  return folder, {page: played(page, server, folder, done) for page in FIRST}, done


def played(page: str, server: CommandServer, folder: pathlib.Path, done: set[tuple[str, ...]]) -> list[str]:
  """What went wrong with the commands of a page, one after the other in a folder; those in `done` are left out."""
  wrong = []
  for command in commands_of(page):
    plan = planned(command)
    if plan.rule.way is Way.LISTED or plan.arguments in done:
      continue
    if command.is_inline and not is_complete(plan):
      continue
    done.add(plan.arguments)
    ended = server.run(plan, folder)
    if ended.returncode not in plan.rule.exit_codes:
      printed = '\n    '.join(ended.stdout.splitlines()[-15:])
      wrong.append(f'{command}\n  as {shlex.join(plan.arguments)}\n  ended with {ended.returncode}:\n    {printed}')
  return wrong


def is_complete(plan: small_scale.Planned) -> bool:
  """Whether a command within a sentence says all that its program needs."""
  return '-m' not in plan.arguments or not refusal(plan.arguments)


@pytest.mark.slow
@pytest.mark.parametrize('page', FIRST)
def test_the_commands_of_the_first_pages_work(page, after_first):
  _, wrong, _ = after_first
  assert not wrong[page], '\n'.join(wrong[page])


@pytest.mark.slow
@pytest.mark.parametrize('page', [page for page in PAGES if page not in FIRST])
def test_the_commands_of_a_page_work_after_those_of_the_first(page, server, after_first, tmp_path):
  folder, _, done = after_first
  wrong = played(page, server, copy_sandbox(folder, tmp_path / 'clone'), set(done))
  assert not wrong, '\n'.join(wrong)
