"""Translation retrieval with mean hidden states, by layer (paper, sections 6.3 and A.9, Figure 2; Pires et al. 2019).

A sentence vector is the mean of a layer's output over its tokens, without [CLS], [SEP] and padding. The translation
vector is the mean of target − source over all pairs. A query is a source sentence plus that vector, and is correct if
its translation is the nearest of all targets by L2 distance.

`results` of `analysis.json`:

    layers          [0, 1, …, L]; 0 is the projected embeddings, which the paper's figure excludes
    pairs           by name (`de-en`):
      pairs         number of source sentences
      candidates    number of target sentences
      accuracy      by layer, 0 to 100
      chance        chance level, 0 to 100
      cut           sentences of both sides that were truncated to the model's positions
    mean            by layer: the unweighted mean of `accuracy` over the pairs
"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, format_number, model_facts
from rembert.errors import UsageError
from rembert.inference.embed import encode_lines, sentence_vectors
from rembert.inference.model import load
from rembert.tokenizer import TextEncoder
from tasks.tables.files import read_lines
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.retrieval import Tatoeba, chosen_languages

_BLOCK_BYTES = 1 << 26  # of one block of distances; a few of this size are in memory at a time
# Distances come from matmuls first, whose rounding errors are far below this fraction of the squared lengths.
_DOUBT = 1e-10


class AlignedLines(NamedTuple):
  """N sentences, and M of which some are their translations."""

  source: Sequence[str]
  target: Sequence[str]
  gold: np.ndarray | None = None  # [N] int64, index of each translation; None if both are in the same order
  blank: int = 0  # pairs that were skipped because a side has no text


def read_aligned(source: epath.PathLike, target: epath.PathLike, max_pairs: int | None = None) -> AlignedLines:
  """Reads the first `max_pairs` pairs, or all, of two files in UTF-8; skips pairs with a blank side.

  UsageError if a file cannot be read, the files differ in length, or there is no pair.
  """
  sources, targets = (list(read_lines(epath.Path(path))) for path in (source, target))
  if len(sources) != len(targets):
    where = max(sources, targets, key=len)[min(len(sources), len(targets))].where
    raise UsageError(
      f'{len(sources):,} lines and {len(targets):,} translations',
      where=f'{source}, {target}; {where} has no counterpart',
      fix='line i must translate line i; for Tatoeba, --gin.xtreme.data_dir=FOLDER also reads the labels',
    )
  pairs = [(a.text.strip(), b.text.strip()) for a, b in zip(sources, targets, strict=True)]
  kept = [(a, b) for a, b in pairs if a and b]
  if not kept:
    raise UsageError('no pair of sentences found', where=f'{source}, {target}', fix='write one sentence per line')
  texts, translations = zip(*kept[:max_pairs], strict=True)
  return AlignedLines(texts, translations, blank=len(sources) - len(kept))


def nearest(queries_NxH: np.ndarray, targets_MxH: np.ndarray) -> np.ndarray:
  """The target nearest to each query by L2 distance, [N] int64; the lowest index on ties.

  Exact: equal to float64 Σ (q − t)², row by row. A matmul selects the few targets that can be nearest, which are then
  compared by the sum itself. Memory is that of a block of queries times the targets.
  """
  queries = np.ascontiguousarray(queries_NxH, np.float64)
  targets = np.ascontiguousarray(targets_MxH, np.float64)
  # Centred vectors are shorter, so that matmuls have smaller rounding errors.
  centre = targets.mean(0)
  centred, centred_targets = queries - centre, targets - centre
  squares = np.einsum('mh,mh->m', centred_targets, centred_targets)
  doubt = _DOUBT * (np.einsum('nh,nh->n', centred, centred) + squares.max())
  found = np.empty(len(queries), np.int64)
  rows = max(1, _BLOCK_BYTES // (8 * len(targets)))
  for start in range(0, len(queries), rows):
    block = slice(start, start + rows)
    # Without the query's squared length, which is the same for all targets.
    distance = squares - 2 * (centred[block] @ centred_targets.T)
    found[block] = distance.argmin(1)
    can_be = distance <= distance.min(1, keepdims=True) + doubt[block, None]
    for row in np.flatnonzero(can_be.sum(1) > 1):
      candidates = np.flatnonzero(can_be[row])
      found[start + row] = candidates[((queries[start + row] - targets[candidates]) ** 2).sum(-1).argmin()]
  return found


def translation_accuracy(source_NxH: np.ndarray, target_MxH: np.ndarray, gold_N: np.ndarray | None = None) -> float:
  """Percentage of sources whose translation is the nearest of all targets, after the mean shift.

  `gold_N` is the index of each source's translation; None if they are in the same order.
  """
  gold = np.arange(len(source_NxH)) if gold_N is None else gold_N
  sources_NxH = source_NxH.astype(np.float64)
  shift_H = (target_MxH[gold].astype(np.float64) - sources_NxH).mean(0)
  return 100 * float((nearest(sources_NxH + shift_H, target_MxH) == gold).mean())


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Retrieves translations of two files, or of Tatoeba, with every layer; the module docstring has the results."""
  config, source = context.config, context.source()
  analyze = config.analyze
  pairs = _pairs(context)
  model = load(analyze.model, execution=config.execution)
  encoder = TextEncoder(context.vocabulary(source))
  layers = list(range(model.config.num_hidden_layers + 1))
  found: dict[str, dict[str, Any]] = {}
  for name, lines in pairs.items():
    with context.task(f'{name}, {len(lines.source):,} pairs') as progress:
      vectors, truncated = [], 0
      for begun, side in enumerate((lines.source, lines.target)):
        sentences, longer = encode_lines(model, encoder, side)
        within = lambda fraction, note, begun=begun: progress(0.45 * (begun + fraction), note)
        vectors.append(
          sentence_vectors(model, sentences, all_layers=True, batch_size=analyze.batch_size, on_progress=within)
        )
        truncated += longer
      accuracy = []
      for layer in layers:
        progress(0.9 + 0.1 * layer / len(layers), 'comparing')
        accuracy.append(translation_accuracy(vectors[0][layer], vectors[1][layer], lines.gold))
    found[name] = {
      'pairs': len(lines.source),
      'candidates': len(lines.target),
      'accuracy': accuracy,
      'chance': 100 / len(lines.target),
      'cut': truncated,
      'blank': lines.blank,
    }
  mean = [statistics.fmean(of_pair['accuracy'][layer] for of_pair in found.values()) for layer in layers]
  blank, longer = (sum(of_pair[name] for of_pair in found.values()) for name in ('blank', 'cut'))
  remarks = [f'{blank:,} pair(s) with a blank side were skipped'] if blank else []
  remarks += [f'{longer:,} sentence(s) truncated to {model.config.max_position_embeddings} tokens'] if longer else []
  return AnalysisResult(
    {'layers': layers, 'pairs': found, 'mean': mean},
    {**model_facts(source), 'max_pairs': analyze.max_pairs},
    [_table(found, layers, mean)],
    remarks,
  )


