"""Evaluates a trained encoder on Tatoeba or BUCC 2018: embeds sentences, retrieves translations and scores them.

A sentence's embedding is the mean over its tokens of one layer's output, without [CLS] and [SEP] (paper, A.9, and
`rembert.model.heads.sentence_embeddings`). XTREME's scripts differ: they include the special tokens in the mean for
Tatoeba, and use [CLS] for BUCC; and they count layers from 0 without the embeddings: their 7 is the eighth.
The comparison is not affected; `xtreme.layer` chooses another layer.
"""

import json
from typing import Any

from etils import epath

from rembert.data.packing import BATCH_SIZE
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.inference.embed import embed_lines
from rembert.inference.model import LoadedModel
from rembert.runtime.signals import Stopped, StopSignal
from rembert.tokenizer import TextEncoder
from rembert.tracking.console import Console, Progress
from tasks.xtreme import XtremeConfig
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.retrieval import TASKS, RetrievalTask, chosen_languages

_LAYER_OF_XTREME = {12: 7, 24: 13}


def layer_of(config: XtremeConfig, num_layers: int) -> int:
  """The layer of the embeddings: `xtreme.layer`, else XTREME's 7 of 12 and 13 of 24, and 7/12 of other depths.

  0 is the embeddings, `num_layers` the last layer. UsageError if the model does not have that layer.
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

  The workdir gets `predictions/TASK/test-LL.tsv` and `results.json`. Of the configuration, `task`, `languages`
  and `layer` apply.

  Returns:
    The content of `results.json`: `task`, `split`, `layer`, `score` (name of the main score), `languages` (for each its
    scores by name, `chance`, and further notes), `mean` and `chance` over the languages with labels (`mean_over` them;
    None if there are none), and `missing`, XTREME's languages that are not in the mean, with the reason.

  Raises:
    UsageError: data are missing or malformed, or the model does not have the layer.
    RunError: the workdir cannot be written to.
    Stopped: the run was asked to stop.
  """
  task, workdir = TASKS[config.task], epath.Path(workdir)
  layer = layer_of(config, model.config.num_hidden_layers)
  languages = chosen_languages(task, folder, config)
  records: dict[str, dict] = {}
  with console.task(f'{task.name}, layer {layer}') as progress:

    def on_progress(fraction: float, note: str = '') -> None:
      if stop.requested:
        raise Stopped(stop.requested)
      progress((len(records) + fraction) / len(languages), f'{languages[len(records)]} · {note}')

    for language in languages:
      examples = task.examples(folder, language)
      predictions = workdir / 'predictions' / task.name / f'test-{language}.tsv'
      records[language] = record = _evaluate(task, examples, model, encoder, layer, batch_size, on_progress)
      with write_errors('the predictions', predictions):
        write_whole(predictions, ''.join(f'{line}\n' for line in record['lines']))
      score = task.scores[0]
      shown = 'no gold labels, predictions only'
      if record['scores'] is not None:
        shown = f'{score} {record["scores"][score]:.1f} (chance {record["chance"]:.2g})'
      console.say(f'{task.name} {language} · {shown} · {len(records)} of {len(languages)}')
  results = _results(task, config, layer, records)
  with write_errors('the results', workdir / 'results.json'):
    write_whole(workdir / 'results.json', json.dumps(results, indent=2, ensure_ascii=False) + '\n')
  _show(console, task, results)
  return results


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
  """Embeds all sentences, finds translations and scores them."""
  texts = task.texts(examples)
  lines = sum(len(side) for side in texts.values())
  embeddings: dict[str, Any] = {}
  for name, side in texts.items():
    before = sum(map(len, embeddings.values()))

    def on_sentences(fraction: float, note: str, before: int = before, count: int = len(side)) -> None:
      done = before + round(fraction * count)
      on_progress(0.9 * done / lines, f'{done:,} of {lines:,} sentences')  # retrieval is about a tenth of the work

    embeddings[name] = embed_lines(model, encoder, side, layer=layer, batch_size=batch_size, on_progress=on_sentences)
  found = task.find(examples, embeddings, lambda fraction: on_progress(0.9 + 0.1 * fraction, 'comparing'))
  return {
    'lines': found.lines,
    'scores': found.scores,
    'chance': task.chance(examples),
    'sentences': lines,
    'notes': found.notes,
  }


# --- all languages ----------------------------------------------------------------------------------------------------


def _results(task: RetrievalTask, config: XtremeConfig, layer: int, records: dict[str, dict]) -> dict[str, Any]:
  scored = [name for name, record in records.items() if record['scores'] is not None]
  mean = lambda values: sum(values) / len(values) if values else None
  reason = lambda name: 'no gold labels' if name in records else 'not evaluated'
  return {
    'task': task.name,
    'split': config.split,
    'layer': layer,
    'score': task.scores[0],
    'languages': {
      name: (record['scores'] or {}) | {'chance': record['chance'], 'sentences': record['sentences']} | record['notes']
      for name, record in records.items()
    },
    'mean': mean([records[name]['scores'][task.scores[0]] for name in scored]),
    'chance': mean([records[name]['chance'] for name in scored]),
    'mean_over': scored,
    'missing': {name: reason(name) for name in task.languages if name not in scored},
  }


def _show(console: Console, task: RetrievalTask, results: dict[str, Any]) -> None:
  number = lambda value, digits: '–' if value is None else f'{value:.{digits}f}'
  rows = [
    (name, *(number(found.get(score), 1) for score in task.scores), number(found['chance'], 3))
    for name, found in results['languages'].items()
  ]
  if results['mean_over']:
    over = len(results['mean_over'])
    label = f'average ({over} of {len(task.languages)} languages)'
    means = [sum(results['languages'][name][score] for name in results['mean_over']) / over for score in task.scores]
    rows.append((label, *(number(value, 1) for value in means), number(results['chance'], 3)))
  console.table(f'{task.name}, layer {results["layer"]}', ('language', *task.scores, 'chance'), rows)
