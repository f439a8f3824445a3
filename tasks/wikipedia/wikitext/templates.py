"""Templates that carry a part of the sentence they stand in, and how each of them reads.

To add one, put its name, in small letters, into the first table below that fits.
"""

import functools
import re
from collections.abc import Callable, Mapping

import mwparserfromhell
from mwparserfromhell.nodes import Argument, Template
from mwparserfromhell.parser import ParserError

from tasks.wikipedia.wikitext import placeholders

_LARGEST_PARSED = 20_000  # characters of a line that the parser is given
_MOST_BARS = 100  # in a template that is part of a sentence
DEEPEST = 60  # templates, tables and links open within each other; MediaWiki itself stops at 40 templates

# Templates that stand in a sentence, and the number of the argument that is read there. All others are dropped:
# notes, pronunciations, icons, and whatever stands beside the text.
_ARGUMENT_SHOWN = {
  # words of another language, or of another script
  **dict.fromkeys(('lang', 'langx', 'langue', 'llang', 'мова', 'язык', 'lingua', 'ngôn ngữ', 'en langue', 'lang-x'), 2),
  **dict.fromkeys(('transl', 'translit', 'transliteration', 'wikt-lang', 'langwithname', 'rtl-lang', 'link audio'), 2),
  **dict.fromkeys(
    ('unicode', 'script', 'polytonic', 'iast', 'grc', 'nastaliq', 'hebrew', 'hebr', 'persian', 'urdu'), 1
  ),
  **dict.fromkeys(
    ('nihongo', 'nihongo2', 'nihongo3', 'nhật', 'նիհոնգո', 'ruby', 'ruby-ja', 'ruby-zh', 'jap', 'vie'), 1
  ),
  **dict.fromkeys(
    ('jis2004フォント', '補助漢字フォント', 'cp932フォント', 'indic', 'kor', 'angbr', 'angle bracket'), 1
  ),
  **dict.fromkeys(('latin', 'allemand', 'anglais', 'russo', 'latino', 'tedesco', 'inglese', 'francese', 'русский'), 1),
  **dict.fromkeys(('ألمانية', 'إنجليزية', 'فرنسية', 'لاتينية', 'يونانية', 'روسية', 'إسبانية', 'إيطالية', 'تركية'), 1),
  **dict.fromkeys(('آلمانی', 'انگلیسی', 'فرانسوی', 'لاتین', 'یونانی', 'روسی', 'عربی', 'فارسی', 'عبرية'), 1),
  **dict.fromkeys(('de', 'en', 'fr', 'es', 'it', 'ru', 'la', 'pl', 'el', 'ja', 'pt', 'nl', 'sv', 'lt', 'lv', 'uk'), 1),
  # how words look
  **dict.fromkeys(('nowrap', 'nobr', 'nobreak', 'nowrapped', 'nbr', 'tutto attaccato', 'ta', 'small', 'smaller'), 1),
  **dict.fromkeys(('big', 'larger', 'em', 'strong', 'sc', 'sc2', 'smallcaps', 'small caps', 'smcp', 'allcaps'), 1),
  **dict.fromkeys(
    ('maiuscoletto', 'versaleta', 'versalita', 'aut', 'mono', 'code', 'tt', 'kbd', 'key', 'samp', 'var'), 1
  ),
  **dict.fromkeys(
    ('mvar', 'math', 'chem2', 'nobold', 'noitalic', 'noitalics', 'sup', 'sub', 'underline', 'u', 'dfn'), 1
  ),
  **dict.fromkeys(('abbr', 'abréviation', 'abbrlink', 'tooltip', 'finedetail', 'color', 'font color', 'uc', 'lc'), 1),
  **dict.fromkeys(('"', "'", '«', 'guil', 'sic', 'sic?', 'as written', 'not a typo', 'typo', 'visible anchor'), 1),
  **dict.fromkeys(('vanchor', 'anker', 'lcfirst', 'ucfirst', 'quote inline', 'qi'), 1),
  # doubted words
  **dict.fromkeys(('citation needed span', 'fact span', 'cns', 'citazione necessaria', 'chiarire', 'senza fonte'), 1),
  **dict.fromkeys(('要出典範囲', '要検証範囲', 'refnec', 'demande de source', 'référence nécessaire'), 1),
  # links that are not yet there, or lead elsewhere
  **dict.fromkeys(
    ('ill', 'interlanguage link', 'illm', 'link-interwiki', 'iw', '仮リンク', 'le', 'нп', 'нп2', 'нп3'), 1
  ),
  **dict.fromkeys(('нп4', 'нп5', 'не переведено', 'не переведено 2', 'не переведено 5', 'не перекладено', 'lknn'), 1),
  **dict.fromkeys(('임시링크', '임시 링크', 'lien', 'liên kết ngôn ngữ', 'nhl', 'linktext', 'wikt', 'section link'), 1),
  **dict.fromkeys(('flag', 'flagcountry', 'flagu', 'flagg', 'flag+link', '국기', 'drapeau2', 'դրոշ', 'դրոշավորում'), 1),
  **dict.fromkeys(('sclass', 'ship', 'uss', 'hms', 'country'), 1),
  # numbers
  **dict.fromkeys(('formatnum', 'nts', 'num', 'nombre', 'число', 'numero', 'fmtn', 'szám', 'decimals'), 1),
  # quotations
  **dict.fromkeys(('quote', 'blockquote', 'cquote', 'quotation', 'bquote', 'rquote', 'pull quote', 'poemquote'), 1),
  **dict.fromkeys(('cita', 'citazione', 'citation bloc', 'цитата', 'zitat', 'citat', 'cytat', 'citace', 'քաղվածք'), 1),
}