def _table(pairs: dict[str, dict[str, Any]], layers: Sequence[int], mean: Sequence[float]) -> Table:
  rows = [
    (name, f'{found["pairs"]:,}', *map(format_number, found['accuracy']), format_number(found['chance'], 2))
    for name, found in pairs.items()
  ]
  if len(pairs) > 1:
    rows.append((f'average ({len(pairs)} pairs)', '', *map(format_number, mean), ''))
  names = (f'layer {layer}' if layer else 'embeddings' for layer in layers)
  return Table('Translation retrieval accuracy by layer (%)', ('pair', 'pairs', *names, 'chance'), rows)


def _pairs(context: AnalysisContext) -> dict[str, AlignedLines]:
  analyze, xtreme = context.config.analyze, context.config.xtreme
  if analyze.source is not None:
    files = map(epath.Path, (analyze.source, analyze.target))
    name = '-'.join(file.suffix.removeprefix('.') or file.name for file in files)
    return {name: read_aligned(analyze.source, analyze.target, analyze.max_pairs)}
  if xtreme.data_dir is None:
    raise UsageError(
      'no parallel text',
      where='analyze.source, analyze.target',
      fix=['--gin.analyze.source=news.en --gin.analyze.target=news.de', '--gin.xtreme.data_dir=FOLDER for Tatoeba'],
    )
  folder, task = XtremeFolder(xtreme.data_dir, xtreme.labels_dir), Tatoeba()
  pairs = {}
  for language in chosen_languages(task, folder, xtreme):
    examples = task.examples(folder, language)
    if examples.gold is None:
      raise UsageError(
        'no gold labels: the translations of the sentences are unknown',
        where=str(folder.labels_file('tatoeba', language, 'tsv')),
        fix='--gin.xtreme.labels_dir=FOLDER, or --gin.xtreme.languages="(…)" with languages that have labels',
      )
    kept = slice(analyze.max_pairs)  # limits the sources; all English sentences are candidates
    pairs[f'{language}-en'] = AlignedLines(examples.source[kept], examples.english, examples.gold[kept])
  return pairs
