"""Evaluates a trained encoder on Tatoeba or BUCC 2018: embeds sentences, retrieves translations and scores them.

A sentence's embedding is the mean over its tokens of one layer's output, without [CLS] and [SEP] (paper, A.9, and
`rembert.model.heads.sentence_embeddings`). XTREME's scripts differ: they include the special tokens in the mean for
Tatoeba, and use [CLS] for BUCC; and they count layers from 0 without the embeddings: their 7 is the eighth.
The comparison is not affected; `xtreme.layer` chooses another layer.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
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
from tasks.xtreme.retrieval import TASKS, chosen_languages

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
  """Evaluates a model on the retrieval task `config.task`; writes `predictions/TASK/test-LL.tsv` and `results.json`.

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
  layer, score = layer_of(config, model.config.num_hidden_layers), task.scores[0]
  languages = chosen_languages(task, folder, config)
  embed = functools.partial(embed_lines, model, encoder, layer=layer, batch_size=batch_size)
  entries: dict[str, dict[str, Any]] = {}
  scored = []
  with console.task(f'{task.name}, layer {layer}') as progress:

    def on_progress(fraction: float, note: str = '') -> None:
      if stop.requested:
        raise Stopped(stop.requested)
      progress((len(entries) + fraction) / len(languages), f'{languages[len(entries)]} · {note}')

    for language in languages:
      examples: Any = task.examples(folder, language)
      texts, chance = task.texts(examples), task.chance(examples)
      embeddings = _embed(texts, embed, on_progress)
      found = task.find(examples, embeddings, lambda fraction: on_progress(0.9 + 0.1 * fraction, 'comparing'))
      entries[language] = (
        (found.scores or {}) | {'chance': chance, 'sentences': sum(map(len, texts.values()))} | found.notes
      )
      predictions = workdir / 'predictions' / task.name / f'test-{language}.tsv'
      with write_errors('the predictions', predictions):
        write_whole(predictions, ''.join(f'{line}\n' for line in found.lines))
      shown = 'no gold labels, predictions only'
      if found.scores is not None:
        scored.append(language)
        shown = f'{score} {found.scores[score]:.1f} (chance {chance:.2g})'
      console.say(f'{task.name} {language} · {shown} · {len(entries)} of {len(languages)}')
  mean = lambda name: sum(entries[language][name] for language in scored) / len(scored) if scored else None
  reason = lambda name: 'no gold labels' if name in entries else 'not evaluated'
  results = {
    'task': task.name,
    'split': config.split,
    'layer': layer,
    'score': score,
    'languages': entries,
    'mean': mean(score),
    'chance': mean('chance'),
    'mean_over': scored,
    'missing': {name: reason(name) for name in task.languages if name not in scored},
  }
  with write_errors('the results', workdir / 'results.json'):
    write_whole(workdir / 'results.json', json.dumps(results, indent=2, ensure_ascii=False) + '\n')
  numbers = lambda values: (f'{values[name]:.1f}' if name in values else '–' for name in task.scores)
  row = lambda label, values: (label, *numbers(values), f'{values["chance"]:.3f}')
  rows = [row(language, values) for language, values in entries.items()]
  if scored:
    label = f'average ({len(scored)} of {len(task.languages)} languages)'
    rows.append(row(label, {name: mean(name) for name in (*task.scores, 'chance')}))
  console.table(f'{task.name}, layer {layer}', ('language', *task.scores, 'chance'), rows)
  return results


def _embed(
  texts: Mapping[str, Sequence[str]], embed: Callable[..., np.ndarray], on_progress: Progress
) -> dict[str, np.ndarray]:
  """Embeds the sentences of both languages, which is about nine tenths of the work."""
  embeddings: dict[str, np.ndarray] = {}
  total = sum(map(len, texts.values()))
  for name, side in texts.items():
    before = sum(map(len, embeddings.values()))

    def on_sentences(fraction: float, note: str, before: int = before, count: int = len(side)) -> None:
      done = before + round(fraction * count)
      on_progress(0.9 * done / total, f'{done:,} of {total:,} sentences')

    embeddings[name] = embed(side, on_progress=on_sentences)
  return embeddings
