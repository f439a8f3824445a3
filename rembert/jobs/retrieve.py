"""Tatoeba or BUCC 2018 with a trained encoder: embed sentences, find translations, write predictions and scores.

Nothing is learned. A sentence's embedding is the mean over its pieces of one layer's output, without [CLS] and [SEP]
(paper, A.9, and `rembert.model.heads.sentence_embeddings`). XTREME's scripts depart from that: they leave the special
pieces in the mean for Tatoeba, and take [CLS] alone for BUCC; and they count layers from 0 without the embeddings, so
that their 7 is the eighth. Neither changes what is compared with what; `xtreme.layer` chooses another layer.

A language that is done is not done again: beside its predictions stands what they were made of.
"""

import dataclasses
import hashlib
import itertools
import json
from typing import Any

from etils import epath
from flax import nnx

from rembert.checkpoint.integrity import json_checksum, tree_checksums
from rembert.data.sentence_batches import BATCH_SIZE
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.inference.embed import embed_lines
from rembert.inference.model import LoadedModel
from rembert.runtime.signals import Stopped, StopSignal
from rembert.tokenizer import TextEncoder
from rembert.tracking.console import Console, Progress
from tasks.xtreme.config import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.retrieval import Bucc2018, RetrievalTask, Tatoeba, chosen_languages

TASKS: dict[str, RetrievalTask] = {task.name: task for task in (Tatoeba(), Bucc2018())}

_PIECES_OF_SENTENCE = 24  # about, for shares of the work
_LAYER_OF_XTREME = {12: 7, 24: 13}


def layer_of(config: XtremeConfig, num_layers: int) -> int:
  """The layer whose mean is an embedding: `xtreme.layer`, or else XTREME's 7 of 12 and 13 of 24, in like proportion.

  0 is the embeddings, `num_layers` the last layer. UsageError if the model has no such layer.
  """
  if config.layer is None:
    return _LAYER_OF_XTREME.get(num_layers, max(1, round(num_layers * 7 / 12)))
  if not 0 <= config.layer <= num_layers:
    raise UsageError(
      f'the model has no layer {config.layer}',
      where=f'xtreme.layer = {config.layer}',
      fix=f'0 (embeddings) to {num_layers} (last)',
    )
  return config.layer


def run(
  model: LoadedModel,
  encoder: TextEncoder,
  folder: XtremeFolder,
  config: XtremeConfig,
  workdir: epath.PathLike,
  console: Console,
  stop: StopSignal,
  *,
  batch_size: int = BATCH_SIZE,
) -> dict[str, Any]:
  """Evaluates a model on the retrieval task `config.task`.

  Args:
    model: its encoder is evaluated.
    encoder: vocabulary of the model.
    folder: the data.
    config: `task`, `languages` and `layer` count.
    workdir: gets `predictions/TASK/test-LL.tsv`, `retrieval/TASK/LL.json`, and `results.json`.
    console: prints each language's score.
    stop: asked between batches.
    batch_size: rows of 64 pieces at a time.

  Returns:
    What `results.json` holds: `task`, `split`, `layer`, `score` (the name of the task's own), `languages` (for each its
    scores by name, `chance`, and what else is known), `mean` and `chance` over the languages with labels (`mean_over`
    them; None where there is none), and `missing`, XTREME's languages that are not in the mean, with the reason.

  Raises:
    UsageError: data that is missing or broken, a layer that the model has not.
    RunError: the workdir cannot be written to.
    Stopped: the run was asked to stop; what is done is kept.
  """
  task = TASKS[config.task]
  workdir = epath.Path(workdir)
  layer = layer_of(config, model.config.num_hidden_layers)
  languages = chosen_languages(task, folder, config)
  made_of = {
    'model': json_checksum(tree_checksums(nnx.state(model.encoder, nnx.Param))),
    'architecture': json_checksum(dataclasses.asdict(model.config)),
    'vocabulary': _digest_of_pieces(encoder),
    'layer': layer,
  }
  sizes = [sum(folder.file(file).stat().length for file in task.files(name)) for name in languages]
  records: dict[str, dict] = {}
  with console.task(f'{task.name}, layer {layer}') as progress:
    for language, size, end in zip(languages, sizes, itertools.accumulate(sizes), strict=True):
      examples = task.examples(folder, language)
      place = _Place(workdir, task.name, language)
      made_of['data'] = task.digest(examples)
      record, note = place.read(made_of), ' (as before)'
      if record is None:
        of_run = _part(progress, (end - size) / sum(sizes), size / sum(sizes), f'{language} · ', stop)
        record, note = _evaluate(task, examples, model, encoder, layer, batch_size, of_run), ''
        place.write(made_of, record)
      records[language] = record
      console.say(f'{task.name} {language} · {_format_scores(task, record)}{note} · {len(records)} of {len(languages)}')
  results = _results(task, config, layer, records)
  with write_errors('the results', workdir / 'results.json'):
    write_whole(workdir / 'results.json', json.dumps(results, indent=2, ensure_ascii=False) + '\n')
  _show(console, task, results)
  return results


