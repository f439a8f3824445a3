"""Word similarity of the input and the output embedding (paper, section 6.1, Table 8).

A word is the mean of the rows of its pieces, as the vocabulary cuts the word standing alone. The similarity of two
words is their dot product; the score of a table is Spearman's ρ × 100 between that and what people judged.

`results` of `analysis.json`:

    tables          {"input": width, "output": width or null}; null: the model has no output embedding
    sets            by name of the file:
      pairs         of words in the file
      covered       of which every word is cut into known pieces; the others do not count
      not_covered   some of the words that are not
      input         {"rho", "low", "high"}: × 100, with a 95 % interval (bootstrap over the pairs)
      output        the same, or null
      difference    input less output, the same, of the same samples; or null
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rembert.analysis.correlation import Correlation, bootstrap_spearman, interval, resampled, spearman
from rembert.analysis.word_pairs import WordPair


@dataclasses.dataclass(frozen=True)
class WordSimilarity:
  """What a set of word pairs says of some tables.

  Attributes:
    pairs: in the set.
    covered: that count.
    not_covered: words without known pieces, each once.
    of_table: by the table's name.
    difference: first table less second; None unless there are two.
  """

  pairs: int
  covered: int
  not_covered: tuple[str, ...]
  of_table: Mapping[str, Correlation]
  difference: Correlation | None


def word_vectors(table_VxW: np.ndarray, pieces_of_words: Sequence[Sequence[int]]) -> np.ndarray:
  """The mean of each word's rows of a table, float64 [words, W]; every word has a piece."""
  return np.stack([np.asarray(table_VxW[list(pieces)], np.float64).mean(0) for pieces in pieces_of_words])


def dot_products(table_VxW: np.ndarray, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
  """The dot product of the two words of each pair, float64 [pairs]."""
  first, second = (word_vectors(table_VxW, words) for words in zip(*pairs, strict=True))
  return np.einsum('pw,pw->p', first, second)


def word_similarity(
  tables: Mapping[str, np.ndarray],
  pairs: Sequence[WordPair],
  pieces_of: Callable[[str], Sequence[int]],
  *,
  unknown: int,
  samples: int = 1000,
  seed: int = 0,
) -> WordSimilarity:
  """How tables of embeddings rank pairs of words, against how people do.

  Args:
    tables: by name, [V, W] each.
    pairs: with the judgements.
    pieces_of: word to ids of pieces.
    unknown: id of the unknown piece: a word that has it, or no piece, is not covered.
    samples: of the bootstrap.
    seed: of the bootstrap.
  """
  cut = {word: tuple(pieces_of(word)) for pair in pairs for word in (pair.first, pair.second)}
  is_known = {word: bool(pieces) and unknown not in pieces for word, pieces in cut.items()}
  covered = [pair for pair in pairs if is_known[pair.first] and is_known[pair.second]]
  of_table, resampled_rho = {}, {}
  if covered:
    scores = np.array([pair.score for pair in covered])
    indices = resampled(len(covered), samples, seed)  # the same for all tables: differences are of one sample
    for name, table in tables.items():
      similarity = dot_products(table, [(cut[pair.first], cut[pair.second]) for pair in covered])
      resampled_rho[name] = bootstrap_spearman(similarity, scores, indices)
      of_table[name] = Correlation(spearman(similarity, scores), *interval(resampled_rho[name]))
  else:
    of_table = dict.fromkeys(tables, Correlation(None))
  difference = None
  if len(tables) == 2:
    (one, other), (rho_one, rho_other) = tables, [found.rho for found in of_table.values()]
    difference = Correlation(None)
    if rho_one is not None and rho_other is not None:
      difference = Correlation(rho_one - rho_other, *interval(resampled_rho[one] - resampled_rho[other]))
  return WordSimilarity(
    pairs=len(pairs),
    covered=len(covered),
    not_covered=tuple(word for word, known in is_known.items() if not known),
    of_table=of_table,
    difference=difference,
  )
