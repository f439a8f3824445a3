"""Every score of every run, for whoever wants to compute something else of them."""

from collections.abc import Iterator, Sequence

from rembert.report.page import Data, Section
from rembert.report.reading import Model, Source
from rembert.report.runs import Run
from rembert.report.scores import TaskScores, task_scores, variants
from rembert.report.sections.models import all_models

COLUMNS = ('model', 'pre-training', 'fine-tuning', 'variant', 'task', 'language', 'measure', 'score', 'without reading')

HELD_OUT = 'held-out text'  # in the place of a task
_HELD_OUT = {'loss': 1, 'accuracy': 100}


def section(sources: Sequence[Source]) -> Section:
  """A file, where anything was evaluated or judged."""
  rows = [row for model in all_models(sources) for row in _rows(model)]
  caption = (
    f'{len(rows):,} scores, nothing averaged: of each model and seed (with the learning rate that did best on dev), in '
    'each language, by each measure; and what is scored without reading the text. First the last evaluation of each '
    'pre-training on held-out text: loss in nats, accuracy in per cent.'
  )
  return Section('Every score', [Data('every score', caption, COLUMNS, rows)] if rows else [])


def _rows(model: Model) -> Iterator[tuple[str, ...]]:
  for pretrained in model.pretrained:
    if pretrained.run is not None:
      yield from _held_out(model.name, pretrained.seed, pretrained.run)
  for variant in variants(model):
    for task, scores in task_scores(model, variant).items():
      yield from _judged(model.name, variant, task, scores)


def _held_out(name: str, seed: int, run: Run) -> Iterator[tuple[str, ...]]:
  for measure, factor in _HELD_OUT.items():
    key = f'eval/{measure}'
    for metric in (key, *(f'{key}/{language}' for language in run.parts_of(key))):
      if (value := run.last(metric)) is not None:
        language = metric.removeprefix(key).removeprefix('/') or 'all'
        yield name, str(seed), '', '', HELD_OUT, language, measure, f'{factor * value:.4f}', ''


def _judged(name: str, variant: str, task: str, scores: TaskScores) -> Iterator[tuple[str, ...]]:
  for seeds, by_language in scores.by_seed.items():
    for language, measures in by_language.items():
      without_reading = scores.baseline.get(language, {})
      for measure, score in measures.items():
        blank = f'{without_reading[measure]:.4f}' if measure in without_reading else ''
        yield name, *map(str, seeds), variant, task, language, measure, f'{score:.4f}', blank
