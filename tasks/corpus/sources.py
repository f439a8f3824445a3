"""Sources of a corpus: where text comes from, in parts for many workers, and how each kind of part is read.

Each kind has a function that finds parts, by language, and one that reads documents of a part; what that cannot read it
counts as `Lost`. Cleaning comes after (`documents`). Another source is two functions here, and a flag in
`__main__.add_sources`.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import importlib.resources
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rembert.data.config import SAMPLE, DataConfig
from rembert.errors import UsageError, first_line, joined
from rembert.files import why_unreachable
from tasks.corpus.text_files import DAMAGED, Item, TextFile, find_files
from tasks.wikipedia.dumps import DamagedDump, Dump, find_dumps
from tasks.wikipedia.languages import LISTS, chosen_languages, language_code, without_lists

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

PUBLIC_BUCKET = 'gs://tfds-data/datasets'  # where TFDS's authors publish prepared datasets
_EXAMPLES_PER_PART = 20_000
_FILES_AT_A_TIME = 16  # whose columns are looked at
UNKNOWN = 'und'  # ISO 639's code for no known language: of what a file lost where a column names the languages
EACH = ''  # what is lost to each language of a part


@dataclasses.dataclass(frozen=True)
class Part:
  """What one worker reads at a time. Small, since it is pickled; its fields are part of a corpus's recipe."""

  language: str
  kind: str  # `dump`, `text` or `tfds`
  path: str  # of the file; for `tfds` the name of the dataset, which is in `data_dir`
  split: str = ''
  start: int = 0  # for `tfds`, the first example; `stop` is the example after the last. For Parquet, in row groups.
  stop: int = 0
  data_dir: str | None = None
  size: int = 0  # bytes, to balance the work by
  # Of text and language, where a file has columns. A file with a column of languages has a part for each.
  columns: tuple[str, str] | None = None

  def recipe(self) -> list:
    """The fields as JSON, without the place of the source: a corpus does not depend on it."""
    *fields, columns = dataclasses.astuple(dataclasses.replace(self, path=self.path.rsplit('/', 1)[-1], data_dir=None))
    return [*fields, *(columns or ())]  # parts without columns had as many fields before there were any


@dataclasses.dataclass(frozen=True)
class RawDocument:
  """A document as it was found, before the expensive part of cleaning."""

  language: str
  title: str  # '' if it has none
  id: str  # of a page, `file:line` or `file:row` of files of text, the `id` of a TFDS example; '' if it has none
  text: str  # plain text, or wikitext. Bytes that are not UTF-8 are surrogate escapes.
  # Of wikitext: the names that its wiki has for them, by number. None for plain text.
  namespaces: Mapping[int, str] | None = None


@dataclasses.dataclass(frozen=True)
class Lost:
  """Something of a language that was left out, and how many times."""

  language: str
  reason: str
  count: int = 1


def find_parts(data: DataConfig, say: Callable[[str], None] = lambda line: None) -> list[Part]:
  """The parts of the text that `data` names, ordered by language.

  `say` is called with one line that names the languages of a list that are missing, if any are.
  UsageError if nothing is found, a column is missing, or a language given by its code is.
  """
  found = {'text': _find_text, 'dumps': _find_dumps, 'tfds': _find_tfds}[data.source](data)
  parts: dict[str, list[Part]] = collections.defaultdict(list)
  for part in found:
    parts[part.language].append(part)
  chosen = chosen_languages(data.languages, parts, where=str(getattr(data, data.source)), say=say)
  # What a file lost is counted, whichever languages are chosen.
  lost = [part for part in parts.get(UNKNOWN, ()) if part.columns and part.columns[1] and UNKNOWN not in chosen]
  return [part for language in chosen for part in parts[language]] + lost


def parts_to_read_together(parts: Iterable[Part]) -> list[list[Part]]:
  """The same parts; those that differ in language only are in one list, as the file is read once for all of them."""
  together: dict[tuple[str, int, str], list[Part]] = collections.defaultdict(list)
  for part in parts:
    language = '' if part.columns and part.columns[1] else part.language
    together[part.path, part.start, language].append(part)
  return list(together.values())


def read_together(parts: Sequence[Part]) -> Iterator[RawDocument | Lost]:
  """Documents of parts that differ in language only; a broken page or truncated file costs itself, and is counted."""
  languages = {part.language for part in parts}
  read = {'dump': _read_dump, 'text': _read_text, 'tfds': _read_tfds}[parts[0].kind]
  for each in read(parts[0]):
    if isinstance(each, Lost) and each.language == EACH:
      yield from (Lost(language, each.reason) for language in sorted(languages - {UNKNOWN} or languages))
    elif each.language in languages:
      yield each


def bytes_by_language(parts: Iterable[Part]) -> dict[str, int]:
  """Bytes of input of each language."""
  sizes: dict[str, int] = collections.defaultdict(int)
  for part in parts:
    sizes[part.language] += part.size
  return dict(sizes)


