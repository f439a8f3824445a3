import itertools
import re
import time
import unicodedata

import mwparserfromhell
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.wikipedia import cleaning
from tasks.wikipedia.cleaning import clean_wikitext
from tasks.wikipedia.dumps import Dump, find_dumps
from tasks.wikipedia.templates import DEEPEST, with_templates_read, without_templates
from tasks.wikipedia.text import UNHIDE, count_sentences


def clean(text, language='en', **options):
  return clean_wikitext(text, language=language, **options)


def line(text, language='en', **options):
  """The one paragraph that `text` becomes."""
  [paragraph] = clean(text, language, **options)
  return paragraph


# --- within a sentence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'text', 'language'),
  [
    ('Many [[river]]s flow to the [[sea|sea]].[[Category:Rivers]] [[de:X]]', 'Many rivers flow to the sea.', 'en'),
    ("A '''river'''<ref>Source, {{cite book|title=X}}</ref> ''flows'' on<!-- x -->.", 'A river flows on.', 'en'),
    (
      "A [[File:X.jpg|thumb|A [[bank]] and ''mud''.]]river [https://example.org/x flows] on.",
      'A river flows on.',
      'en',
    ),
    ('A {{nowrap|{{lang|la|flumen}} [[river|broad]]}} flows on.', 'A flumen broad flows on.', 'en'),
    ('A [[river|{{nowrap|{{lang|la|flumen}}}} of {{cvt|3|km}}]] ends.', 'A flumen of 3 km ends.', 'en'),
    ('So {{nowrap|a [[b|{{lang|la|c}} = d]] | e}} it is.', 'So a c = d it is.', 'en'),
    ("The <nowiki>''</nowiki> mark and <nowiki>&lt;</nowiki> sign.", 'The mark and < sign.', 'en'),
    ('{{DISPLAYTITLE:river}}A river flows on.', 'A river flows on.', 'en'),
    ('A river ({{IPA|x}}; born {{x}}, in May) flows on.', 'A river (born, in May) flows on.', 'en'),
    ('* {{flagicon|X}} – a river of X', 'a river of X', 'en'),
    ('A {river} flows [on] {{{1|and}}} on.', 'A {river} flows [on] and on.', 'en'),
    ('Flows{{snd}}since 1900&nbsp;–&amp;nbsp;on.', 'Flows – since 1900 – on.', 'en'),
    ("Dell'<nowiki/>''opera'' si parla molto.", "Dell'opera si parla molto.", 'it'),
    ('一条-{zh-hans:[[软件]]; zh-hant:軟體}-河流在这里流动。', '一条软件河流在这里流动。', 'zh'),
  ],
)
def test_markup_within_a_sentence_leaves_the_words(wikitext, text, language):
  assert line(wikitext, language) == text


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('The word {{lang|la|flumen}} is Latin.', 'The word flumen is Latin.'),
    ('A river ({{lang-de|Fluss}}) flows on.', 'A river (Fluss) flows on.'),
    ('A river {{nowrap|3 km}} {{convert|7|km|mi|abbr=on}} long.', 'A river 3 km 7 km long.'),
    ('It is {{convert|3|to|5|m|ft}} or {{cvt|6|-|8|m}} deep.', 'It is 3 to 5 m or 6–8 m deep.'),
    ('A river of {{formatnum:12345}} fish.', 'A river of 12345 fish.'),
    ('A {{nowrap|{{lang|la|flumen}}}} flows on.', 'A flumen flows on.'),
    ('A half is {{frac|1|2}}, or {{frac|3}}, or {{frac|2|1|2}}.', 'A half is 1/2, or 1/3, or 2 1/2.'),
    ('A river{{snd}}a broad one{{cn|date=May 2020}} flows on.', 'A river – a broad one flows on.'),
    ('{{quote|text=The river is broad.|author=A. Fish}}', 'The river is broad.'),
    ('Un fleuve du {{XXe siècle}} ou de 1900.', 'Un fleuve du XXe siècle ou de 1900.'),
    ('Un fleuve du {{s|XIX|e}} long de {{unité|3|km}}.', 'Un fleuve du XIXe siècle long de 3 km.'),
    ('Der Fluss ({{laS|flumen}}) fließt dahin.', 'Der Fluss (flumen) fließt dahin.'),
    ('Река {{не переведено|Рейн||de|Rhein}} течёт на север.', 'Река Рейн течёт на север.'),
    ('{{読み仮名|川|かわ}}は、水が流れる地形である。', '川（かわ）は、水が流れる地形である。'),
    ('نهر ({{ألمانية|Fluss}}) مجرى مائي واسع.', 'نهر (Fluss) مجرى مائي واسع.'),
    ('It weighs {{val|3|ul=kg}}, ca. {{circa|1900}}, {{gaps|12|345}}.', 'It weighs 3 kg, ca. c. 1900, 12345.'),
    ('Le {{date|1|mai|1900}} à {{heure|8|30}}.', 'Le 1 mai 1900 à 8 h 30.'),
    ('It{{\'}}s a {{"|river}}, {{lang|flumen}}.', 'It’s a river, flumen.'),
    ('A {{LANG|la|flumen}} {{lang_de|x}} ends.', 'A flumen ends.'),
    ("A '''{{lang|la|[[x]] & <b>y</b>}}''' ends.", 'A x & y ends.'),
  ],
)
def test_templates_that_carry_a_part_of_the_sentence_are_read(wikitext, text):
  assert line(wikitext) == text