def _part(progress: Progress, start: float, share: float, prefix: str, stop: StopSignal) -> Progress:
  """Progress of a part that begins at `start` and is a `share` of the whole; raises Stopped when that is asked for."""

  def on_progress(fraction: float, note: str = '') -> None:
    if stop.requested:
      raise Stopped(stop.requested)
    progress(start + share * fraction, prefix + note)

  return on_progress


# --- one language -----------------------------------------------------------------------------------------------------


def _evaluate(
  task: RetrievalTask,
  examples: Any,
  model: LoadedModel,
  encoder: TextEncoder,
  layer: int,
  batch_size: int,
  on_progress: Progress,
) -> dict[str, Any]:
  """Embeds, finds, scores; what `_Place` keeps."""
  texts = task.texts(examples)
  lines = sum(len(part) for part in texts.values())
  embedding = _share_of_embedding(model, layer, [len(part) for part in texts.values()])
  embeddings, before = {}, 0
  for name, part in texts.items():

    def on_sentences(fraction: float, note: str, before: int = before, count: int = len(part)) -> None:
      done = before + round(fraction * count)
      on_progress(embedding * done / lines, f'{done:,} of {lines:,} sentences')

    embeddings[name] = embed_lines(model, encoder, part, layer=layer, batch_size=batch_size, on_progress=on_sentences)
    before += len(part)
  found = task.find(
    examples, embeddings, lambda fraction: on_progress(embedding + (1 - embedding) * fraction, 'comparing')
  )
  return {
    'lines': list(found.lines),
    'scores': found.scores,
    'chance': task.chance(examples),
    'sentences': lines,
    'notes': found.notes,
  }


def _share_of_embedding(model: LoadedModel, layer: int, counts: list[int]) -> float:
  """Of the arithmetic, roughly; the rest is the comparison of each two sentences of the two sides."""
  hidden = model.config.hidden_size
  embedding = sum(counts) * _PIECES_OF_SENTENCE * max(layer, 1) * 12 * hidden**2
  comparing = sum(source * english for source, english in zip(counts[::2], counts[1::2], strict=True)) * hidden
  return embedding / (embedding + comparing)


class _Place:
  """Where a language's predictions are, and what they were made of."""

  def __init__(self, workdir: epath.Path, task: str, language: str):
    self._predictions = workdir / 'predictions' / task / f'test-{language}.tsv'
    self._record = workdir / 'retrieval' / task / f'{language}.json'

  def read(self, made_of: dict) -> dict | None:
    """The record, if it was made of the same and the predictions are as they were written."""
    try:
      record = json.loads(self._record.read_text())
      is_same = record['made_of'] == made_of and record['sha256'] == _sha256(self._predictions.read_bytes())
    except (OSError, ValueError, KeyError, TypeError):  # not there, or half of it, from whatever it was
      return None
    return record if is_same else None

  def write(self, made_of: dict, record: dict) -> None:
    """Predictions first: a record without them does not count."""
    content = ''.join(f'{line}\n' for line in record.pop('lines')).encode()
    record |= {'made_of': made_of, 'sha256': _sha256(content)}
    with write_errors('the predictions', self._predictions):
      write_whole(self._predictions, content)
      write_whole(self._record, json.dumps(record, indent=2) + '\n')


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()


def _digest_of_pieces(encoder: TextEncoder) -> str:
  return _sha256('\n'.join(encoder.piece(index) for index in range(len(encoder))).encode())


# --- all languages ----------------------------------------------------------------------------------------------------


def _results(task: RetrievalTask, config: XtremeConfig, layer: int, records: dict[str, dict]) -> dict[str, Any]:
  scored = [name for name, record in records.items() if record['scores'] is not None]
  mean = lambda values: sum(values) / len(values) if values else None
  return {
    'task': task.name,
    'split': config.split,
    'layer': layer,
    'score': task.scores[0],
    'languages': {
      name: {
        **(record['scores'] or {}),
        'chance': record['chance'],
        'sentences': record['sentences'],
        **record['notes'],
      }
      for name, record in records.items()
    },
    'mean': mean([records[name]['scores'][task.scores[0]] for name in scored]),
    'chance': mean([records[name]['chance'] for name in scored]),
    'mean_over': scored,
    'missing': {
      name: 'no gold labels' if name in records else 'not judged' for name in task.languages if name not in scored
    },
  }


def _format_scores(task: RetrievalTask, record: dict) -> str:
  if record['scores'] is None:
    return 'no gold labels, predictions only'
  return f'{task.scores[0]} {record["scores"][task.scores[0]]:.1f} (chance {record["chance"]:.2g})'


def _show(console: Console, task: RetrievalTask, results: dict[str, Any]) -> None:
  number = lambda value, digits: '–' if value is None else f'{value:.{digits}f}'
  rows = [
    (name, *(number(found.get(score), 1) for score in task.scores), number(found['chance'], 3))
    for name, found in results['languages'].items()
  ]
  if results['mean_over']:
    over = len(results['mean_over'])
    label = 'mean' if over == len(task.languages) else f'mean of {over} of {len(task.languages)}'
    means = [sum(results['languages'][name][score] for name in results['mean_over']) / over for score in task.scores]
    rows.append((label, *(number(value, 1) for value in means), number(results['chance'], 3)))
  console.table(f'{task.name}, layer {results["layer"]}', ('language', *task.scores, 'chance'), rows)
