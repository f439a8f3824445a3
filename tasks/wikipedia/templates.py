"""Templates that are part of a sentence, and the text that they stand for.

To add one, add its name, in lower case, to the first table of `templates.json` that fits. The tables are
`first_argument` and `second_argument`, the argument to read, grouped by purpose; `constant`, a fixed text; `pattern`, a
text with `{1}` and `{2}` for arguments, and `trimmed_pattern`, the same without spaces at its end; `computed`, a
function below. All other templates are dropped: notes, pronunciations, icons, and everything that is not part of the
text.
"""

import functools
import json
import pathlib
import re
from collections.abc import Callable, Mapping

import mwparserfromhell
from mwparserfromhell.nodes import Argument, Template
from mwparserfromhell.parser import ParserError

from tasks.wikipedia.text import SHIELD, UNSHIELD

_LARGEST_PARSED = 20_000  # maximum number of characters of a line for the parser
_MOST_BARS = 100  # in a template that is part of a sentence
DEEPEST = 60  # depth of nested templates, tables and links; MediaWiki allows 40 templates

# Names of the argument with the text, if it is not given by number.
_NAMED_TEXT = ('text', 'quote', 'content', 'texte', 'trad', 'lt', 'текст', 'testo', 'texto')

_Arguments = Mapping[str, str]
_Rule = Callable[[_Arguments], str]


def _converted(arguments: _Arguments) -> str:
  """`{{convert|3|km|mi}}` as '3 km', `{{convert|3|to|5|km}}` as '3 to 5 km'."""
  first, second, third, unit = (arguments.get(str(i), '') for i in (1, 2, 3, 4))
  joint = {'-': '–', 'x': ' × ', '+': ' + ', 'by': ' by ', 'to': ' to ', 'and': ' and ', 'or': ' or ', '×': ' × '}
  joint |= {'to(-)': ' to ', '–': '–', 'to about': ' to about ', 'đến': ' đến '}
  if second in joint and re.match(r'[\d.,]', third):
    return f'{first}{joint[second]}{third} {unit}'.rstrip()
  return f'{first} {second}'.rstrip()


def _quantity(arguments: _Arguments) -> str:
  """A number and its unit: `{{unité|3|km}}`, `{{val|3|u=km}}`, `{{M|3|ul=km}}`."""
  unit = next((arguments[key] for key in ('ul', 'u', 'up') if arguments.get(key)), '')
  if not unit:
    unit = next((arguments[key] for key in ('2', '3') if re.search(r'[^\W\d]', arguments.get(key, ''))), '')
  return f'{arguments.get("1", "")} {unit}'.strip()


def _fraction(arguments: _Arguments) -> str:
  parts = [arguments[str(i)] for i in (1, 2, 3) if arguments.get(str(i))]
  if len(parts) == 3:
    return f'{parts[0]} {parts[1]}/{parts[2]}'
  return '/'.join(parts if len(parts) == 2 else ['1', *parts])


def _last(arguments: _Arguments) -> str:
  numbers = [key for key in arguments if key.isdecimal()]
  return arguments[max(numbers, key=int)] if numbers else ''


def _joined(gap: str, arguments: _Arguments) -> str:
  return gap.join(value for key, value in arguments.items() if key.isdecimal() and value)


_COMPUTED: dict[str, _Rule] = {
  'converted': _converted,
  'quantity': _quantity,
  'fraction': _fraction,
  'century': lambda arguments: f'{arguments.get("1", "")}{arguments.get("2", "e")} siècle',
  'last': _last,
  'joined': functools.partial(_joined, ' '),
  'gapless': functools.partial(_joined, ''),
}


def _fill(pattern: str, arguments: _Arguments) -> str:
  return pattern.format('', arguments.get('1', ''), arguments.get('2', ''))


def _read_argument(number: str, otherwise: str | None, arguments: _Arguments) -> str:
  for key in (number, *_NAMED_TEXT):
    if arguments.get(key):
      return arguments[key]
  # A quotation box with a source only, `{{'}}` without an argument, `{{lang|text}}`.
  return otherwise if otherwise is not None else arguments.get('1', '')


