"""How finely a vocabulary cuts each language, and whether languages that are cut more finely score lower.

Fertility is pieces per word; where a script puts no blanks between words it is pieces per character, on a scale of its
own. The paper has no such table; its models share one vocabulary, so that this is a property of them all.

`results` of `analysis.json`:

    languages       by code:
      script        of most letters, as Unicode names it (LATIN, CYRILLIC, CJK, …)
      pieces_per_word        null where the script has no blanks
      pieces_per_character
      coverage, byte_fallback, unknown     shares, 0 to 1; see `tasks.vocabulary_report.PieceStatistics`
      score         0 to 100, or null
    scripts         by name: {"languages", "pieces_per_word", "pieces_per_character", "score"}, unweighted means over
                    its languages; null where none has one
    correlation     {"word", "character"}: of fertility and score, {"rho", "low", "high", "languages"}; Spearman's
                    ρ × 100; null without scores
    task            whose score it is, or null
"""

import collections
import dataclasses
import statistics
import unicodedata
from collections.abc import Mapping

import numpy as np

from rembert.analysis.correlation import Correlation, correlation


@dataclasses.dataclass(frozen=True)
class Fertility:
  """Pieces of a language, and its score; see the head of this file."""

  script: str
  pieces_per_word: float | None
  pieces_per_character: float
  score: float | None = None


@dataclasses.dataclass(frozen=True)
class FertilityCorrelation:
  """Spearman's ρ × 100 of fertility and score, and over how many languages."""

  correlation: Correlation
  languages: int


# Unicode's names say in their first word what script a letter is of; these are written together in one language.
_TOGETHER = {'HIRAGANA': 'KANA+CJK', 'KATAKANA': 'KANA+CJK', 'CJK': 'CJK', 'HANGUL': 'HANGUL'}


def script_of(text: str) -> str:
  """The script of most letters of a text, by Unicode's names; '' where there are none. Japanese is `KANA+CJK`."""
  counts = collections.Counter()
  for letter, count in collections.Counter(filter(str.isalpha, text)).items():
    name = unicodedata.name(letter, '').split(' ')[0].split('-')[0]
    counts[_TOGETHER.get(name, name)] += count
  # Some kana in a hundred letters and the text is Japanese, whatever share of it is Chinese characters.
  if counts['KANA+CJK'] > 0.05 * counts.total():
    return 'KANA+CJK'
  counts.pop('KANA+CJK', None)
  return counts.most_common(1)[0][0] if counts else ''


def correlate(
  by_language: Mapping[str, Fertility], of: str, *, samples: int = 1000, seed: int = 0
) -> FertilityCorrelation:
  """Fertility against score, over languages that have both.

  Args:
    by_language: with scores.
    of: `word` or `character`.
    samples: of the bootstrap over languages.
    seed: of the bootstrap.
  """
  field = f'pieces_per_{of}'
  points = [(getattr(found, field), found.score) for found in by_language.values()]
  points = [point for point in points if None not in point]
  x, y = np.array(points, np.float64).reshape(-1, 2).T
  return FertilityCorrelation(correlation(x, y, samples=samples, seed=seed), len(points))


def by_script(by_language: Mapping[str, Fertility]) -> dict[str, dict[str, float | int | None]]:
  """Unweighted means over the languages of each script, the one with most languages first."""
  groups = collections.defaultdict(list)
  for found in by_language.values():
    groups[found.script].append(found)
  mean = lambda values: statistics.fmean(values) if values else None
  known = lambda group, field: [value for found in group if (value := getattr(found, field)) is not None]
  return {
    script: {
      'languages': len(group),
      **{field: mean(known(group, field)) for field in ('pieces_per_word', 'pieces_per_character', 'score')},
    }
    for script, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
  }
