"""`import tasks.mixtures` registers the SeqIO tasks and mixtures of this project; it opens no file.

    wikipedia.{language}            TFDS's Wikipedia; `tasks.add_wikipedia(corpus=…)` replaces it by a corpus
    wikipedia, wikipedia.mbert, wikipedia.rembert
    mc4.{language}                  Common Crawl, TFDS's c4/multilingual
    rembert.pretraining             Wikipedia and Common Crawl in RemBERT's languages

Environment variables: REMBERT_VOCABULARY is the vocabulary, TFDS_DATA_DIR the directory of the data.
"""

from tasks import registration  # TensorFlow first

# isort: split
import functools

import seqio

from rembert.data.mixture import sampling_rates
from tasks.text_tasks import EDITIONS, add_mc4, add_wikipedia, numbers_of_documents
from tasks.wikipedia.languages import MC4, REMBERT, edition_of
from tasks.xtreme.registry import add_xtreme

PRETRAINING = 'rembert.pretraining'


def pretraining_tasks() -> dict[str, str]:
  """Names of the tasks of `rembert.pretraining`, and the language of each; `iw` and `he` are one."""
  tasks = {registration.valid_name('wikipedia', edition): edition for edition in EDITIONS['rembert']}
  crawled = [code for code in MC4 if code in REMBERT or code == 'zh']  # REMBERT names Chinese by its scripts
  return tasks | {registration.valid_name('mc4', code): edition_of(code) or code for code in crawled}


def pretraining_rates(documents: dict[str, int], language_of: dict[str, str], alpha: float = 0.5) -> dict[str, float]:
  """Rates of tasks: (documents of the language) ** alpha, divided among its tasks in proportion to documents."""
  by_language: dict[str, int] = {}
  for task, count in documents.items():
    by_language[language_of[task]] = by_language.get(language_of[task], 0) + count
  rates = sampling_rates(by_language, alpha)
  return {
    task: rates[language_of[task]] * count / by_language[language_of[task]]
    for task, count in documents.items()
    if count
  }


def add_pretraining() -> None:
  """Registers `rembert.pretraining`: RemBERT was pre-trained on Wikipedia and Common Crawl in 110 languages.

  A language is sampled in proportion to n ** 0.5 (paper, A.7), where n is the number of its documents in both, and each
  of its documents equally often. The paper counts sentences, which TFDS does not.
  """
  language_of = pretraining_tasks()
  sources = {name: seqio.TaskRegistry.get(name).source for name in language_of}  # current: tasks may be replaced

  @functools.cache
  def rates() -> dict[str, float]:
    return pretraining_rates(numbers_of_documents(sources, list(sources)), language_of)

  def rate(task: seqio.Task) -> float:
    return rates().get(task.name, 0.0)

  registration.add_mixture(PRETRAINING, dict.fromkeys(language_of, rate))


add_wikipedia()
add_mc4()
add_pretraining()
add_xtreme()
