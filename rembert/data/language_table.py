"""The table of languages that stands before a run: what there is, and how it is sampled."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rembert.data.config import DataConfig
from rembert.training.console import Console

if TYPE_CHECKING:
  from tasks.corpus.format import LanguageStatistics


def show_languages(
  console: Console,
  statistics: Mapping[str, 'LanguageStatistics'],
  rates: Mapping[str, float],
  *,
  limits_of: DataConfig,
  most: int = 24,
) -> None:
  """Documents, sentences and sampling rates by language, the largest first; the small ones beyond `most` in one row."""
  # Upsampled: how many times as often as the average sentence of the corpus a sentence of the language is drawn.
  total = sum(counts.sentences for counts in statistics.values())
  rows = [
    (
      language,
      f'{counts.documents:,}',
      f'{counts.held_out:,}',
      f'{counts.sentences:,}',
      f'{rates[language]:.2%}' if language in rates else 'no text: left out',
      f'× {rates[language] * total / counts.sentences:.3g}' if language in rates else '',
    )
    for language, counts in sorted(statistics.items(), key=lambda item: -item[1].sentences)
  ]
  if len(rows) > most:
    rest = [statistics[row[0]] for row in rows[most:]]
    share, sentences = sum(rates.get(row[0], 0.0) for row in rows[most:]), sum(counts.sentences for counts in rest)
    rows[most:] = [
      (
        f'{len(rest)} more',
        f'{sum(counts.documents for counts in rest):,}',
        f'{sum(counts.held_out for counts in rest):,}',
        f'{sentences:,}',
        f'{share:.2%}',
        f'× {share * total / sentences:.3g}' if sentences else '',
      )
    ]
  console.table('Languages', ('', 'documents', 'held out', 'sentences', 'sampled', 'upsampled'), rows)
  if limits := _limits_in_words(limits_of):
    console.say(f'no language above {" or ".join(limits)}')
  broken = sum(counts.lost.get('broken pages', 0) for counts in statistics.values())
  if broken:
    console.say(f'{broken} broken page(s) left out')
  left_out = [language for language in statistics if language not in rates]
  if left_out:
    console.say(f'nothing to train on, left out: {", ".join(left_out)}')
  if not any(statistics[language].held_out for language in rates):
    console.say('no document is held out: there will be no evaluation (data.held_out)')


def _limits_in_words(data: DataConfig) -> list[str]:
  share = [] if data.max_share is None else [f'{data.max_share:.4g} of all rows']
  upsampling = [] if data.max_upsampling is None else [f'{data.max_upsampling:.4g} times its share of the sentences']
  return share + upsampling
