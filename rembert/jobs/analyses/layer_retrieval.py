"""`layer_retrieval`: sentences of two files, or of Tatoeba, as vectors of every layer."""

import statistics
from typing import Any

from etils import epath

from rembert.analysis.aligned_lines import AlignedLines, read_aligned
from rembert.analysis.layer_retrieval import accuracy_by_layer
from rembert.analysis.layer_vectors import layer_means
from rembert.errors import UsageError
from rembert.inference.model import load
from rembert.jobs.analyses.desk import Analysed, Desk, Table, model_facts, number
from rembert.jobs.predict import text_encoder
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.retrieval import chosen_languages
from tasks.xtreme.tatoeba import Tatoeba


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.layer_retrieval`."""
  config, source = desk.config, desk.source()
  analyze = config.analyze
  pairs = _pairs(desk)
  model = load(analyze.model, execution=config.execution)
  encoder = text_encoder(model, config.vocabulary.path)
  layers = list(range(model.config.num_hidden_layers + 1))
  found: dict[str, dict[str, Any]] = {}
  for name, lines in pairs.items():
    with desk.task(f'{name}, {len(lines.source):,} pairs') as progress:
      sides, cut = [], 0
      for share, side in enumerate((lines.source, lines.target)):
        within = lambda fraction, note, share=share: progress(0.45 * (share + fraction), note)
        vectors, was_cut = layer_means(model, encoder, side, batch_size=analyze.batch_size, on_progress=within)
        sides.append(vectors)
        cut += was_cut
      source_vectors, target_vectors = sides
      searching = lambda fraction: progress(0.9 + 0.1 * fraction, 'comparing')
      accuracy = accuracy_by_layer(
        source_vectors, target_vectors, lines.gold, with_reverse=analyze.reverse, on_progress=searching
      )
    found[name] = {
      'pairs': len(lines.source),
      'candidates': len(lines.target),
      'accuracy': list(accuracy.forward),
      'reverse': accuracy.reverse and list(accuracy.reverse),
      'chance': 100 / len(lines.target),
      'cut': cut,
      'blank': lines.blank,
    }
  mean = [statistics.fmean(of_pair['accuracy'][layer] for of_pair in found.values()) for layer in layers]
  columns = ('pair', 'pairs', *(f'layer {layer}' if layer else 'embeddings' for layer in layers), 'chance')
  rows = []
  for name, of_pair in found.items():
    in_row = lambda values: [number(value) for value in values]
    rows.append((name, f'{of_pair["pairs"]:,}', *in_row(of_pair['accuracy']), number(of_pair['chance'], 2)))
    if of_pair['reverse']:
      rows.append((f'{name} reversed', '', *in_row(of_pair['reverse']), ''))
  if len(found) > 1:
    rows.append((f'mean of {len(found)}', '', *(number(value) for value in mean), ''))
  blank, cut = (sum(of_pair[name] for of_pair in found.values()) for name in ('blank', 'cut'))
  remarks = [f'{blank:,} pair(s) with a blank side left out'] if blank else []
  remarks += [f'{cut:,} sentence(s) cut at {model.config.max_position_embeddings} pieces'] if cut else []
  return Analysed(
    {'layers': layers, 'pairs': found, 'mean': mean},
    {**model_facts(model.config, source.path), 'max_pairs': analyze.max_pairs},
    [Table('Translations found by layer (%)', columns, rows)],
    remarks,
  )


def _pairs(desk: Desk) -> dict[str, AlignedLines]:
  analyze, xtreme = desk.config.analyze, desk.config.xtreme
  if analyze.source is not None:
    suffixes = [
      epath.Path(path).suffix.removeprefix('.') or epath.Path(path).name for path in (analyze.source, analyze.target)
    ]
    lines = read_aligned(analyze.source, analyze.target, analyze.max_pairs)
    return {analyze.pair or '-'.join(suffixes): lines}
  if xtreme.data_dir is None:
    raise UsageError(
      'translations of what?',
      where='analyze.source, analyze.target',
      fix=['--gin.analyze.source=news.en --gin.analyze.target=news.de', '--gin.xtreme.data_dir=FOLDER for Tatoeba'],
    )
  folder, task = XtremeFolder(xtreme.data_dir, xtreme.labels_dir), Tatoeba()
  return {f'{name}-en': _tatoeba(task, folder, name, analyze) for name in chosen_languages(task, folder, xtreme)}


def _tatoeba(task: Tatoeba, folder: XtremeFolder, language: str, analyze) -> AlignedLines:
  examples = task.examples(folder, language)
  if examples.gold is None:
    raise UsageError(
      'there are no gold labels: which sentence translates which?',
      where=str(folder.labels_file('tatoeba', language, 'tsv')),
      fix='--gin.xtreme.labels_dir=FOLDER, or --gin.xtreme.languages="(…)" with those that have some',
    )
  kept = slice(analyze.max_pairs)  # sources ask; all English sentences are candidates
  return AlignedLines(examples.source[kept], examples.english, examples.gold[kept])