@given(st.text(st.characters(exclude_characters='{}|=', exclude_categories=('Cs', 'Cc')), max_size=40))
def test_the_text_of_a_template_comes_out_as_it_went_in(text):
  text = ' '.join(text.translate(UNHIDE).split())
  assert with_templates_read(f'A {{{{nowrap|{text}}}}} river.') == f'A {text} river.'


# --- what is no prose ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  'block',
  [
    '{{DISPLAYTITLE:x}}{{flagicon|one|two=2}}',
    '{{Infobox river\n| name = Fluss {{nowrap|x}}\n| map = [[File:X.png|thumb|a [[b]]]]\n}}',
    '{| class="wikitable"\n|-\n! head !! head\n|-\n| cell with {{x|y}} || cell\n{|\n| nested\n|}\n|}',
    '{{Navbox|list=\n{| \n| a\n|}}}',
    '<syntaxhighlight lang="c">\nint main() { return a[[0]]; }\n</syntaxhighlight>',
    '<table><tr><td>a cell <table><tr><td>b</td></tr></table> that is long</td></tr></table>',
    '[[Bild:X.jpg|thumb|A caption\nof two lines with [http://x y] and [[link|label]].]]',
    '<references>\n<ref name="x">A source of the river.</ref>\n</references>',
    '<!-- a comment that is long enough\n\nto be a paragraph -->',
    '{{Main|River}}\n{{about|rivers|the sea|Sea}}',
    ":''For other rivers, see [[River (disambiguation)]].''",
    '* [[One]]\n* [[Two]]',
    '<math>\\sum_{i=0}^n {{a}_i}</math>',
  ],
)
def test_blocks_without_prose_leave_nothing(block):
  assert clean(f'{block}\nA river flows on.') == ['A river flows on.']
  assert clean(f'A river flows on.\n\n== Course ==\n{block}\n\nIt ends here.') == ['A river flows on.', 'It ends here.']


@pytest.mark.parametrize(
  ('text', 'is_kept'),
  [
    ('Two words', False),
    ('Three short words', True),
    ('12 34 56 78 90', False),
    ('川は水が流れる地形', True),
    ('川である', False),
    ('แม่น้ำคือทางน้ำธรรมชาติ', True),
    ('नदी एक जलधारा है।', True),
  ],
)
def test_a_paragraph_has_a_few_words_or_some_characters_of_an_unspaced_script(text, is_kept):
  assert clean(text) == ([text] if is_kept else [])


