"""`word_similarity`: files of judged word pairs against the two tables of a model."""

import dataclasses

from etils import epath

from rembert.analysis.correlation import Correlation
from rembert.analysis.tables import read_tables
from rembert.analysis.word_pairs import read_word_pairs
from rembert.analysis.word_similarity import word_similarity
from rembert.data.masking import SpecialIds
from rembert.errors import UsageError
from rembert.jobs.analyses.desk import Analysed, Desk, Table, model_facts
from tasks.vocabulary import check_vocabulary, load_vocabulary

_SHOWN_WORDS = 20


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.word_similarity`."""
  config, analyze = desk.config, desk.config.analyze
  analyze.require('words')
  desk.source()  # says what is missing, before files are read
  sets = {epath.Path(path).name.rsplit('.', 1)[0]: read_word_pairs(path, analyze.columns) for path in analyze.words}
  with desk.task('reading tables'):
    tables = read_tables(analyze.model)
  file = config.vocabulary.path or tables.vocabulary
  if file is None:
    raise UsageError(
      'no vocabulary beside the model', where=tables.path, fix='--gin.vocabulary.path=sentencepiece.model'
    )
  check_vocabulary(file, tables.config.vocab_size)
  encode = load_vocabulary(file).encode
  found = {}
  with desk.task('comparing words') as progress:
    for done, (name, pairs) in enumerate(sets.items()):
      progress(done / len(sets), name)
      found[name] = word_similarity(
        tables.by_name,
        pairs,
        encode,
        unknown=SpecialIds().unknown,
        samples=analyze.samples,
        seed=analyze.seed,
      )
  as_json = lambda correlation: correlation and dataclasses.asdict(correlation)
  results = {
    'tables': {
      'input': tables.input_VxI.shape[1],
      'output': None if tables.output_VxE is None else tables.output_VxE.shape[1],
    },
    'sets': {
      name: {
        'pairs': of_set.pairs,
        'covered': of_set.covered,
        'not_covered': list(of_set.not_covered[:_SHOWN_WORDS]),
        'input': as_json(of_set.of_table['input']),
        'output': as_json(of_set.of_table.get('output')),
        'difference': as_json(of_set.difference),
      }
      for name, of_set in found.items()
    },
  }
  rows = [
    (
      name,
      f'{of_set.covered:,} of {of_set.pairs:,}',
      _in_words(of_set.of_table['input']),
      _in_words(of_set.of_table.get('output')),
      _in_words(of_set.difference),
    )
    for name, of_set in found.items()
  ]
  remarks = [
    f'{name}: {of_set.pairs - of_set.covered} pair(s) are not covered; no known pieces in '
    f'{", ".join(of_set.not_covered[:_SHOWN_WORDS])}{" …" if len(of_set.not_covered) > _SHOWN_WORDS else ""}'
    for name, of_set in found.items()
    if of_set.not_covered
  ]
  if tables.output_VxE is None:
    why = 'its embeddings are tied' if tables.config.tie_word_embeddings else 'the checkpoint lacks it'
    remarks.append(f'there is no output embedding: {why}')
  return Analysed(
    results,
    model_facts(tables.config, tables.path),
    [
      Table(
        "Word similarity: Spearman's ρ × 100 (95 % interval)",
        ('set', 'pairs', 'input', 'output', 'input − output'),
        rows,
      )
    ],
    remarks,
  )


def _in_words(correlation: Correlation | None) -> str:
  if correlation is None or correlation.rho is None:
    return '–'
  between = '' if correlation.low is None else f' ({correlation.low:.1f} to {correlation.high:.1f})'
  return f'{correlation.rho:.1f}{between}'
