"""Word similarity of the input and the output embedding (paper, section 6.1, Table 8).

A word vector is the mean of the embeddings of the tokens of the word alone. The similarity of two words is the dot
product of their vectors; the score is Spearman's ρ × 100 between similarities and human judgements.

`results` of `analysis.json`:

    tables          {"input": width, "output": width or null}; null: the model has no output embedding
    sets            by name of the file:
      pairs         number of pairs in the file
      covered       pairs whose words consist of known tokens; the others do not count
      not_covered   some of the words that do not
      input         {"rho", "low", "high"}: × 100, with a 95 % interval (bootstrap over the pairs)
      output        the same, or null
      difference    input − output, the same, on the same samples; or null
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from scipy import stats

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, model_facts
from rembert.convert.tensor_names import Source
from rembert.errors import UsageError
from rembert.tokenizer import SpecialIds, load_vocabulary
from tasks.tables.files import read_lines

_WORD_PAIR = re.compile(r'(\S+)\s+(\S+)\s+(-?\d*\.?\d+)')
_FORM = 'two words and a score per line, separated by tabs or spaces'
_SHOWN_WORDS = 20
_SAMPLES_AT_ONCE = 1 << 22  # resampled numbers that are in memory at a time


class WordPair(NamedTuple):
  """Two words, and the human similarity judgement."""

  first: str
  second: str
  score: float


def read_word_pairs(path: epath.PathLike) -> list[WordPair]:
  """Reads the pairs of a file in UTF-8: `tiger cat 7.35`, separated by tabs or spaces. Skips lines that begin with #.

  UsageError if the file does not exist or has no pairs, or a line is not two words and a score.
  """
  pairs = []
  for line, where in read_lines(epath.Path(path)):
    text = line.strip()
    if not text or text.startswith('#'):
      continue
    if (match := _WORD_PAIR.fullmatch(text)) is None:
      raise UsageError(f'{text!r} is not two words and a score', where=where, fix=_FORM)
    first, second, score = match.groups()
    pairs.append(WordPair(first, second, float(score)))
  if not pairs:
    raise UsageError('the file has no word pairs', where=str(path), fix=_FORM)
  return pairs


def read_embeddings(source: Source) -> dict[str, np.ndarray | None]:
  """The `input` and the `output` embedding of a model, float32 [V, width], without padding rows; reads nothing else.

  `output` is None if the model has none of its own: models for fine-tuning lack it, and tied models have one for both.
  UsageError if there is no input embedding.
  """
  slots = {slot.leaf: slot for slot in source.slots(source.config, 'mlm', has_pooler=False)}

  def read(leaf: str) -> np.ndarray | None:
    tensor = source.tensors.get(slots[leaf].name(source.form))
    return None if tensor is None else tensor.read()

  word = read('encoder/embeddings/word/embedding')
  if word is None:
    raise UsageError('the model has no word embedding', where=source.path, fix='name another checkpoint')
  return {'input': word, 'output': None if source.config.tie_word_embeddings else read('mlm/output_embedding')}


def spearman(x_N: np.ndarray, y_N: np.ndarray) -> float | None:
  """Spearman's ρ × 100; ties have the mean of their ranks. None if a side is constant, or has fewer than two values."""
  if len(x_N) < 2 or np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
    return None
  return 100 * float(stats.spearmanr(x_N, y_N).statistic)


def resampled(count: int, samples: int, seed: int) -> np.ndarray:
  """Indices of bootstrap samples, [samples, count], sampled with replacement."""
  return np.random.default_rng(seed).integers(count, size=(samples, count))


