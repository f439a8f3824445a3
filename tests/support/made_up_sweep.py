"""Workdirs as the jobs leave them, with small made-up numbers: a run, a benchmark, a whole sweep."""

import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import PIL.Image

from rembert import paper

LANGUAGES = ('en', 'de', 'ru', 'sw', 'zh')
# Widths of the models: (input, output, hidden, layers, tied), by the names that the paper's rows have here.
SHAPES = {
  'coupled768': (96, 96, 96, 4, True),
  'in768_out768': (96, 96, 96, 4, False),
  'in768_out128': (96, 16, 96, 4, False),
  'in128_out128': (16, 16, 96, 4, False),
  'in128_out768': (16, 96, 96, 4, False),
  'in128_out3072': (16, 384, 96, 4, False),
  'layers23to12': (16, 16, 96, 8, False),
  'hidden1024': (16, 96, 128, 4, False),
  'layers23': (16, 96, 96, 8, False),
  'coupled128': (16, 16, 96, 4, True),
}
VOCABULARY = 2000
LEARNED = {'xnli': ('xnli',), 'panx': ('panx',), 'pawsx': ('pawsx',), 'squad': ('xquad', 'mlqa'), 'tydiqa': ('tydiqa',)}
_QUESTIONS = ('xquad', 'mlqa', 'tydiqa')


def write_metrics(workdir: pathlib.Path, rows: Sequence[Mapping]) -> None:
  """`metrics.jsonl`."""
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / 'metrics.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))


def write_pretraining(
  workdir: pathlib.Path, name: str = 'in128_out768', *, seed: int = 0, languages: Sequence[str] = LANGUAGES, steps=200
) -> pathlib.Path:
  """A pre-training run of one of `SHAPES`, without checkpoints."""
  inputs, outputs, hidden, layers, tied = SHAPES[name]
  random = np.random.default_rng([seed, len(name)])
  level = 6.6 - 0.4 * math.log2(outputs / 16) / 4.6 + 0.02 * random.standard_normal()
  loss = lambda step: level + 2.5 * math.exp(-step / 60)
  rows = []
  for step in range(10, steps + 1, 10):
    rows.append({'step': step, 'loss': loss(step) + 0.05 * random.standard_normal(), 'accuracy': 0.1 * step / steps})
    rows[-1] |= {'step_seconds': 0.5, 'tokens_per_second': 8000.0}
    if step % 50 == 0:
      by_language = {language: loss(step) + 0.3 * number for number, language in enumerate(languages)}
      row = {'step': step, 'eval/loss': sum(by_language.values()) / len(languages), 'eval/accuracy': 0.1 * step / steps}
      row |= {f'eval/loss/{language}': value for language, value in by_language.items()}
      row |= {f'eval/accuracy/{language}': 0.1 for language in languages}
      rows.append(row | {'eval/unigram_entropy': 7.2})
  write_metrics(workdir, rows)
  model = {
    'input_embedding_size': inputs,
    'output_embedding_size': outputs,
    'hidden_size': hidden,
    'num_hidden_layers': layers,
    'num_attention_heads': 4,
    'intermediate_size': 4 * hidden,
    'vocab_size': VOCABULARY,
    'max_position_embeddings': 128,
    'tie_word_embeddings': tied,
  }
  told = {f'RemBertConfig.{field}': value for field, value in model.items()} | {
    'train.seed': seed,
    'train.steps': steps,
    'run.mode': 'pretrain',
  }
  if name == 'layers23to12':
    told |= {'paper.table': 5, 'paper.row': name, 'paper.scale': 'mini', 'paper.kept_layers': 4}
  lines = [f'{field} = {value!r}' for field, value in told.items()]
  (workdir / 'config.gin').write_text('# Parameters\n# ====\n' + '\n'.join(lines) + '\n')
  return workdir


def write_results(
  workdir: pathlib.Path,
  task: str,
  scores: Mapping[str, Mapping[str, float]],
  *,
  dev: float | None = 70.0,
  baseline: float | None = 33.3,
) -> pathlib.Path:
  """A fine-tuning run: evaluated task to language to what it is worth; questions get an exact match that is 10 less."""
  entry = lambda evaluated, value: (
    {'exact_match': value - 5, 'f1': value + 5}
    if evaluated in _QUESTIONS
    else {'accuracy' if evaluated in ('xnli', 'pawsx') else 'f1': value}
  )
  tasks = {
    evaluated: {
      language: {
        'examples': 100,
        'scores': entry(evaluated, value),
        'baseline': None if baseline is None else entry(evaluated, baseline),
        'predictions': f'predictions/{evaluated}/test-{language}.tsv',
        'note': '',
      }
      for language, value in by_language.items()
    }
    for evaluated, by_language in scores.items()
  }
  workdir.mkdir(parents=True, exist_ok=True)
  content = {'task': task, 'dev': None if dev is None else {'accuracy': dev}, 'tasks': tasks, 'skipped': {}, 'mean': {}}
  (workdir / 'results.json').write_text(json.dumps(content))
  (workdir / 'config.gin').write_text(f"run.mode = 'finetune'\nxtreme.task = '{task}'\ntrain.seed = 0\n")
  if dev is not None:
    rows = [{'step': step, 'eval/loss': 1.0, 'eval/dev/accuracy': dev - 20 / step} for step in (10, 20, 30)]
    write_metrics(workdir, [{'step': 5, 'loss': 1.2}, *rows])
  return workdir