def test_the_wikis_own_namespaces_are_known():
  text = 'A river flows on. [[Spezifisch:X|a long label here]] [[Ablage:Y]]'
  assert line(text, namespaces={6: 'Spezifisch', 14: 'Ablage'}) == 'A river flows on.'


# --- broken and hostile input ----------------------------------------------------------------------------------------


_MARKS = r"""
{{ }} [[ ]] <ref> </ref> <!-- --> <nowiki> </nowiki> <math> <br> | = &amp; &lt; ref&gt; ( ) ; ~~~~ {{!}} http://a.b/
{{lang|la| {{convert|3|km}} [[File:a.jpg| -{ }- zh-hans: __NOTOC__ 川は水が流れる地形 &#x301;
"""
_FRAGMENTS = (
  *_MARKS.split(),
  *('<a ', '\n{|', '\n|}', '\n== See also ==\n', '\n== A ==\n', '\n* ', '\n: ', ' , ', '\u0301', '\u200b'),
  *('[http://a.b c]', '<ref name=a/>', 'a river flows on ', "'''", "''"),
)
_WIKITEXT = st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=8), max_size=40).map(''.join)
_LANGUAGES = st.sampled_from(['en', 'zh', 'it', 'th', 'xx'])


@settings(max_examples=120, deadline=2000)
@given(_WIKITEXT | st.text(), _LANGUAGES)
@example("''''''''a b c''", 'it')
@example('&amp;lt;ref&amp;gt; a b c', 'en')
@example('# * ; : a b c', 'en')
def test_any_text_gives_clean_paragraphs_that_cleaning_leaves_alone(text, language):
  for paragraph in clean(text, language):
    assert not _RESIDUE.search(paragraph)
    assert paragraph == ' '.join(paragraph.split())
    assert unicodedata.is_normalized('NFC', paragraph)
    assert clean(paragraph, language) == [paragraph]


@pytest.mark.parametrize(
  'text',
  [
    *('{{' * 50_000, '{{lang|la|' * 25_000, '[[' * 50_000, '\n{|' * 50_000, '{{a|[[b|\n{| ' * 12_000),
    *('{{' * 50_000 + '}}' * 50_000, '\n{|' * 25_000 + '\n|}' * 25_000, '[[' * 25_000 + ']]' * 25_000),
    *('<ref>' * 25_000, '<ref>a\n' * 25_000, '<!--' * 25_000, '<' * 125_000, '<a ' * 50_000, "'" * 125_000),
    *('[http://a ' * 25_000, '[http://' + 'a' * 125_000, '&' + 'amp;' * 50_000, ',' * 125_000),
    '(' * 50_000 + ' ,' * 50_000,
    *('= ' * 50_000, '\n' * 125_000, 'a' + '\u0301\u0316' * 50_000, '&#x301;&#x316;' * 25_000, '(German: ' * 12_000),
    *('{{lang|la|' + '[[<a ' * 4_000 + '}} x', '{{lang|la|' + '|' * 19_000 + '}} x', 'a {{convert|3|km}} ' * 25_000),
  ],
  ids=lambda text: repr(text[:12]),
)
def test_hostile_input_takes_no_more_time_than_its_length(text):
  start = time.process_time()
  paragraphs = clean(text, 'zh')
  count_sentences(paragraphs or [text], 'el')
  assert time.process_time() - start < 2


def test_what_the_parser_cannot_take_is_stripped_by_pattern(monkeypatch):
  def fail(*args, **kwargs):
    raise mwparserfromhell.parser.ParserError('no')

  monkeypatch.setattr(mwparserfromhell, 'parse', fail)
  assert line('The word {{lang|la|flumen}} is Latin.') == 'The word flumen is Latin.'
  nested = '{{a|' * DEEPEST + 'x' + '}}' * DEEPEST  # no deeper than MediaWiki allows
  assert [without_templates(text) for text in (nested, '{{a|' + nested + '}}')] == ['x', '{{a|x}}']
  monkeypatch.setattr(cleaning, 'LARGEST_ARTICLE', 10)
  monkeypatch.setattr(mwparserfromhell, 'parse', lambda *args, **kwargs: pytest.fail('it was parsed'))
  assert line('The word {{lang|la|flumen}} is Latin.') == 'The word flumen is Latin.'


