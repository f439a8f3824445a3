"""Wikipedia's codes for its editions, and the names of their databases."""

# Databases that were named before the code of their edition was settled, and the codes that were given up since.
_RENAMED = {
  'be-x-old': 'be-tarask',
  'in': 'id',
  'iw': 'he',
  'ji': 'yi',
  'jw': 'jv',
  'mo': 'ro',
  'nb': 'no',
}

# Databases in -wiki that are no Wikipedia in a language.
_NO_EDITION = frozenset(
  {
    *('advisory', 'commons', 'donate', 'foundation', 'incubator', 'login', 'media', 'mediawiki', 'meta', 'nostalgia'),
    *('outreach', 'quality', 'sources', 'species', 'strategy', 'sul', 'ten', 'test', 'testcommons', 'testwikidata'),
    *('usability', 'vote', 'wikidata', 'wikifunctions', 'wikimania'),
  }
)


def language_of_database(database: str) -> str | None:
  """Returns Wikipedia's code for the language of a database, None where it is no language edition.

  Args:
    database: with or without its ending, or a code that was given up: `enwiki`, `zh_min_nanwiki`, `zh_min_nan`, `iw`.

  >>> language_of_database('nowiki'), language_of_database('be_x_oldwiki'), language_of_database('zh_min_nan')
  ('no', 'be-tarask', 'zh-min-nan')
  """
  code = database.strip().lower().removesuffix('wiki').strip('-_').replace('_', '-')
  if not code or code in _NO_EDITION or code.startswith('wikimania') or not code.replace('-', '').isalpha():
    return None
  return _RENAMED.get(code, code)