def write_analysis(workdir: pathlib.Path, what: str, results: Mapping, model: str = 'm') -> pathlib.Path:
  """An analysis with a picture."""
  workdir.mkdir(parents=True, exist_ok=True)
  content = {'analysis': what, 'model': model, 'facts': {}, 'results': results}
  (workdir / 'analysis.json').write_text(json.dumps(content))
  PIL.Image.new('RGB', (40, 20), 'white').save(workdir / f'{what}.png')
  return workdir


def write_sweep(
  folder: pathlib.Path,
  models: Sequence[str] = tuple(SHAPES),
  *,
  seeds: int = 3,
  is_there: Callable[[str], bool] = lambda workdir: True,
  languages: Sequence[str] = LANGUAGES,
) -> pathlib.Path:
  """A sweep over models of the paper's tables.

  Args:
    folder: to be made.
    models: of `SHAPES`.
    seeds: of fine-tuning.
    is_there: whether the run in a workdir, relative to the folder, has been made yet.
    languages: that everything is evaluated in.
  """
  entries = []
  for number, name in enumerate(models):
    entries.append(_model(folder, name, number, seeds, is_there, languages))
  content = {
    'name': 'a made-up sweep',
    'scale': 'mini',
    'code': {'version': '0.1', 'commit': 'abc123', 'dirty': False},
    'asked': [['--models=all', f'--seeds={seeds}']],
    'models': entries,
  }
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'sweep.json').write_text(json.dumps(content))
  return folder


def _model(folder, name, number, seeds, is_there, languages) -> dict:
  rows = [[table, name] for table, printed in paper.TABLES.items() for row in printed if row.name == name]
  inputs, outputs, _, layers, _ = SHAPES[name]
  random = np.random.default_rng(number)
  level = 55 + 3 * math.log2(outputs / 8) + (4 if layers > 4 else 0)
  pretrained = f'pretrain/{name}/seed_0'
  if is_there(pretrained):
    write_pretraining(folder / pretrained, name, languages=languages)
  learned = []
  keep = [4] if name == 'layers23to12' else [3, 2] if name.startswith('in128') else []
  for variant in ('', *(f'RemBertConfig.num_hidden_layers={layers}' for layers in keep)):
    for task, evaluated in LEARNED.items() if not variant or name == 'layers23to12' else [('xnli', ('xnli',))]:
      for seed in range(seeds):
        workdir = f'learned/{name}/{task}_{variant.rpartition("=")[2] or "whole"}/seed_{seed}'
        entry = {'pretrain_seed': 0, 'seed': seed, 'task': task, 'evaluated': evaluated, 'variant': variant}
        learned.append(entry | {'learning_rate': None, 'workdir': workdir})
        lost = 0.0 if not variant else 2.0 * (4 - int(variant[-1]))
        scores = {
          each: {
            language: level - lost - 2 * at + 0.6 * float(random.standard_normal())
            for at, language in enumerate(languages)
          }
          for each in evaluated
        }
        if is_there(workdir):
          write_results(folder / workdir, task, scores)
  analyses = []
  for what, results in _analyses(layers, level, languages).items():
    workdir = f'analyses/{name}/{what}'
    analyses.append({'pretrain_seed': 0, 'what': what, 'workdir': workdir})
    if is_there(workdir):
      write_analysis(folder / workdir, what, results, name)
  return {
    'name': name,
    'rows': rows,
    'settings': {'RemBertConfig.input_embedding_size': inputs, 'RemBertConfig.output_embedding_size': outputs},
    'pretrained': [{'seed': 0, 'workdir': pretrained}],
    'learned': learned,
    'analyses': analyses,
  }


def _analyses(layers: int, level: float, languages: Sequence[str]) -> dict[str, dict]:
  curve = [level * (layer + 1) / layers - 3 * max(0, layer - layers + 1) for layer in range(layers + 1)]
  pair = {'pairs': 100, 'candidates': 100, 'accuracy': curve, 'chance': 1.0, 'cut': 0}
  row = {'rows': 10, 'positions': 190, 'accuracy': level, 'loss': 5.0, 'most_frequent': 4.0}
  return {
    'layer_retrieval': {'layers': list(range(layers + 1)), 'pairs': {'de-en': pair}, 'mean': curve},
    'masked_accuracy': {
      'languages': dict.fromkeys(languages, row),
      'all': row,
      'mean': {'accuracy': level, 'loss': 5.0},
    },
  }