@functools.cache
def _rules() -> dict[str, _Rule]:
  """Rules of the templates in the tables, by name in lower case."""
  tables = json.loads((pathlib.Path(__file__).parent / 'templates.json').read_text('utf-8'))
  constants = {name: text for text, names in tables['constant'].items() for name in names}
  rules: dict[str, _Rule] = {}
  for text, names in tables['constant'].items():
    rules |= dict.fromkeys(names, lambda arguments, text=text: text)
  for number, table in (('1', 'first_argument'), ('2', 'second_argument')):
    names = [name for group in tables[table].values() for name in group]
    rules |= {name: functools.partial(_read_argument, number, constants.get(name)) for name in names}
  for pattern, names in tables['pattern'].items():
    rules |= dict.fromkeys(names, functools.partial(_fill, pattern))
  for pattern, names in tables['trimmed_pattern'].items():
    rules |= dict.fromkeys(names, lambda arguments, pattern=pattern: _fill(pattern, arguments).rstrip())
  for function, names in tables['computed'].items():
    rules |= dict.fromkeys(names, _COMPUTED[function])
  return rules


_PARSER_FUNCTION = re.compile(r'\s*(formatnum|lc|uc|lcfirst|ucfirst|nowrap)\s*:', re.IGNORECASE)
# Families of templates with the text first: `{{lang-la|…}}`, `{{k-de|…}}` (Finnish), `{{link-de|…}}` (Chinese),
# `{{script/Arabic|…}}`; German ones have a code and a capital S, `{{laS|…}}`.
_TEXT_FIRST = re.compile(r'lang-[a-z-]{2,14}\d?( short)?|(?:k|link)-[a-z]{2,3}|script/[a-z]+')
_CENTURY = re.compile(r'[ivxlc]+er? siècle')  # French: `{{XIXe siècle}}` reads like its name
_CODE_S = re.compile(r'[a-z]{2,3}S')


@functools.lru_cache(maxsize=65536)
def _template_rule(name: str) -> _Rule | None:
  """The rule of a template; None if it is not part of a sentence."""
  lower = ' '.join(name.replace('_', ' ').split()).lower()
  if _CODE_S.fullmatch(name) or _TEXT_FIRST.fullmatch(lower):
    return lambda arguments: arguments.get('1', '')
  if _CENTURY.fullmatch(lower):
    return lambda arguments: name
  return _rules().get(lower)


_INNERMOST = re.compile(r'\{\{([^{}]*+)\}\}')
# `{{{name|default}}}` occurs in templates, and in articles copied from one.
_PARAMETER = re.compile(r'\{\{\{[^{}|]{0,100}(?:\|([^{}|]{0,1000}))?\}\}\}')


def with_parameters_read(text: str) -> str:
  """Replaces each parameter `{{{name|default}}}` by its default."""
  return _PARAMETER.sub(r'\1', text) if '{{{' in text else text


def kept_for_reading(content: str) -> str:
  """The template `{{content}}` on one line if it is part of a sentence, for `with_templates_read`; else ''."""
  is_small = len(content) <= _LARGEST_PARSED and content.count('|') <= _MOST_BARS
  if is_small and _template_rule(_template_name(content)) is not None:
    return '{{' + content.replace('\n', ' ') + '}}'
  return ''


def with_templates_read(line: str) -> str | None:
  """Replaces each template by its visible text; None if the line is too long for the parser, or the parser fails."""
  if len(line) > _LARGEST_PARSED:
    return None
  try:
    # The parser gets templates only, without other markup: it tries every interpretation of an unclosed bracket or tag,
    # which takes minutes for a few kilobytes of them.
    parsed = mwparserfromhell.parse(line.translate(SHIELD), skip_style_tags=True)
    return _read_nodes(parsed).translate(UNSHIELD)
  except (ParserError, RecursionError, ValueError, OverflowError):
    return None


def without_templates(line: str) -> str:
  """Replaces each template by its last argument, by pattern: a guess if the parser cannot be used."""
  for _ in range(DEEPEST):
    line, changed = _INNERMOST.subn(lambda match: match[1].rpartition('|')[2], line)
    if not changed:
      break
  return line


def _template_name(content: str) -> str:
  if function := _PARSER_FUNCTION.match(content):
    return function[1]
  return content[:200].partition('|')[0].strip()


def _read_nodes(wikicode: mwparserfromhell.wikicode.Wikicode) -> str:
  """The text with templates replaced by their visible text; other markup is unchanged."""
  out = []
  for node in wikicode.nodes:
    if isinstance(node, Template):
      out.append(_read_template(node))
    elif isinstance(node, Argument):
      out.append(_read_nodes(node.default) if node.default is not None else '')
    else:
      out.append(str(node))
  return ''.join(out)


def _read_template(template: Template) -> str:
  name = str(template.name).translate(UNSHIELD)
  arguments: dict[str, str] = {}
  if function := _PARSER_FUNCTION.match(name):
    name, arguments['1'] = function[1], name[function.end() :].strip()
  rule = _template_rule(name.strip())
  if rule is None:
    return ''
  for parameter in template.params:
    arguments[str(parameter.name).strip()] = _read_nodes(parameter.value).strip()
  return rule(arguments)