# The name of the argument that holds the text, where it is not given by number.
_NAMED_TEXT = ('text', 'quote', 'content', 'texte', 'trad', 'lt', 'текст', 'testo', 'texto')

_CONSTANT = {
  **dict.fromkeys(('nbsp', 'space', 'spaces', 'sp', 'esd', 'thinsp', 'thin space', 'hair space', 'nbs'), ' '),
  **dict.fromkeys(('snd', 'spnd', 'spaced ndash', 'spaced en dash', 'sndash', 'snds', 'spndash', '--'), ' – '),
  **dict.fromkeys(('ndash', 'endash', 'en dash', 'nsndns'), '–'),
  **dict.fromkeys(('mdash', 'emdash', 'em dash', '---', '—', 'тире'), '—'),
  **dict.fromkeys(('spaced mdash', 'smdash', 'spaced em dash'), ' — '),
  **dict.fromkeys(('·', '•', 'dot', 'bull', 'middot', '⋅'), ' · '),
  **dict.fromkeys(("'", 'apostrophe', '’'), '’'),
  **dict.fromkeys(("'s", 'apos-s', '’s'), '’s'),
  **dict.fromkeys(('...', '…', 'ellipsis'), '…'),
  **dict.fromkeys(('1er', 'ier'), '1er'),
  **dict.fromkeys(('e', 'ème'), 'e'),
  **dict.fromkeys(('км²', 'км2'), 'км²'),
  **dict.fromkeys(('km²', 'km2'), 'km²'),
  **{'!': '|', '=': '=', '(': '{', ')': '}', 'er': 'er', 'n°': 'nº', 'number sign': '№', 'eqm': '⇌'},
  **{'av jc': 'av. J.-C.', 'ap jc': 'apr. J.-C.', 'до н. э.': 'до н. э.', 'градус цельсія': '°C'},
}

_Arguments = Mapping[str, str]


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


def _reading(arguments: _Arguments) -> str:
  return f'{arguments.get("1", "")}（{arguments.get("2", "")}）'


def _century(arguments: _Arguments) -> str:
  return f'{arguments.get("1", "")}{arguments.get("2", "e")} siècle'


def _last(arguments: _Arguments) -> str:
  numbers = [key for key in arguments if key.isdecimal()]
  return arguments[max(numbers, key=int)] if numbers else ''


def _joined(arguments: _Arguments) -> str:
  return ' '.join(value for key, value in arguments.items() if key.isdecimal() and value)


def _gapless(arguments: _Arguments) -> str:
  return ''.join(value for key, value in arguments.items() if key.isdecimal())


