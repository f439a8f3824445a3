"""Every score of every run, for whoever wants to compute something else of them."""

from collections.abc import Iterator, Sequence

from rembert.report.page import Data, Section
from rembert.report.reading import Model, Source
from rembert.report.scores import task_scores, variants
from rembert.report.sections.models import all_models

COLUMNS = ('model', 'pre-training', 'fine-tuning', 'variant', 'task', 'language', 'measure', 'score', 'without reading')

HELD_OUT = 'held-out text'  # in the place of a task
_HELD_OUT = {'loss': 1, 'accuracy': 100}


def section(sources: Sequence[Source]) -> Section:
  """A file, where anything was judged."""
  rows = [row for model in all_models(sources) for row in _rows(model)]
  caption = (
    f'{len(rows):,} scores, nothing averaged: of each model and seed (with the learning rate that did best on dev), in '
    'each language, by each measure; and what is scored without reading the text. First the last evaluation of each '
    'pre-training on held-out text: loss in nats, accuracy in per cent.'
  )
  return Section('Every score', [Data('every score', caption, COLUMNS, rows)] if rows else [])


def _rows(model: Model) -> Iterator[tuple[str, ...]]:
  for pretrained in model.pretrained:
    run = pretrained.run
    if run is None:
      continue
    for measure, factor in _HELD_OUT.items():
      key = f'eval/{measure}'
      for name in (key, *(f'{key}/{language}' for language in run.parts_of(key))):
        if (value := run.last(name)) is not None:
          language = name.removeprefix(key).removeprefix('/') or 'all'
          yield model.name, str(pretrained.seed), '', '', HELD_OUT, language, measure, f'{factor * value:.4f}', ''
  for variant in variants(model):
    for task, scores in task_scores(model, variant).items():
      for (pretraining, finetuning), by_language in scores.by_seed.items():
        run = (model.name, str(pretraining), str(finetuning), variant, task)
        for language, measures in by_language.items():
          without_reading = scores.baseline.get(language, {})
          for measure, score in measures.items():
            blank = '' if measure not in without_reading else f'{without_reading[measure]:.4f}'
            yield (*run, language, measure, f'{score:.4f}', blank)
