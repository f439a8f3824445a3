"""Making a corpus, with Beam or without: one recipe per folder, finished languages stay, the manifest comes last."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from etils import epath

from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.tracking.console import Console, human_bytes
from tasks.corpus.documents import CorpusConfig
from tasks.corpus.format import MANIFEST, RECIPE, Corpus, finish_corpus, finished_languages, open_corpus
from tasks.corpus.sources import Part, bytes_by_language

LARGEST = 1 << 30  # bytes of input of a language, compressed or not, that one process takes

Tell = Callable[[str], None]  # shows a note on how far something is


def make(
  parts: Sequence[Part],
  folder: epath.PathLike,
  config: CorpusConfig,
  console: Console,
  run: Callable[[list[Part], Tell], None],
  *,
  group_bytes: float,
) -> Corpus:
  """Makes the languages that are not done yet, some at a time, and writes the manifest; opens what is complete.

  Args:
    parts: what to read.
    folder: of the corpus.
    config: how documents are chosen.
    console: shows progress.
    run: makes the languages of some parts; it may call its second argument with a note on how far it is.
    group_bytes: languages are made together up to so many bytes of input; 0 for all at once.

  Raises:
    UsageError: the folder holds a corpus built with different options, or all of it holds no text to train on.
  """
  folder, sizes = epath.Path(folder), bytes_by_language(parts)
  recipe = recipe_of(parts, config)
  refuse_other_recipe(folder / RECIPE, recipe, 'corpus')
  if not (folder / MANIFEST).exists():
    with write_errors('the corpus', folder):
      write_whole(folder / RECIPE, json.dumps(recipe, indent=1))
    done = finished_languages(folder)
    left = {language: size for language, size in sizes.items() if language not in done}
    run_some = lambda languages, tell: run([part for part in parts if part.language in languages], tell)
    run_in_groups(left, group_bytes, console, 'making the corpus', run_some)
    with write_errors('the corpus', folder):
      finish_corpus(folder, sizes, recipe)
  corpus = open_corpus(folder)
  if not any(counts.documents for counts in corpus.languages.values()):
    raise UsageError(
      'the corpus holds no text to train on',
      where=f'{folder}; languages: {", ".join(corpus.languages)}',
      fix='check that dumps are of articles (pages-articles), or lower min_characters and held_out',
    )
  return corpus


def recipe_of(parts: Iterable[Part], config: CorpusConfig) -> dict:
  """What decides the bytes of a corpus; JSON. It does not depend on where the sources lie."""
  moved = (dataclasses.replace(part, path=part.path.rsplit('/', 1)[-1], data_dir=None) for part in parts)
  return dataclasses.asdict(config) | {'sources': [list(dataclasses.astuple(part)) for part in moved]}


def refuse_other_recipe(file: epath.Path, recipe: Mapping, what: str) -> None:
  """Raises UsageError with the differences if a folder holds a corpus or store of another recipe."""
  if not file.exists():
    return
  before = json.loads(file.read_text())
  different = [name for name in recipe if before.get(name) != recipe[name]]
  if different:
    raise UsageError(
      f'the folder holds a {what} built with different options: {", ".join(different)}',
      where=str(file.parent),
      fix=f'choose another --output or --workdir, delete that {what}, or repeat the old command to continue with it',
    )


def run_in_groups(
  sizes: Mapping[str, float],
  most_bytes: float,
  console: Console,
  description: str,
  run: Callable[[list[str], Tell], None],
) -> None:
  """Calls `run` with names of some languages at a time, up to `most_bytes` together; 0 for all at once."""
  groups: list[list[str]] = []
  filled = 0.0
  for name, size in sizes.items():
    if not groups or (most_bytes and filled + size > most_bytes):
      groups.append([])
      filled = 0.0
    groups[-1].append(name)
    filled += size
  if not groups:
    return
  with console.task(description) as progress:
    for number, group in enumerate(groups):
      tell = lambda note, number=number: progress(number / len(groups), note)
      tell(' '.join(group[:6]) + (' …' if len(group) > 6 else ''))
      run(group, tell)


def refuse_large(parts: Iterable[Part], command: str) -> None:
  """Raises UsageError for more input of a language than one process takes; `command` makes the corpus instead."""
  large = [f'{name}: {human_bytes(size)}' for name, size in bytes_by_language(parts).items() if size > LARGEST]
  if large:
    raise UsageError(
      f'too much text to prepare in this process: at most {human_bytes(LARGEST)} of input per language',
      where=', '.join(large[:6]) + (', …' if len(large) > 6 else ''),
      fix=command,
    )