# --- dumps ------------------------------------------------------------------------------------------------------------


def _find_dumps(data: DataConfig) -> Iterator[Part]:
  is_sample = data.dumps == SAMPLE
  pattern = str(importlib.resources.files('tasks.wikipedia') / 'sample') if is_sample else data.dumps
  for language, files in find_dumps(pattern).items():
    for file in files:
      yield Part(language, 'dump', str(file), size=file.stat().length)


def _read_dump(part: Part) -> Iterator[RawDocument | Lost]:
  dump = Dump(part.path)
  try:
    for page in dump.articles():
      yield RawDocument(part.language, page.title, str(page.page_id or ''), page.text, dump.namespaces)
  except DamagedDump:
    yield Lost(part.language, 'damaged dumps')
  if dump.broken_pages:
    yield Lost(part.language, 'broken pages', dump.broken_pages)
  if dump.is_truncated:
    yield Lost(part.language, 'truncated dumps')


# --- files of text ----------------------------------------------------------------------------------------------------


def _find_text(data: DataConfig) -> Iterator[Part]:
  """A part per file, of Parquet per range of row groups; and per language, if a column names the languages."""
  language, language_column = data.language, data.language_column or ''
  if language and language_column:
    raise UsageError(
      'text has one language, or a column of them',
      where=f'language = {language}, language_column = {language_column}',
      fix='leave one of them out',
    )
  if language and language_code(language) is None:
    raise UsageError(f'not a language code: {language!r}', where='--language', fix='--language=de')
  file_of = lambda url: TextFile(url, data.text_column, language_column)
  parts_of = lambda found: _parts_of_file(file_of(found[0]), found[1], language)
  with concurrent.futures.ThreadPoolExecutor(_FILES_AT_A_TIME) as threads:
    found = list(threads.map(parts_of, find_files(str(data.text))))
  if errors := [each for each in found if isinstance(each, UsageError)]:
    raise joined(errors)
  parts = list(itertools.chain.from_iterable(cast(list[list[Part]], found)))
  if parts and language_column and all(part.language == UNKNOWN for part in parts):
    first = file_of(parts[0].path).items(parts[0].start, parts[0].stop)
    values = {repr(item.language): None for item in itertools.islice(first, 100) if isinstance(item, Item)}
    raise UsageError(
      f'no value of the column {language_column!r} is the code of a language: {", ".join(list(values)[:6])}',
      where=parts[0].path,
      fix='write codes into it, de, sw, zh; or name one language, --language=de',
    )
  yield from parts


def _parts_of_file(file: TextFile, size: int, language: str | None) -> list[Part] | UsageError:
  """The parts, or the error if the file has no language, lacks a column, or cannot be read."""
  try:
    file.check_columns()
    ranges = file.ranges(size)
    if file.format == 'txt' or not file.language_column:
      shares = [{_language_of_file(file, language): 1} for _ in ranges]
    else:
      # How many items of each range have each language. Of Parquet, the column of languages is read alone.
      labels = dataclasses.replace(file, text_column=file.language_column)
      code_of = lambda item: UNKNOWN if isinstance(item, str) else _language_of(item)
      shares = [collections.Counter(map(code_of, labels.items(start, stop))) for start, stop, _ in ranges]
  except UsageError as error:
    return error
  except OSError as error:
    return UsageError(f'a file of text cannot be read: {error.strerror or first_line(error)}', where=file.url)
  columns = None if file.format == 'txt' else (file.text_column, file.language_column)
  parts = []
  for (start, stop, of_range), of_languages in zip(ranges, shares, strict=True):
    for code, items in of_languages.items():
      share = of_range * items // sum(of_languages.values())
      parts.append(Part(code, 'text', file.url, start=start, stop=stop, size=share, columns=columns))
  return parts


def _language_of_file(file: TextFile, language: str | None) -> str:
  if code := language_code(language or file.stem):
    return code
  raise UsageError(
    f'the file name {file.name} does not begin with the code of a language',
    where=file.url,
    fix=[
      'rename it, de.jsonl; or --language=de for all files; or a column of codes, --language_column=NAME',
      "or choose files with a glob, --text='FOLDER/*.txt'",
    ],
  )


def _language_of(item: Item) -> str:
  """The code in the column of languages; `UNKNOWN` if there is none."""
  return (isinstance(item.language, str) and language_code(item.language)) or UNKNOWN


