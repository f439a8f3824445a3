"""How finely a vocabulary cuts each language, and whether languages that are cut more finely score lower.

Fertility is pieces per word; where a script puts no blanks between words it is pieces per character, on a scale of its
own. The paper has no such table; its models share one vocabulary, so that this is a property of them all.

`results` of `analysis.json`:

    languages       by code:
      script        of most letters, as Unicode names it (LATIN, CYRILLIC, CJK, …)
      pieces_per_word        null where the script has no blanks
      pieces_per_character
      coverage, byte_fallback, unknown     shares, 0 to 1; see `tasks.vocabulary.PieceStatistics`
      score         0 to 100, or null
    scripts         by name: {"languages", "pieces_per_word", "pieces_per_character", "score"}, unweighted means over
                    its languages; null where none has one
    correlation     {"word", "character"}: of fertility and score, {"rho", "low", "high", "languages"}; Spearman's
                    ρ × 100; null without scores
    task            whose score it is, or null
"""

import collections
import json
import statistics
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, format_number
from rembert.analysis.correlation import correlation
from rembert.errors import UsageError
from rembert.tokenizer import load_vocabulary
from tasks.vocabulary import PieceCounter, has_spaces
from tasks.xtreme import leaderboard

_LETTERS = 20_000  # of the text, to see which script it is
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
  languages: Mapping[str, Mapping[str, Any]], unit: str, *, samples: int = 1000, seed: int = 0
) -> dict[str, Any]:
  """Pieces per `word` or `character` against score, over languages that have both: a `correlation` of `results`."""
  points = [(found[f'pieces_per_{unit}'], found['score']) for found in languages.values()]
  points = [point for point in points if None not in point]
  x, y = np.array(points, np.float64).reshape(-1, 2).T
  return {**correlation(x, y, samples=samples, seed=seed), 'languages': len(points)}


def by_script(languages: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float | int | None]]:
  """Unweighted means over the languages of each script, the one with most languages first."""
  groups = collections.defaultdict(list)
  for found in languages.values():
    groups[found['script']].append(found)
  mean = lambda values: statistics.fmean(values) if values else None
  known = lambda group, field: [found[field] for found in group if found[field] is not None]
  return {
    script: {
      'languages': len(group),
      **{field: mean(known(group, field)) for field in ('pieces_per_word', 'pieces_per_character', 'score')},
    }
    for script, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
  }


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Text tokenized by a vocabulary, and the scores of a run on XTREME; see the head of this file."""
  config, analyze = context.config, context.config.analyze
  analyze.require('text')
  vocabulary = config.vocabulary.path or (context.source().vocabulary if analyze.model else None)
  if vocabulary is None:
    raise UsageError(
      'which vocabulary?',
      where='vocabulary.path, analyze.model',
      fix=['--gin.vocabulary.path=sentencepiece.model', '--gin.analyze.model=WORKDIR with a vocabulary'],
    )
  task, scores = _scores(context)
  processor = load_vocabulary(vocabulary)
  languages: dict[str, dict[str, Any]] = {}
  for language, texts in context.texts('cutting text'):
    if not texts:
      continue
    counter = PieceCounter(processor)
    counter.add_texts(texts)
    counts = counter.statistics(has_spaces=has_spaces(language))
    languages[language] = {
      'script': script_of(' '.join(texts)[:_LETTERS]),
      'pieces_per_word': counts.pieces_per_word,
      'pieces_per_character': counts.pieces_per_character,
      'score': scores.get(language),
      'coverage': counts.coverage,
      'byte_fallback': counts.byte_fallback,
      'unknown': counts.unknown,
    }
  if not languages:
    raise UsageError('there is no text', where=str(analyze.text), fix='a folder of LL.txt with text in them')
  correlations = {}
  if scores:
    for unit in ('word', 'character'):
      correlations[unit] = correlate(languages, unit, samples=analyze.samples, seed=analyze.seed)
  remarks = []
  for unit, found in correlations.items():
    if found['rho'] is not None:
      between = f'{found["low"]:.0f} to {found["high"]:.0f}' if found['low'] is not None else '?'
      rho = f"Spearman's ρ {found['rho']:.0f} ({between}) over {found['languages']} languages"
      remarks.append(f'pieces per {unit} against {task}: {rho}')
  if lacking := sorted(set(scores) - set(languages)):
    remarks.append(f'scores without text: {", ".join(lacking)}')
  rows = [
    (
      language,
      found['script'].lower(),
      format_number(found['pieces_per_word'], 2),
      format_number(found['pieces_per_character'], 3),
      f'{found["byte_fallback"]:.2%}',
      format_number(found['score']),
    )
    for language, found in sorted(languages.items(), key=lambda item: item[1]['pieces_per_character'])
  ]
  return AnalysisResult(
    {
      'languages': languages,
      'scripts': by_script(languages),
      'correlation': correlations or None,
      'task': task,
    },
    {'vocabulary': str(vocabulary), 'pieces': processor.get_piece_size(), 'text': str(analyze.text)},
    [Table('Pieces', ('language', 'script', '/word', '/character', 'bytes', task or 'score'), rows)],
    remarks,
  )


def _scores(context: AnalysisContext) -> tuple[str | None, Mapping[str, float]]:
  """The task, and its score by language."""
  path, task = context.config.analyze.results, context.config.analyze.task
  if path is None:
    return None, {}
  folder = epath.Path(path)
  folder = folder.parent if folder.suffix == '.json' else folder
  if (folder / 'analysis.json').is_file():
    return _scores_of_analysis(folder / 'analysis.json')
  file = folder / 'results.json'
  if not file.is_file():
    raise UsageError('there are no results', where=str(file), fix='the workdir of a fine-tuning')
  try:
    by_task = leaderboard.read_scores(folder)
  except (ValueError, KeyError, TypeError) as error:
    what = f'the results cannot be read: {error}'
    raise UsageError(what, where=str(file), fix='the workdir of a fine-tuning') from error
  if task is None and len(by_task) == 1:
    [task] = by_task
  if task not in by_task:
    raise UsageError(
      'scores of which task?' if task is None else f'there are no scores of {task}',
      where=f'analyze.task, {file}',
      fix=f'one of {", ".join(by_task)}' if by_task else 'a run with gold labels',
    )
  return task, {language: leaderboard.value(task, scores) for language, scores in by_task[task].items()}


def _scores_of_analysis(path: epath.Path) -> tuple[str, dict[str, float]]:
  """Scores by language of edge probing, or of masked accuracy."""
  content = json.loads(path.read_text())
  what, results = content['analysis'], content['results']
  if what == 'edge_probing':
    tests = results['encoders']['model']['tests']
    return f'probe of {results["task"]}', {name: found['micro_f1'] for name, found in tests.items()}
  if what == 'masked_accuracy':
    return 'masked pieces', {name: found['accuracy'] for name, found in results['languages'].items()}
  raise UsageError(f'{what} has no score by language', where=str(path), fix='masked_accuracy, edge_probing, or XTREME')