def bootstrap_spearman(x_N: np.ndarray, y_N: np.ndarray, indices_SxN: np.ndarray) -> np.ndarray:
  """Spearman's ρ × 100 of each sample, [S]; NaN if a side is constant in it."""
  found = []
  rows = max(1, _SAMPLES_AT_ONCE // max(1, len(x_N)))
  for start in range(0, len(indices_SxN), rows):
    chosen = indices_SxN[start : start + rows]
    ranks = [stats.rankdata(np.asarray(side)[chosen], axis=1) for side in (x_N, y_N)]
    x, y = (side - side.mean(1, keepdims=True) for side in ranks)
    with np.errstate(invalid='ignore', divide='ignore'):
      found.append((x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))
  return 100 * np.concatenate(found) if found else np.empty(0)


def interval(values_S: np.ndarray, confidence: float = 0.95) -> tuple[float | None, float | None]:
  """Interval that holds the middle `confidence` of values, ignoring NaN; None, None without values."""
  finite = np.asarray(values_S)[np.isfinite(values_S)]
  if not len(finite):
    return None, None
  low, high = np.percentile(finite, [50 * (1 - confidence), 50 * (1 + confidence)])
  return float(low), float(high)


def _with_interval(rho: float | None, rho_S: np.ndarray) -> dict[str, float | None]:
  """A correlation of `results`, from that of all points and those of the samples."""
  low, high = (None, None) if rho is None else interval(rho_S)
  return {'rho': rho, 'low': low, 'high': high}


def dot_products(table_VxW: np.ndarray, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
  """Dot products of the words of each pair, float64 [pairs]. A word vector is the mean of its tokens' embeddings."""
  mean = lambda tokens: np.asarray(table_VxW[list(tokens)], np.float64).mean(0)
  first, second = (np.stack([mean(tokens) for tokens in words]) for words in zip(*pairs, strict=True))
  return np.einsum('pw,pw->p', first, second)


def word_similarity(
  tables: Mapping[str, np.ndarray | None],
  pairs: Sequence[WordPair],
  tokens_of: Callable[[str], Sequence[int]],
  *,
  unknown: int,
  samples: int = 1000,
  seed: int = 0,
) -> dict[str, Any]:
  """Rank correlation of embeddings [V, W] with human similarity judgements: a set of `results`.

  Correlations have the names of the tables; a table of None gives None, and so does `difference` unless there are two
  tables. A word without tokens, or with the `unknown` one, is not covered.
  """
  cut = {word: tuple(tokens_of(word)) for pair in pairs for word in (pair.first, pair.second)}
  is_known = {word: bool(tokens) and unknown not in tokens for word, tokens in cut.items()}
  covered = [pair for pair in pairs if is_known[pair.first] and is_known[pair.second]]
  given = {name: table for name, table in tables.items() if table is not None}
  rho: dict[str, float | None] = dict.fromkeys(given)
  resampled_rho = dict.fromkeys(given, np.empty(0))
  if covered:
    scores = np.array([pair.score for pair in covered])
    indices = resampled(len(covered), samples, seed)  # the same for all tables, so that differences are paired
    for name, table in given.items():
      similarity = dot_products(table, [(cut[pair.first], cut[pair.second]) for pair in covered])
      rho[name], resampled_rho[name] = spearman(similarity, scores), bootstrap_spearman(similarity, scores, indices)
  difference = None
  if len(given) == 2:
    (first, second), (first_S, second_S) = rho.values(), resampled_rho.values()
    between = None if first is None or second is None else first - second
    difference = _with_interval(between, first_S - second_S)
  return {
    'pairs': len(pairs),
    'covered': len(covered),
    'not_covered': [word for word, known in is_known.items() if not known],
    **dict.fromkeys(tables),
    **{name: _with_interval(rho[name], resampled_rho[name]) for name in given},
    'difference': difference,
  }


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Compares both embeddings of a model with files of word pairs; the module docstring has the results."""
  analyze = context.config.analyze
  analyze.require('words')
  source = context.source()
  files = {epath.Path(path).name.rsplit('.', 1)[0]: read_word_pairs(path) for path in analyze.words}
  with context.task('loading embeddings'):
    tables = read_embeddings(source)
  encode, unknown = load_vocabulary(context.vocabulary(source)).encode, SpecialIds().unknown
  sets: dict[str, dict[str, Any]] = {}
  with context.task('comparing words') as progress:
    for name, pairs in files.items():
      progress(len(sets) / len(files), name)
      sets[name] = word_similarity(tables, pairs, encode, unknown=unknown, samples=analyze.samples, seed=analyze.seed)
  rows, remarks = [], []
  for name, found in sets.items():
    correlations = (found[which] for which in ('input', 'output', 'difference'))
    rows.append((name, f'{found["covered"]:,} of {found["pairs"]:,}', *map(_format_correlation, correlations)))
    words, found['not_covered'] = found['not_covered'], found['not_covered'][:_SHOWN_WORDS]
    if words:
      remarks.append(
        f'{name}: {found["pairs"] - found["covered"]} pair(s) are not covered; words with unknown tokens: '
        f'{", ".join(found["not_covered"])}{" …" if len(words) > _SHOWN_WORDS else ""}'
      )
  if tables['output'] is None:
    why = 'its embeddings are tied' if source.config.tie_word_embeddings else 'the checkpoint lacks it'
    remarks.append(f'the model has no output embedding: {why}')
  widths = {which: None if table is None else table.shape[1] for which, table in tables.items()}
  title = "Word similarity: Spearman's ρ × 100 (95 % interval)"
  table = Table(title, ('set', 'pairs', 'input', 'output', 'input − output'), rows)
  return AnalysisResult({'tables': widths, 'sets': sets}, model_facts(source), [table], remarks)


def _format_correlation(correlation: Mapping[str, float | None] | None) -> str:
  if correlation is None or correlation['rho'] is None:
    return '–'
  between = '' if correlation['low'] is None else f' ({correlation["low"]:.1f} to {correlation["high"]:.1f})'
  return f'{correlation["rho"]:.1f}{between}'
