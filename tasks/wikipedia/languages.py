"""Codes of Wikipedia editions, the names of their databases, and the language lists of published models."""

import difflib
import json
import pathlib
import re
from collections.abc import Callable, Collection, Sequence

from rembert.errors import UsageError

_TABLES = json.loads((pathlib.Path(__file__).parent / 'languages.json').read_text('utf-8'))

# The languages of multilingual BERT, cased: the 104 entries of google-research/bert's multilingual.md, in its order. It
# names languages, not codes; the codes are Wikipedia's. "Norwegian (Bokmal)" is `no`. Chinese is two of the entries and
# one Wikipedia, so 104 languages are 103 editions. The last two are only in the cased model.
MBERT = tuple(_TABLES['mbert'])

# RemBERT's 110 are not published. Its README says "mC4 and Wikipedia corpus over 110 languages"; the model card at
# Hugging Face names the 103 codes of `rembert_card`: the 101 languages of mC4, with bs and hr, which mC4 lacks.
# Inferred: mC4 also has these six, in Latin script, for which there is no Wikipedia.
ROMANISED = tuple(_TABLES['romanised'])
_CHINESE_SCRIPTS = ('zh-Hans', 'zh-Hant')
# Inferred, to obtain 110: this counts Chinese by its scripts, as multilingual BERT's list does. The
# alternative is to count mC4's `und`, text of unknown language. The Wikipedias are the same in both cases.
REMBERT = tuple(sorted({*_TABLES['rembert_card'], *ROMANISED, *_CHINESE_SCRIPTS} - {'zh'}))

# The languages of mC4 (T5's multilingual crawl), with those in Latin script and without `und`, unknown language.
MC4 = tuple(sorted({*_TABLES['rembert_card'], *ROMANISED} - {'bs', 'hr'}))

LISTS = {'mbert': MBERT, 'rembert': REMBERT}

# Codes of the lists without a Wikipedia: Hmong is only in the crawl.
WITHOUT_EDITION = frozenset({'hmn', *ROMANISED})

# Codes of the lists whose Wikipedia has another code; `fil`, standardised Tagalog, has the Tagalog one.
_EDITIONS = {'fil': 'tl', **dict.fromkeys(_CHINESE_SCRIPTS, 'zh')}

# A language code in a file name or a column: de, zh-min-nan, bg-Latn, es-419; not `english` or `train`.
_CODE = re.compile(r'(?:[A-Za-z]{2,3}(?:[-_](?:[A-Za-z]{2,8}|419))*|simple)', re.ASCII)

# `renamed` has databases with a name older than the code of their edition, and former codes. `nb`, Bokmål, was never a
# database: nowiki is written in it. `no_edition` has databases in -wiki that are not Wikipedias in a language.


def language_of_database(database: str) -> str | None:
  """Wikipedia's code for the language of a database, with or without its suffix, or of a former code.

  None if it is not a language edition.

  >>> language_of_database('nowiki'), language_of_database('be_x_oldwiki'), language_of_database('zh_min_nan')
  ('no', 'be-tarask', 'zh-min-nan')
  """
  code = database.strip().lower().removesuffix('wiki').strip('-_').replace('_', '-')
  if not code or code in _TABLES['no_edition'] or code.startswith('wikimania') or not code.replace('-', '').isalpha():
    return None
  return _TABLES['renamed'].get(code, code)


def language_code(name: str) -> str | None:
  """Wikipedia's code for a language code in a file name or a column; None if it is not a code.

  >>> language_code('iw'), language_code('zh_min_nan'), language_code('DE'), language_code('bg-Latn')
  ('he', 'zh-min-nan', 'de', 'bg-Latn')
  >>> language_code('German'), language_code('')
  (None, None)
  """
  code = name.strip()
  if not _CODE.fullmatch(code):
    return None
  code = code.lower() if code.isupper() else code
  return (code.islower() and language_of_database(code)) or code


def edition_of(code: str) -> str | None:
  """The code of the Wikipedia for a language code, None without one; unknown codes are unchanged.

  >>> edition_of('iw'), edition_of('zh-Hant'), edition_of('fil'), edition_of('hmn')
  ('he', 'zh', 'tl', None)
  """
  return None if code in WITHOUT_EDITION else _EDITIONS.get(code) or language_of_database(code)


def without_lists(languages: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Splits requested languages into the given codes, and the sorted editions of the named lists.

  >>> codes, editions = without_lists(['ext', 'mbert'])
  >>> codes, len(editions)
  (('ext',), 103)
  """
  codes = tuple(language for language in languages if language not in LISTS)
  listed = {edition_of(code) for language in languages for code in LISTS.get(language, ())}
  return codes, tuple(sorted(edition for edition in listed if edition is not None))


def chosen_languages(
  languages: Sequence[str] | None,
  there: Collection[str],
  *,
  where: str,
  say: Callable[[str], None] = lambda line: None,
) -> list[str]:
  """The requested languages among those that are available (`there`), sorted; `where` is their location.

  `languages` are codes, and names of lists, of which the available editions are used; None for all. A missing code
  means the edition of that language: `iw` for `he`. `say` gets a line about missing editions of the lists, if any.
  UsageError, which suggests the nearest codes, if a code is missing, or all of a list.
  """
  codes, listed = (tuple(there), ()) if languages is None else without_lists(languages)
  codes = tuple(code if code in there else edition_of(code) or code for code in codes)
  missing = [code for code in codes if code not in there]
  chosen = sorted({*codes, *listed} & set(there))
  if missing or not chosen:
    near = {code: difflib.get_close_matches(code, there, n=1, cutoff=0.5) for code in missing}
    raise UsageError(
      f'no text in {", ".join(missing or languages or ["any language"])}',
      where=where,
      fix=[
        *(f'did you mean {close[0]!r} for {code!r}?' for code, close in near.items() if close),
        f'choose among {", ".join(sorted(there))}',
      ],
    )
  if not_there := [edition for edition in listed if edition not in there]:
    lists = ' and '.join(name for name in languages or () if name in LISTS)
    say(f'{len(not_there)} of the {len(listed)} Wikipedias of {lists} are missing: {", ".join(not_there)}')
  return chosen
