"""What a corpus holds, language by language: documents, sentences, characters. The sampling rates rest on it."""

import dataclasses
import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from rembert.errors import UsageError
from tasks.wikipedia.corpus import Corpus, ReadProgress
from tasks.wikipedia.sentences import count_sentences


@dataclasses.dataclass(frozen=True)
class LanguageStatistics:
  """Counts of one language.

  Attributes:
    documents: to train on.
    held_out: documents kept for evaluation.
    sentences: in the documents to train on.
    characters: likewise.
    read: share of the data that was read for these counts; below 1 they are extrapolated from it.
    broken_pages: pages that could not be read and were left out.
  """

  documents: int
  held_out: int
  sentences: int
  characters: int
  read: float = 1.0
  broken_pages: int = 0


def survey_language(
  corpus: Corpus, language: str, limit: int, on_progress: Callable[[float], None] = lambda fraction: None
) -> LanguageStatistics:
  """Reads up to `limit` documents of a language and counts."""
  progress = ReadProgress()
  documents = held_out = sentences = characters = 0
  for document, is_held_out in itertools.islice(corpus.documents(language, progress), limit):
    on_progress(progress.fraction)
    if is_held_out:
      held_out += 1
      continue
    documents += 1
    sentences += count_sentences(document.text.split('\n'), language)
    characters += len(document.text)
  read = progress.fraction if documents + held_out == limit else 1.0
  whole = lambda count: round(count / read)
  return LanguageStatistics(
    documents=whole(documents),
    held_out=whole(held_out),
    sentences=whole(sentences),
    characters=whole(characters),
    read=read,
    broken_pages=progress.counts.broken_pages if progress.counts else 0,
  )


def survey(
  corpus: Corpus, limit: int, on_progress: Callable[[float, str], None] = lambda fraction, language: None
) -> dict[str, LanguageStatistics]:
  """Statistics of every language; UsageError if the whole corpus holds no text.

  Args:
    corpus: to be counted.
    limit: documents of each language that are read; what lies beyond is extrapolated.
    on_progress: is told how much is done, 0 to 1, and the language at hand.
  """
  statistics = {}
  for number, language in enumerate(corpus.languages):
    tell = lambda fraction, number=number, language=language: on_progress(
      (number + fraction) / len(corpus.languages), language
    )
    statistics[language] = survey_language(corpus, language, limit, tell)
    tell(1.0)
  if not any(counts.documents for counts in statistics.values()):
    raise UsageError(
      'the corpus holds no text to train on',
      where=f'data.dumps, data.languages = {", ".join(corpus.languages)}',
      fix='check that the dumps are of articles (pages-articles), or lower data.min_characters and data.held_out',
    )
  return statistics


# Of each language, this many times the text that is taken is read, at most: cleaning it costs about a second for two
# million characters. All of a large Wikipedia would cost hours, and its first articles are unlike the rest.
_READ_FOR_EACH_TAKEN = 8


def spread(texts: Iterable[str], characters: int) -> list[str]:
  """Texts of about so many characters in all, in their order, chosen by hash from eight times as many.

  Taken are the lowest hashes until they hold `characters`; all texts where there are not so many. The choice depends on
  the texts alone, and no more than what is taken is held in memory.
  """
  # The highest hash first; `taken` is the shortest run of lowest hashes that holds enough.
  taken: list[tuple[int, int, str]] = []
  held = read = 0
  for number, text in enumerate(texts):
    # With a name of its own: which documents are held out is another choice.
    digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8, person=b'vocabulary').digest()
    heapq.heappush(taken, (-int.from_bytes(digest, 'big'), number, text))
    held += len(text)
    read += len(text)
    while held - len(taken[0][2]) >= characters and len(taken) > 1:
      held -= len(heapq.heappop(taken)[2])
    if read >= _READ_FOR_EACH_TAKEN * characters:
      break
  return [text for _, _, text in sorted(taken, key=lambda item: item[1])]


def sample_text(
  corpus: Corpus,
  characters: Mapping[str, int],
  on_progress: Callable[[float, str], None] = lambda fraction, language: None,
) -> Iterator[str]:
  """Paragraphs to train a vocabulary on: of each language so many characters, spread over its training documents.

  Args:
    corpus: to be read.
    characters: how much of each language.
    on_progress: is told how much of all `characters` is done, 0 to 1, and the language at hand.
  """
  done, total = 0, max(1, sum(characters.values()))
  for language, budget in characters.items():
    tell = lambda fraction, done=done, language=language, budget=budget: on_progress(
      (done + fraction * budget) / total, language
    )
    for text in spread(_training_texts(corpus, language, budget, tell), budget):
      yield from text.split('\n')
    done += budget


def _training_texts(corpus: Corpus, language: str, budget: int, on_progress: Callable[[float], None]) -> Iterator[str]:
  progress, read = ReadProgress(), 0
  for document, is_held_out in corpus.documents(language, progress):
    if not is_held_out:
      yield document.text
      read += len(document.text)
    # A language ends with its text, or before, where enough has been read.
    on_progress(min(1.0, max(progress.fraction, read / max(1, _READ_FOR_EACH_TAKEN * budget))))