def test_the_scanner_agrees_with_the_parser_on_plain_markup():
  """Links, bold, italic, tags and entities: the patterns give what `mwparserfromhell` gives."""
  links = ['a [[b]] c', 'g [[h|i j]] k', '[http://a t] u v']
  marks = ["d '''e''' f", "''l'' m n", 'o &amp; p &eacute;', '<b>q</b> r s']
  for some in itertools.permutations([*links, *marks], 3):
    text = ' '.join(some)
    assert line(text) == ' '.join(mwparserfromhell.parse(text).strip_code().split())


# --- real articles ---------------------------------------------------------------------------------------------------

_RESIDUE = re.compile(r"\[\[|\]\]|\{\{|\}\}|'''|''|<ref|\{\||\|\}|&nbsp|<!--|\|thumb|thumb\|")
# Signs of poor cleaning that may also be meant.
_UNTIDY = re.compile(r'\( | \)|\(\)|\([,;:]|[,;] ?\)| [,.](?=\s|$)|\S\|\S|https?://|</?\w+[ />]|\.(?:jpg|svg|png)\b|,,')
_SCRIPTS = {
  'Latin': ['en', 'vi', 'da', 'es', 'fr', 'it', 'sw', 'tr', 'fi', 'pl'],
  'Cyrillic': ['uk', 'ru', 'mk', 'mn', 'kk'],
  'Greek': ['el'],
  'Armenian': ['hy'],
  'Arabic': ['ar', 'fa', 'ur', 'arz'],
  'Devanagari': ['hi', 'ne', 'new', 'sa'],
  'Han': ['zh'],
  'Hangul': ['ko'],
}


@pytest.fixture(scope='module')
def real(shared_data):
  """Paragraphs and wikitext of articles of real dumps, by language: at most half a million characters of each dump."""
  cleaned = {}
  found = find_dumps(str(shared_data / 'dumps'))
  for language in itertools.chain(*_SCRIPTS.values()):
    for dump in map(Dump, found[language]):
      size = 0
      for page in dump.articles():
        paragraphs = clean_wikitext(page.text, language=language, namespaces=dump.namespaces)
        cleaned.setdefault(language, []).append((page, paragraphs))
        size += len(page.text)
        if size > 500_000:
          break
  return cleaned


@pytest.mark.parametrize('script', _SCRIPTS)
def test_real_articles_keep_their_prose_and_no_markup(real, script):
  paragraphs = [p for language in _SCRIPTS[script] for _, ps in real[language] for p in ps]
  residue = [p for p in paragraphs if _RESIDUE.search(p)]
  untidy = [p for p in paragraphs if _UNTIDY.search(p)]
  assert len(paragraphs) > 10
  assert len(residue) <= 0.001 * len(paragraphs), residue[:5]
  assert len(untidy) <= max(1, 0.005 * len(paragraphs)), untidy[:5]
  source = sum(len(page.text) for language in _SCRIPTS[script] for page, _ in real[language])
  assert 0.15 < sum(map(len, paragraphs)) / source < 0.8
  assert max(map(len, paragraphs)) < 20_000
  assert all(any(paragraphs for _, paragraphs in real[language]) for language in _SCRIPTS[script])


def test_nothing_real_needs_the_fallback_or_is_dropped_because_it_does_not_come_to_rest(real, monkeypatch):
  monkeypatch.setattr(cleaning.templates, 'without_templates', lambda line: pytest.fail(f'not parsed: {line}'))
  for language, articles in real.items():
    for page, _ in articles[:5]:
      paragraphs = clean_wikitext(page.text, language=language)
      with monkeypatch.context() as patched:
        patched.setattr(cleaning, '_MOST_ROUNDS', 50)
        assert clean_wikitext(page.text, language=language) == paragraphs
  assert max(len(page.text) for articles in real.values() for page, _ in articles) < cleaning.LARGEST_ARTICLE