_COMPUTED: dict[str, Callable[[_Arguments], str]] = {
  **dict.fromkeys(('convert', 'cvt', 'chuyển đổi', 'unidad', 'convertir', 'conversie'), _converted),
  **dict.fromkeys(('val', 'unité', 'unite', 'tmp', 'm', 'unità', 'число с единицей'), _quantity),
  **dict.fromkeys(('frac', 'sfrac', 'fraction', 'дробь', 'fracción'), _fraction),
  **dict.fromkeys(('読み仮名', '読み仮名 ruby不使用', 'ふりがな'), _reading),
  **dict.fromkeys(('s', 's-', 'sp-', '-s', '-s-'), _century),
  **dict.fromkeys(('tsl', 'translink', 'internal link helper'), _last),
  **dict.fromkeys(('date', 'date-', 'date de naissance', 'date de décès', 'daton', 'дата'), _joined),
  **dict.fromkeys(('gaps', 'formatted number', 'chem'), _gapless),
  'circa': lambda arguments: f'c. {arguments.get("1", "")}'.rstrip(),
  'c.': lambda arguments: f'c. {arguments.get("1", "")}'.rstrip(),
  'as of': lambda arguments: f'As of {arguments.get("1", "")}'.rstrip(),
  'siglo': lambda arguments: f'siglo {arguments.get("1", "")}',
  'séc': lambda arguments: f'século {arguments.get("1", "")}',
  'segle': lambda arguments: f'segle {arguments.get("1", "")}',
  'm s.l.m.': lambda arguments: f'{arguments.get("1", "")} m s.l.m.',
  'exp': lambda arguments: f'×10^{arguments.get("1", "")}',
  'euro': lambda arguments: f'{arguments.get("1", "")} €',
  'us$': lambda arguments: f'US${arguments.get("1", "")}',
  'incise': lambda arguments: f'– {arguments.get("1", "")} –',
  'heure': lambda arguments: f'{arguments.get("1", "")} h {arguments.get("2", "")}'.rstrip(),
}
_PARSER_FUNCTION = re.compile(r'\s*(formatnum|lc|uc|lcfirst|ucfirst|nowrap)\s*:', re.IGNORECASE)
# Families of templates with the text first: `{{lang-la|…}}`, `{{k-de|…}}` (Finnish), `{{link-de|…}}` (Chinese),
# `{{script/Arabic|…}}`; German ones bear a code and a capital S, `{{laS|…}}`.
_TEXT_FIRST = re.compile(r'lang-[a-z-]{2,14}\d?( short)?|(?:k|link)-[a-z]{2,3}|script/[a-z]+')
_CENTURY = re.compile(r'[ivxlc]+er? siècle')  # French: `{{XIXe siècle}}` reads as it is called
_CODE_S = re.compile(r'[a-z]{2,3}S')


@functools.lru_cache(maxsize=65536)
def _template_rule(name: str) -> Callable[[_Arguments], str] | None:
  """How a template reads in a sentence; None for those that are no part of one."""
  lower = ' '.join(name.replace('_', ' ').split()).lower()
  if _CODE_S.fullmatch(name) or _TEXT_FIRST.fullmatch(lower):
    return lambda arguments: arguments.get('1', '')
  if _CENTURY.fullmatch(lower):
    return lambda arguments: name
  if lower in _COMPUTED:
    return _COMPUTED[lower]
  number = _ARGUMENT_SHOWN.get(lower)
  constant = _CONSTANT.get(lower)
  if number is None and constant is None:
    return None

  def shown(arguments: _Arguments) -> str:
    if number is None:
      return constant
    for key in (str(number), *_NAMED_TEXT):
      if arguments.get(key):
        return arguments[key]
    # A quotation box with a source only, `{{'}}` without an argument, `{{lang|text}}`.
    return constant if constant is not None else arguments.get('1', '')

  return shown


_INNERMOST = re.compile(r'\{\{([^{}]*+)\}\}')
# `{{{name|default}}}` stands in the text of templates, and in articles that were copied from one.
_PARAMETER = re.compile(r'\{\{\{[^{}|]{0,100}(?:\|([^{}|]{0,1000}))?\}\}\}')


def with_parameters_read(text: str) -> str:
  """Puts its default for each parameter `{{{name|default}}}`."""
  return _PARAMETER.sub(r'\1', text) if '{{{' in text else text


def kept_for_reading(content: str) -> str:
  """The template `{{content}}` on one line where it is part of a sentence, for `with_templates_read`; else nothing."""
  is_small = len(content) <= _LARGEST_PARSED and content.count('|') <= _MOST_BARS
  if is_small and _template_rule(_template_name(content)) is not None:
    return '{{' + content.replace('\n', ' ') + '}}'
  return ''


def with_templates_read(line: str) -> str | None:
  """Puts what a reader sees for each template; None where the line is too long for the parser, or it fails."""
  if len(line) > _LARGEST_PARSED:
    return None
  try:
    # Of all markup the parser is shown templates only: it tries every reading of a bracket or a tag that is never
    # closed, which on a few kilobytes of them takes it minutes.
    parsed = mwparserfromhell.parse(placeholders.shield(line), skip_style_tags=True)
    return placeholders.unshield(_read_nodes(parsed))
  except (ParserError, RecursionError, ValueError, OverflowError):
    return None


def without_templates(line: str) -> str:
  """Puts the last argument for each template, by pattern: a guess for where the parser is no help."""
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
  """The text with its templates read; all other markup as it stands."""
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
  name = placeholders.unshield(str(template.name))
  arguments: dict[str, str] = {}
  if function := _PARSER_FUNCTION.match(name):
    name, arguments['1'] = function[1], name[function.end() :].strip()
  rule = _template_rule(name.strip())
  if rule is None:
    return ''
  for parameter in template.params:
    arguments[str(parameter.name).strip()] = _read_nodes(parameter.value).strip()
  return rule(arguments)