def _read_text(part: Part) -> Iterator[RawDocument | Lost]:
  text_column, language_column = part.columns or ('', '')
  file = TextFile(part.path, text_column, language_column)
  for item in file.items(part.start, part.stop):
    if isinstance(item, str):
      # What is damaged in a row group was lost to all of its languages.
      yield Lost((EACH if item == DAMAGED else UNKNOWN) if language_column else part.language, item)
      continue
    language = _language_of(item) if language_column else part.language
    if language_column and language == UNKNOWN:
      yield Lost(UNKNOWN, 'no language code')
    elif not isinstance(item.text, str) or not item.text.strip():
      yield Lost(language, 'no text')
    else:
      yield RawDocument(language, '', f'{file.name}:{item.number}', item.text)


# --- TensorFlow Datasets ----------------------------------------------------------------------------------------------


def _find_tfds(data: DataConfig) -> Iterator[Part]:
  """Ranges of examples. Split names are in brackets, `c4/multilingual[{language}]`; without, it is `train`."""
  dataset, languages, data_dir = data.tfds, data.languages, data.tfds_data_dir
  if languages is None or '{language}' not in dataset:
    raise UsageError(
      'a TFDS dataset needs {language} in its name, and a list of languages',
      where=f'data.tfds or --tfds = {dataset}; data.languages or --languages = {languages}',
      fix=[
        "--tfds='wikipedia/20230601.{language}' --languages=de,sw",
        f"--gin.data.languages=\"('en', 'de')\", or a list by its name: {', '.join(LISTS)}",
      ],
    )
  codes, listed = without_lists(languages)
  dataset, _, split = dataset.rstrip(']').partition('[')
  prepared, reasons = [], {}
  for language in sorted({*codes, *listed}):
    of_language, of_split = dataset.format(language=language), (split or 'train').format(language=language)
    try:
      builder, folder = _prepared(of_language, data_dir)
      info = builder.info.splits[of_split]
    except Exception as error:  # TFDS raises types of its own for names, versions, splits and directories
      reasons[language] = first_line(error)
      continue
    if info.num_examples:
      prepared.append((Part(language, 'tfds', of_language, of_split, data_dir=folder), info))
  where = f'{dataset}, tfds_data_dir = {data_dir}'
  missing = [code for code in reasons if code in codes or not prepared]
  if missing:
    first, more = dataset.format(language=missing[0]), f' and {len(missing) - 1} more' if len(missing) > 1 else ''
    raise UsageError(
      f'TensorFlow Datasets cannot read {first}{more}: {reasons[missing[0]]}',
      where=f'{where}; languages: {", ".join(missing[:12])}{", …" if len(missing) > 12 else ""}',
      fix=[
        # TFDS's extra does not name all that its command line imports.
        'prepare it in an environment of its own:  pip install tensorflow "tensorflow-datasets[wikipedia]" mlcroissant '
        f'importlib_resources; tfds build {first} --data_dir=DIR;  then here --tfds_data_dir=DIR, or '
        '--gin.data.tfds_data_dir=DIR',
        'or read dumps from dumps.wikimedia.org:  --dumps=FOLDER, or --gin.data.source=dumps --gin.data.dumps=FOLDER',
      ],
    )
  if not prepared:
    raise UsageError('the TFDS datasets hold no examples', where=where)
  for part, info in prepared:
    total = info.num_examples
    for start in range(0, total, _EXAMPLES_PER_PART):
      stop = min(total, start + _EXAMPLES_PER_PART)
      size = int(info.num_bytes * (stop - start) / total)
      yield dataclasses.replace(part, start=start, stop=stop, size=size)


@functools.cache
def _prepared(name: str, data_dir: str | None) -> tuple['tfds.core.DatasetBuilder', str | None]:
  """The reader of a prepared dataset, and the directory that it is in; LookupError with the reason if there is none.

  It is read from its files alone: the code that prepared it may need packages that are not installed here.
  """
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  reasons = []
  # TFDS itself no longer looks into its bucket (`try_gcs` does nothing), but it reads a bucket that is named.
  for folder in [data_dir] if data_dir else [None, PUBLIC_BUCKET]:
    if reason := why_unreachable(folder or ''):
      reasons.append(reason)
      continue
    try:
      return tfds.core.read_only_builder.builder_from_files(name, data_dir=folder), folder
    except tfds.core.DatasetNotFoundError:
      reasons.append(f'it has not been prepared in {folder or "~/tensorflow_datasets"}')
    except Exception as error:  # whatever its file system and parsers raise
      reasons.append(first_line(error))
  raise LookupError('; '.join(reasons))


def _read_tfds(part: Part) -> Iterator[RawDocument | Lost]:
  import tensorflow_datasets as tfds

  builder, _ = _prepared(part.path, part.data_dir)
  split = tfds.core.ReadInstruction(part.split, from_=part.start, to=part.stop, unit='abs')
  for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
    title, name = example.get('title', b''), example.get('id', b'')
    yield RawDocument(
      part.language,
      title.decode('utf-8', 'replace'),
      name.decode('utf-8', 'replace') if isinstance(name, bytes) else str(name),
      example['text'].decode('utf-8', 'surrogateescape'),
    )
