"""`spectra`: the two tables of a model, and how often a text uses their rows."""

import dataclasses
from typing import Any

import numpy as np
from etils import epath

from rembert.analysis.spectra import norms, norms_by_frequency, row_norms, spectrum
from rembert.analysis.tables import read_tables
from rembert.data.masking import SpecialIds
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.jobs.analyses.desk import Analysed, Desk, Table, model_facts, number
from tasks.corpus.local import corpus_or_text
from tasks.vocabulary import check_vocabulary, load_vocabulary
from tasks.vocabulary_report import PieceCounter
from tasks.xtreme.files import read_lines

_ROWS_AT_ONCE = 1024
_CHARACTERS_OF_PIECE = 4  # about, for what `analyze.characters` is in rows of a store


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.spectra`."""
  analyze = desk.config.analyze
  desk.source()
  with desk.task('reading tables'):
    tables = read_tables(analyze.model)
  counts = _counts(desk, tables)
  # Below are special pieces, which stand in every row and in no text, and reserved ones, which stand nowhere.
  special = dataclasses.astuple(SpecialIds())
  first = SpecialIds().first_piece
  reserved = np.setdiff1d(np.arange(min(first, tables.config.vocab_size)), special)
  found: dict[str, dict[str, Any] | None] = {'input': None, 'output': None}
  with desk.task('singular values') as progress:
    for done, (name, table) in enumerate(tables.by_name.items()):
      progress(done / len(tables.by_name), name)
      of_table = dataclasses.asdict(spectrum(table, seed=analyze.seed))
      of_table |= {'norms': None, 'norms_by_frequency': None}
      if counts is not None:
        of_all = row_norms(table)
        lengths, times = of_all[first:], counts[first:]
        groups = {'used': lengths[times > 0], 'unused': lengths[times == 0], 'reserved': of_all[reserved]}
        chosen = {which: norms(some) for which, some in groups.items()}
        of_table['norms'] = {which: some and dataclasses.asdict(some) for which, some in chosen.items()}
        of_table['norms_by_frequency'] = [dataclasses.asdict(row) for row in norms_by_frequency(lengths, times)]
      found[name] = of_table
  counted = None if counts is None else int(counts[first:].sum())
  return Analysed(
    {'tables': found, 'counted': counted},
    {**model_facts(tables.config, tables.path), 'counted_in': analyze.counts or analyze.store or analyze.text},
    [_table(found)],
    [] if tables.output_VxE is not None else ['there is no output embedding in the checkpoint'],
  )


def _table(found: dict) -> Table:
  there = {name: of_table for name, of_table in found.items() if of_table}
  line = lambda label, of: (label, *(of(of_table) for of_table in there.values()))
  rows = [
    line('width', lambda of: f'{of["width"]:,}'),
    line('effective rank', lambda of: f'{of["effective_rank"]:.1f} ({of["effective_rank"] / of["width"]:.0%})'),
    line(
      'participation ratio',
      lambda of: f'{of["participation_ratio"]:.1f} ({of["participation_ratio"] / of["width"]:.0%})',
    ),
    line('isotropy', lambda of: number(of['isotropy'], 3)),
    line('mean cosine', lambda of: number(of['mean_cosine'], 3)),
    line('share of the mean vector', lambda of: f'{of["common_share"]:.1%}'),
  ]
  if all(of_table['norms'] for of_table in there.values()):

    def norm_of(which: str):
      def text(of_table: dict) -> str:
        some = of_table['norms'][which]
        return '–' if some is None else f'{some["mean"]:.3f} ± {some["deviation"]:.3f} ({some["pieces"]:,})'

      return text

    rows += [line(f'norm, {which} pieces', norm_of(which)) for which in ('used', 'unused', 'reserved')]
  return Table('Embedding tables', ('', *there), rows)


def _counts(desk: Desk, tables) -> np.ndarray | None:
  """How often each piece occurs in what the configuration names, int64 [V]; None if it names nothing."""
  analyze, size = desk.config.analyze, tables.config.vocab_size
  named = [name for name in ('text', 'store', 'counts') if getattr(analyze, name)]
  if len(named) > 1:
    fields = ', '.join(f'analyze.{name}' for name in named)
    raise UsageError('pieces are counted in one place', where=fields, fix='leave one of them')
  if not named:
    return None
  if analyze.counts:
    return read_counts(analyze.counts, size)
  if analyze.store:
    return _of_store(desk, TokenStore(analyze.store), size)
  file = desk.config.vocabulary.path or tables.vocabulary
  if file is None:
    raise UsageError(
      'no vocabulary beside the model', where=tables.path, fix='--gin.vocabulary.path=sentencepiece.model'
    )
  check_vocabulary(file, size)
  counter = PieceCounter(load_vocabulary(file))
  with (
    corpus_or_text(analyze.text, desk.config.data.languages, desk.console) as corpus,
    desk.task('counting pieces') as progress,
  ):
    for done, language in enumerate(corpus.languages):
      progress(done / len(corpus.languages), language)
      counter.add_texts(list(corpus.sample(language, 'train', analyze.characters)))
  return np.pad(counter.counts, (0, size - len(counter.counts)))


def _of_store(desk: Desk, store: TokenStore, size: int) -> np.ndarray:
  if store.vocab_size > size:
    raise UsageError(
      f'the store has {store.vocab_size:,} pieces, and the model {size:,}',
      where=str(store.folder),
      fix='the store that the model was trained on',
    )
  counts = np.zeros(size, np.int64)
  most = -(-desk.config.analyze.characters // (_CHARACTERS_OF_PIECE * store.sequence_length))
  with desk.task('counting pieces') as progress:
    for done, language in enumerate(store.languages):
      progress(done / len(store.languages), language)
      rows = store.rows(language, 'train')
      chosen = np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64)) if rows else np.empty(0, np.int64)
      for start in range(0, len(chosen), _ROWS_AT_ONCE):
        ids = store.read(language, 'train', chosen[start : start + _ROWS_AT_ONCE])
        counts += np.bincount(ids.ravel(), minlength=size)
  return counts


def read_counts(path: epath.PathLike, vocab_size: int) -> np.ndarray:
  """A file of `ID TAB COUNT` lines, int64 [V]; pieces without a line count 0. UsageError with file and line."""
  path = epath.Path(path)
  if not path.is_file():
    raise UsageError('there is no such file', where=str(path), fix="lines of a piece's id, a tab, and its count")
  counts = np.zeros(vocab_size, np.int64)
  for line in read_lines(path):
    cells = line.text.split('\t')
    if len(cells) != 2 or not all(cell.isascii() and cell.isdigit() for cell in cells) or int(cells[0]) >= vocab_size:
      raise UsageError(
        f'{line.text!r} is no id and count', where=line.where, fix=f'an id below {vocab_size}, a tab, a count'
      )
    counts[int(cells[0])] += int(cells[1])
  return counts
