"""`fertility`: text files cut by a vocabulary, beside the scores of a run on XTREME."""

import dataclasses
import json

from etils import epath

from rembert.analysis.fertility import Fertility, by_script, correlate, script_of
from rembert.errors import UsageError
from rembert.jobs.analyses.desk import Analysed, Desk, Table, number
from rembert.jobs.xtreme_results import read_scores, value
from tasks.corpus.build import corpus_or_text
from tasks.vocabulary import load_vocabulary
from tasks.vocabulary_report import PieceCounter, has_spaces

_LETTERS = 20_000  # of the text, to see which script it is


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.fertility`."""
  config, analyze = desk.config, desk.config.analyze
  analyze.require('text')
  vocabulary = config.vocabulary.path or (desk.source().vocabulary if analyze.model else None)
  if vocabulary is None:
    raise UsageError(
      'which vocabulary?',
      where='vocabulary.path, analyze.model',
      fix=['--gin.vocabulary.path=sentencepiece.model', '--gin.analyze.model=WORKDIR with a vocabulary'],
    )
  task, scores = _scores(analyze.results, analyze.task)
  processor = load_vocabulary(vocabulary)
  found, more = {}, {}
  with (
    corpus_or_text(analyze.text, config.data.languages, desk.console) as corpus,
    desk.task('cutting text') as progress,
  ):
    for done, language in enumerate(corpus.languages):
      progress(done / len(corpus.languages), language)
      texts = list(corpus.sample(language, 'train', analyze.characters))
      if not texts:
        continue
      counter = PieceCounter(processor)
      counter.add_texts(texts)
      counts = counter.statistics(has_spaces=has_spaces(language))
      script = script_of(' '.join(texts)[:_LETTERS])
      found[language] = Fertility(script, counts.pieces_per_word, counts.pieces_per_character, scores.get(language))
      more[language] = {name: getattr(counts, name) for name in ('coverage', 'byte_fallback', 'unknown')}
  if not found:
    raise UsageError('there is no text', where=str(analyze.text), fix='a folder of LL.txt with text in them')
  correlation = None
  if scores:
    correlation = {of: correlate(found, of, samples=analyze.samples, seed=analyze.seed) for of in ('word', 'character')}
  results = {
    'languages': {name: dataclasses.asdict(of) | more[name] for name, of in found.items()},
    'scripts': by_script(found),
    'correlation': None
    if correlation is None
    else {of: dataclasses.asdict(row.correlation) | {'languages': row.languages} for of, row in correlation.items()},
    'task': task,
  }
  rows = [
    (
      language,
      of.script.lower(),
      number(of.pieces_per_word, 2),
      number(of.pieces_per_character, 3),
      f'{more[language]["byte_fallback"]:.2%}',
      number(of.score),
    )
    for language, of in sorted(found.items(), key=lambda item: item[1].pieces_per_character)
  ]
  remarks = []
  for of, row in (correlation or {}).items():
    if row.correlation.rho is not None:
      between = f'{row.correlation.low:.0f} to {row.correlation.high:.0f}' if row.correlation.low is not None else '?'
      rho = f"Spearman's ρ {row.correlation.rho:.0f} ({between}) over {row.languages} languages"
      remarks.append(f'pieces per {of} against {task}: {rho}')
  if lacking := sorted(set(scores) - set(found)):
    remarks.append(f'scores without text: {", ".join(lacking)}')
  columns = ('language', 'script', '/word', '/character', 'bytes', task or 'score')
  facts = {'vocabulary': str(vocabulary), 'pieces': processor.get_piece_size(), 'text': str(analyze.text)}
  return Analysed(results, facts, [Table('Pieces', columns, rows)], remarks)


def _scores(path: str | None, task: str | None) -> tuple[str | None, dict[str, float]]:
  """The task, and its score by language."""
  if path is None:
    return None, {}
  folder = epath.Path(path)
  folder = folder.parent if folder.suffix == '.json' else folder
  if (folder / 'analysis.json').is_file():
    return _of_analysis(folder / 'analysis.json')
  if not (folder / 'results.json').is_file():
    raise UsageError('there are no results', where=str(folder / 'results.json'), fix='the workdir of a fine-tuning')
  try:
    by_task = read_scores(folder)
  except (ValueError, KeyError, TypeError) as error:
    raise UsageError(
      f'the results cannot be read: {error}', where=str(folder / 'results.json'), fix='the workdir of a fine-tuning'
    ) from error
  if task is None and len(by_task) == 1:
    [task] = by_task
  if task not in by_task:
    raise UsageError(
      'scores of which task?' if task is None else f'there are no scores of {task}',
      where=f'analyze.task, {folder / "results.json"}',
      fix=f'one of {", ".join(by_task)}' if by_task else 'a run with gold labels',
    )
  return task, {language: value(task, scores) for language, scores in by_task[task].items()}


def _of_analysis(path: epath.Path) -> tuple[str, dict[str, float]]:
  """Scores by language of another analysis: of a probe, or of masked pieces."""
  content = json.loads(path.read_text())
  what, results = content['analysis'], content['results']
  if what == 'edge_probing':
    tests = results['encoders']['model']['tests']
    return f'probe of {results["task"]}', {name: found['micro_f1'] for name, found in tests.items()}
  if what == 'masked_accuracy':
    return 'masked pieces', {name: found['accuracy'] for name, found in results['languages'].items()}
  raise UsageError(f'{what} has no score by language', where=str(path), fix='masked_accuracy, edge_probing, or XTREME')
