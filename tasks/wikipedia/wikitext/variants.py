"""Language converters, `-{zh-hans:…;zh-hant:…}-`: of a text written for several scripts or standards, one is read."""

import re

# Editions written in several scripts or standards, and the one to read, best first.
_CHINESE = ('zh-hans', 'zh-cn', 'zh')
_CONVERTED = {
  **dict.fromkeys(('zh', 'wuu', 'gan', 'zh-classical', 'zh-yue'), _CHINESE),
  **dict.fromkeys(('sr', 'sh'), ('sr-ec', 'sr-cyrl')),
  **dict.fromkeys(('kk', 'ku', 'uz', 'tg', 'crh', 'iu', 'shi', 'ban', 'tly', 'mni'), ()),
}
_CONVERTER = re.compile(r'-\{([^{}]*+)\}-')
_VARIANT = re.compile(r'[a-z]{2,3}(?:-[a-z]{2,6})?', re.IGNORECASE)


def with_one_variant(text: str, language: str) -> str:
  """Puts one reading for each `-{…}-`: the language's first choice if it is there, else the first that is given.

  Args:
    text: wikitext.
    language: Wikipedia's code; where its edition has no converter, the text is returned as it is.
  """
  if '-{' not in text or language not in _CONVERTED:
    return text
  choices = _CONVERTED[language]

  def reading(match: re.Match[str]) -> str:
    flags, bar, rules = match[1].rpartition('|')
    if bar and set(flags.replace(';', '').strip()) & set('HTD-'):
      return ''  # a rule for the rest of the article, or a title: nothing is shown
    if 'R' in flags:
      return rules
    variants = {}
    for rule in rules.split(';'):
      code, colon, shown = rule.rpartition('=>')[2].partition(':')
      if colon and _VARIANT.fullmatch(code.strip()):
        variants.setdefault(code.strip().lower(), shown.strip())
    if not variants:
      return rules
    return next((variants[choice] for choice in choices if choice in variants), next(iter(variants.values())))

  for _ in range(3):  # nested converters are rare, and shallow
    text, changed = _CONVERTER.subn(reading, text)
    if not changed:
      break
  return text
