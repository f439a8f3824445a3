"""SeqIO tasks of Common Crawl, `mc4.{language}`, over TFDS's `c4/multilingual`."""

from tasks import registration  # TensorFlow first

# isort: split
import os

from tasks.seqio_vocabulary import RembertVocabulary
from tasks.tfds_source import PreparedTfdsSource
from tasks.wikipedia.languages import MC4
from tasks.wikipedia.registry import add_language_tasks

TFDS_NAME = 'c4/multilingual:3.1.0'


def source_of(language: str) -> PreparedTfdsSource:
  """The splits of a language, of which TFDS has one each: `de`, `de-validation`."""
  return PreparedTfdsSource(TFDS_NAME, splits={'train': language, 'validation': f'{language}-validation'})


def add_mc4(*, vocabulary: str | os.PathLike | None = None, name: str = 'mc4') -> None:
  """Registers a SeqIO task for each language of mC4; see `tasks.wikipedia.registry.add_wikipedia`."""
  registration.remove_ours(name)
  add_language_tasks(name, {language: source_of(language) for language in MC4}, RembertVocabulary(vocabulary))
