import itertools
import pathlib
import re
import time
import unicodedata

import mwparserfromhell
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.wikipedia import cleaning
from tasks.wikipedia.cleaning import CleaningCounts, clean_wikitext, count_sentences
from tasks.wikipedia.dumps import find_dumps, read_articles, read_namespaces

DUMPS = pathlib.Path(__file__).resolve().parents[3] / '../shared/data/dumps'


def clean(text, language='en', **options):
  return clean_wikitext(text, language=language, **options)


def line(text, language='en', **options):
  """The one paragraph that `text` becomes."""
  [paragraph] = clean(text, language, **options)
  return paragraph


# --- within a sentence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('The [[river]] flows to the [[sea|wide sea]].', 'The river flows to the wide sea.'),
    ('Many [[river]]s flow [[Mouth (river)|]] here.', 'Many rivers flow Mouth here.'),
    ('See [[#Course|its course]] and [[:de:Fluss|Fluss]] and [[:fr:Fleuve]].', 'See its course and Fluss and Fleuve.'),
    ('A word from [[wikt:flow|flow]] and [[wikt:ebb]].', 'A word from flow and ebb.'),
    ('A river flows. [[de:Fluss]] [[fr:Fleuve]] [[zh-min-nan:Hô]]', 'A river flows.'),
    ('A river flows.[[Category:Rivers|*]] [[Kategorie:Flüsse]]', 'A river flows.'),
    ("A '''bold''' and ''slanted'' and '''''loud''''' river.", 'A bold and slanted and loud river.'),
    ('A [https://example.org/x clear] river [https://example.org].', 'A clear river.'),
    ('A river, see https://example.org/a?b=c for more.', 'A river, see for more.'),
    ('A river<ref>Source, {{cite book|title=X}}</ref> flows<ref name="a" /> on<ref name=b/>.', 'A river flows on.'),
    ('A river<ref name="x">[[File:X.jpg]] a\n\nb</ref> flows on.', 'A river flows on.'),
    ('A river<!-- not\nshown --> flows on.', 'A river flows on.'),
    ('A <small>small</small> river<br />flows<sup>2</sup> <span class="x">on</span>.', 'A small river flows2 on.'),
    ('Rivers &amp; lakes &ndash; 5&nbsp;km &#233; &#xE9;.', 'Rivers & lakes – 5 km é é.'),
    ('A river&amp;nbsp;flows on.', 'A river flows on.'),
    ('A river __NOTOC__flows __KEIN_INHALTSVERZEICHNIS__on.', 'A river flows on.'),
    ('النهر __لافهرس__ مجرى مائي واسع.', 'النهر مجرى مائي واسع.'),
    ('Call <code>__init__</code> to begin here.', 'Call __init__ to begin here.'),
    ('{{DISPLAYTITLE:river}}A river flows on.', 'A river flows on.'),
    ("The <nowiki>''</nowiki> mark and <nowiki>&lt;</nowiki> sign.", 'The mark and < sign.'),
    ('Let <math>x</math> be <math>\\frac{a}{b}</math>, then stop.', 'Let x be, then stop.'),
    ('A river <ref>never closed\nflows on and on.', 'A river flows on and on.'),
    ('A river <ref>forgotten end\nflows on.<ref>closed</ref> It ends here.', 'A river flows on. It ends here.'),
    ('A <span style="display:none">0012</span>river flows on.', 'A river flows on.'),
    ('The <ruby>川<rp>(</rp><rt>かわ</rt><rp>)</rp></ruby> is a river.', 'The 川 is a river.'),
    ('A river\u00ad bed\u200b of\u200e  white\u00a0\u3000stone.', 'A river bed of white stone.'),
    ('Cafe\u0301 by the river.', 'Café by the river.'),
    ('A [[Danube|blue river] flows [Rhine|Rhenish]] on.', 'A blue river flows Rhenish on.'),
    ("A [[File:X.jpg|thumb|A [[bank]] and ''mud''. [[File:Y.png|x]]]]river flows on.", 'A river flows on.'),
    ('A [[Datei:X.jpg|mini|hoch=1]]river [[ไฟล์:X.jpg|thumb]]flows [[Xyz:Unknown.svg|20px]]on.', 'A river flows on.'),
    ('A [[media:X.ogg|listen]] river flows on.', 'A river flows on.'),
  ],
)
def test_markup_within_a_sentence_leaves_the_words(wikitext, text):
  assert line(wikitext) == text


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ("L''''armonium''' suona bene.", "L'armonium suona bene."),
    ("L'''Unità'' è un giornale italiano.", "L'Unità è un giornale italiano."),
    ("Dell'<nowiki/>''opera'' si parla molto.", "Dell'opera si parla molto."),
    ("Un '''''misto''' di'' segni diversi.", 'Un misto di segni diversi.'),
  ],
)
def test_apostrophes_beside_marks_of_bold_and_italic_survive(wikitext, text):
  assert line(wikitext, 'it') == text


@pytest.mark.parametrize(
  ('wikitext', 'text', 'language'),
  [
    ('The word {{lang|la|flumen}} is Latin.', 'The word flumen is Latin.', 'en'),
    ('A river ({{lang-de|Fluss}}) flows on.', 'A river (Fluss) flows on.', 'en'),
    ('A river {{nowrap|3 km}} {{convert|7|km|mi|abbr=on}} long.', 'A river 3 km 7 km long.', 'en'),
    ('It is {{convert|3|to|5|m|ft}} or {{cvt|6|-|8|m}} deep.', 'It is 3 to 5 m or 6–8 m deep.', 'en'),
    ('A river of {{formatnum:12345}} fish.', 'A river of 12345 fish.', 'en'),
    ('A {{nowrap|{{lang|la|flumen}} [[river|broad]]}} flows on.', 'A flumen broad flows on.', 'en'),
    ('The {{nowrap|[[A|E=mc]]}} formula is short.', 'The E=mc formula is short.', 'en'),
    ('A half is {{frac|1|2}}, or {{frac|3}}, or {{frac|2|1|2}}.', 'A half is 1/2, or 1/3, or 2 1/2.', 'en'),
    ('A river{{snd}}a broad one{{cn|date=May 2020}} flows on.', 'A river – a broad one flows on.', 'en'),
    ('{{quote|text=The river is broad.|author=A. Fish}}', 'The river is broad.', 'en'),
    ('Un fleuve du {{XXe siècle}} ou de 1900.', 'Un fleuve du XXe siècle ou de 1900.', 'fr'),
    ('Un fleuve du {{s|XIX|e}} long de {{unité|3|km}}.', 'Un fleuve du XIXe siècle long de 3 km.', 'fr'),
    ('Der Fluss ({{laS|flumen}}) fließt dahin.', 'Der Fluss (flumen) fließt dahin.', 'de'),
    ('Река {{не переведено|Рейн||de|Rhein}} течёт на север.', 'Река Рейн течёт на север.', 'ru'),
    ('{{読み仮名|川|かわ}}は、水が流れる地形である。', '川（かわ）は、水が流れる地形である。', 'ja'),
    ('نهر ({{ألمانية|Fluss}}) مجرى مائي واسع.', 'نهر (Fluss) مجرى مائي واسع.', 'ar'),
  ],
)
def test_templates_that_carry_a_part_of_the_sentence_are_read(wikitext, text, language):
  assert line(wikitext, language) == text


@pytest.mark.parametrize(
  ('wikitext', 'text'),
  [
    ('A river ({{IPA|x}}; {{audio|x.ogg}}) flows on.', 'A river flows on.'),
    ('A river ({{IPA|x}}; born {{x}}, in May) flows on.', 'A river (born, in May) flows on.'),
    ('A river (IPA: {{IPA|x}}, German: {{x}}) flows on.', 'A river flows on.'),
    ('A river (German: {{x}}, a stream) flows on.', 'A river (a stream) flows on.'),
    ('A river （{{x}}） flows on.', 'A river flows on.'),
    ('A river (1900 – {{x}}) flows on.', 'A river (1900) flows on.'),
    ('A river ( broad ) flows , and ends {{x}} .', 'A river (broad) flows, and ends.'),
    ('A river, {{x}}, {{y}}, flows on.', 'A river, flows on.'),
    ('{{x}}, a river, flows on.', 'a river, flows on.'),
    ('* {{flagicon|X}} – a river of X', 'a river of X'),
    ('Flows since 1900, {{x}}. It ends.', 'Flows since 1900. It ends.'),
    ('Un fleuve\u00a0; une rivière\u00a0: deux mots\u00a0!', 'Un fleuve ; une rivière : deux mots !'),
  ],
)
def test_what_a_dropped_template_leaves_is_tidied(wikitext, text):
  assert line(wikitext) == text


@pytest.mark.parametrize(
  ('wikitext', 'text', 'language'),
  [
    ('一条-{zh-hans:软件; zh-hant:軟體}-河流在这里流动。', '一条软件河流在这里流动。', 'zh'),
    ('一条-{zh-tw:計程車;zh-hk:的士}-河流在这里流动。', '一条計程車河流在这里流动。', 'zh'),
    ('一条-{河}-流在-{H|zh-cn:甲;zh-tw:乙}-这里不停流动。', '一条河流在这里不停流动。', 'zh'),
    ('Широка -{sr-ec:река;sr-el:reka}- тече на север.', 'Широка река тече на север.', 'sr'),
  ],
)
def test_of_several_variants_one_is_read(wikitext, text, language):
  assert line(wikitext, language) == text


# --- what is no prose ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  'block',
  [
    '{{Infobox river\n| name = Fluss {{nowrap|x}}\n| map = [[File:X.png|thumb|a [[b]]]]\n}}',
    '{| class="wikitable"\n|-\n! head !! head\n|-\n| cell with {{x|y}} || cell\n{|\n| nested\n|}\n|}',
    '{{Navbox|list=\n{| \n| a\n|}}}',
    '<gallery>\nFile:A.jpg|A very long caption here\n</gallery>',
    '<syntaxhighlight lang="c">\nint main() { return a[[0]]; }\n</syntaxhighlight>',
    '<pre>\nsome code that is long\n</pre>',
    '<table><tr><td>a cell <table><tr><td>b</td></tr></table> that is long</td></tr></table>',
    '[[Bild:X.jpg|thumb|A caption\nof two lines with [http://x y] and [[link|label]].]]',
    '<references>\n<ref name="x">A source of the river.</ref>\n</references>',
    '<references />',
    '<!-- a comment that is long enough\n\nto be a paragraph -->',
    '{{Main|River}}\n{{about|rivers|the sea|Sea}}',
    ":''For other rivers, see [[River (disambiguation)]].''",
    '----',
    '* [[One]]\n* [[Two]]',
    '<math>\\sum_{i=0}^n {{a}_i}</math>',
    'January | February | March | April',
  ],
)
def test_blocks_without_prose_leave_nothing(block):
  assert clean(f'{block}\nA river flows on.') == ['A river flows on.']
  assert clean(f'A river flows on.\n\n== Course ==\n{block}\n\nIt ends here.') == ['A river flows on.', 'It ends here.']


def test_sections_of_notes_and_links_are_dropped_with_their_subsections():
  text = 'A river flows on.\n== See also ==\n* a b c d\n=== Books ===\n* e f g h\n== Course ==\nIt flows to the sea.\n'
  text += '==References==\nOne two three four.\n== External links:<ref>x</ref> ==\nFive six seven eight.'
  assert clean(text) == ['A river flows on.', 'It flows to the sea.']
  assert clean('Ein Fluss fließt dahin.\n== Einzelnachweise ==\nEins zwei drei vier.', 'de') == [
    'Ein Fluss fließt dahin.'
  ]
  assert clean('Ο ποταμός κυλάει αργά.\n== Παραπομπές ==\nένα δύο τρία τέσσερα', 'el') == ['Ο ποταμός κυλάει αργά.']


def test_headings_are_kept_on_demand_where_prose_follows():
  text = '== [[Course]] ==\nIt flows to the sea.\n== Empty ==\n== See also ==\n* one two three four'
  assert clean(text) == ['It flows to the sea.']
  assert clean(text, keep_headings=True) == ['Course', 'It flows to the sea.']


def test_lines_join_into_paragraphs_and_items_stand_alone():
  text = 'A river\nflows on.\n<!-- x -->\nIt is wide.\n\nA new paragraph.\n'
  text += '* a first long item\n** [[too]] short\n# a second long item\n'
  text += '; term : with a definition\n: an indented line of text'
  assert clean(text) == [
    'A river flows on. It is wide.',
    'A new paragraph.',
    'a first long item',
    'a second long item',
    'term : with a definition',
    'an indented line of text',
  ]


def test_html_blocks_part_paragraphs():
  assert clean('<p>A river flows on.</p><div>It ends in the sea.</div>One more line.<br><br/>And another line.') == [
    'A river flows on.',
    'It ends in the sea.',
    'One more line.',
    'And another line.',
  ]


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


def test_joiners_that_change_how_a_word_is_written_are_kept():
  for text in ('کتاب‌ها روی میز هستند.', 'क्\u200dष एक अक्षर है।'):
    assert line(text) == text


def test_the_wikis_own_namespaces_are_known():
  text = 'A river flows on. [[Spezifisch:X|a long label here]] [[Ablage:Y]]'
  assert line(text, namespaces={6: 'Spezifisch', 14: 'Ablage'}) == 'A river flows on.'


# --- broken and hostile input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('wikitext', 'paragraphs'),
  [
    ('{{Infobox river\n| name = X\n| length = 3\n\nA river flows on.', ['A river flows on.']),
    ('{| class="x"\n| a cell here\n|-\n\nA river flows on.', ['A river flows on.']),
    ('[[File:X.jpg|thumb|A caption without end\nA river flows on.', ['A river flows on.']),
    ('A [[river flows {{on and ]] on }} and on.', ['A river flows and on.']),
    ('A river }} flows ]] on |} and on.', ['A river flows on and on.']),
    ('A {river} flows [on] {{{1|and}}} on.', ['A {river} flows [on] and on.']),
  ],
)
def test_an_unclosed_bracket_costs_its_line_and_not_the_article(wikitext, paragraphs):
  assert clean(wikitext) == paragraphs


_FRAGMENTS = (
  *('{{', '}}', '[[', ']]', '\n{|', '\n|}', "'''", "''", '<ref>', '</ref>', '<ref name=a/>', '<!--', '-->', '<nowiki>'),
  *(
    '</nowiki>',
    '<math>',
    '<br>',
    '<a ',
    '|',
    '=',
    '\n== See also ==\n',
    '\n== A ==\n',
    '\n* ',
    '\n: ',
    '&amp;',
    '&lt;',
  ),
  *(
    'ref&gt;',
    '[http://a.b c]',
    'http://a.b/',
    '(',
    ')',
    ' , ',
    ';',
    '{{lang|la|',
    '{{convert|3|km}}',
    '[[File:a.jpg|',
  ),
  *(
    '-{',
    '}-',
    'zh-hans:',
    '__NOTOC__',
    '\u0301',
    '\u200b',
    'a river flows on ',
    '川は水が流れる地形',
    '&#x301;',
    '{{!}}',
    '~~~~',
  ),
)
_WIKITEXT = st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=8), max_size=40).map(''.join)
_LANGUAGES = st.sampled_from(['en', 'zh', 'it', 'th', 'xx'])


@settings(max_examples=400, deadline=2000)
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
    *('{{' * 200_000, '{{lang|la|' * 100_000, '[[' * 200_000, '\n{|' * 200_000, '{{a|[[b|\n{| ' * 50_000),
    *('{{' * 200_000 + '}}' * 200_000, '\n{|' * 100_000 + '\n|}' * 100_000, '[[' * 100_000 + ']]' * 100_000),
    *('<ref>' * 100_000, '<ref>a\n' * 100_000, '<!--' * 100_000, '<' * 500_000, '<a ' * 200_000, "'" * 500_000),
    *(
      '[http://a ' * 100_000,
      '[http://' + 'a' * 500_000,
      '&' + 'amp;' * 200_000,
      ',' * 500_000,
      '(' * 200_000 + ' ,' * 200_000,
    ),
    *('= ' * 200_000, '\n' * 500_000, 'a' + '\u0301\u0316' * 200_000, '&#x301;&#x316;' * 100_000, '(German: ' * 50_000),
    *('{{lang|la|' + '[[<a ' * 4_000 + '}} x', '{{lang|la|' + '|' * 19_000 + '}} x', 'a {{convert|3|km}} ' * 100_000),
  ],
  ids=lambda text: repr(text[:12]),
)
def test_hostile_input_takes_no_more_time_than_its_length(text):
  start = time.process_time()
  paragraphs = clean(text, 'zh')
  count_sentences(paragraphs or [text], 'el')
  assert time.process_time() - start < 5


def test_what_the_parser_cannot_take_is_stripped_by_pattern_and_counted(monkeypatch):
  counts = CleaningCounts()
  text = 'The word {{lang|la|flumen}} is Latin.'
  assert line(text, counts=counts, max_characters=10) == 'The word flumen is Latin.'
  assert counts == CleaningCounts(articles=1, paragraphs=1, fallbacks=1)

  def fail(*args, **kwargs):
    raise mwparserfromhell.parser.ParserError('no')

  monkeypatch.setattr(mwparserfromhell, 'parse', fail)
  assert line(text, counts=counts) == 'The word flumen is Latin.'
  assert counts == CleaningCounts(articles=2, paragraphs=2, fallbacks=2)


def test_the_scanner_agrees_with_the_parser_on_plain_markup():
  """Links, bold, italic, tags and entities: the patterns give what `mwparserfromhell` gives."""
  pieces = [
    'a [[b]] c',
    "d '''e''' f",
    'g [[h|i j]] k',
    "''l'' m n",
    'o &amp; p &eacute;',
    '<b>q</b> r s',
    '[http://a t] u v',
  ]
  for some in itertools.permutations(pieces, 4):
    text = ' '.join(some)
    assert line(text) == ' '.join(mwparserfromhell.parse(text).strip_code().split())


# --- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('text', 'language', 'count'),
  [
    ('A river flows. It is wide! Is it deep? Yes…', 'en', 4),
    ('It is 3.5 km long, e.g. near J. S. Bach St. It ends.', 'en', 2),
    ('"It flows." He left. (It ended.)', 'en', 3),
    ('No terminator at all', 'en', 1),
    ('川は流れる。長い！深い？', 'ja', 3),
    ('河流很长。它流入大海。', 'zh', 2),
    ('नदी बहती है। वह चौड़ी है॥', 'hi', 2),
    ('يجري النهر. هل هو عميق؟ نعم!', 'ar', 3),
    ('دریا بہتا ہے۔ وہ چوڑا ہے۔', 'ur', 2),
    ('Գետը հոսում է։ Այն լայն է:', 'hy', 2),
    ('ወንዙ ይፈሳል። ሰፊ ነው፧', 'am', 2),
    ('မြစ်သည် စီးဆင်းသည်။ ကျယ်ဝန်းသည်။', 'my', 2),
    ('ទន្លេហូរ។ វាធំ។', 'km', 2),
    ('Ο ποταμός κυλά. Είναι βαθύς; Ναι.', 'el', 3),
    ('แม่น้ำไหลลงสู่ทะเลกว้าง น้ำในแม่น้ำลึกและเย็นมาก', 'th', 2),
    ('แม่น้ำ 3 กม.', 'th', 1),
    ('Река течёт. Она широка.', 'ru', 2),
  ],
)
def test_sentences_are_counted_in_every_script(text, language, count):
  assert count_sentences([text], language) == count


def test_every_paragraph_counts_at_least_one_sentence():
  assert count_sentences(['a river', 'A river. A sea.', 'the end'], 'en') == 4
  assert count_sentences([], 'en') == 0


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
def real():
  """Paragraphs and wikitext of articles of real dumps, by language: at most a million characters of each dump."""
  if not DUMPS.exists():
    pytest.skip('no real dumps: ../shared/data/dumps is absent')
  cleaned = {}
  for language, dumps in find_dumps(str(DUMPS), list(itertools.chain(*_SCRIPTS.values()))).items():
    for dump in dumps:
      namespaces, size = read_namespaces(dump.path), 0
      for page in read_articles(dump.path):
        paragraphs = clean_wikitext(page.text, language=language, namespaces=namespaces)
        cleaned.setdefault(language, []).append((page, paragraphs))
        size += len(page.text)
        if size > 1_000_000:
          break
  return cleaned


@pytest.mark.parametrize('script', _SCRIPTS)
def test_real_articles_keep_no_markup(real, script):
  paragraphs = [p for language in _SCRIPTS[script] for _, ps in real[language] for p in ps]
  residue = [p for p in paragraphs if _RESIDUE.search(p)]
  untidy = [p for p in paragraphs if _UNTIDY.search(p)]
  assert len(paragraphs) > 10
  assert len(residue) <= 0.001 * len(paragraphs), residue[:5]
  assert len(untidy) <= max(1, 0.005 * len(paragraphs)), untidy[:5]


@pytest.mark.parametrize('script', _SCRIPTS)
def test_real_articles_keep_their_prose(real, script):
  articles = [article for language in _SCRIPTS[script] for article in real[language]]
  lengths = [len(p) for _, paragraphs in articles for p in paragraphs]
  assert 0.15 < sum(lengths) / sum(len(page.text) for page, _ in articles) < 0.8
  assert max(lengths) < 20_000
  assert all(any(paragraphs for _, paragraphs in real[language]) for language in _SCRIPTS[script])


def test_the_first_sentence_of_a_real_article_is_whole(real):
  def first(language):
    return next(ps[0] for page, ps in real[language] if page.title in ('Berlin', 'Берлин', '柏林', '베를린', 'Berlín'))

  assert first('ru').startswith('Берли́н (Berlin)')
  assert first('es').startswith('Berlín ')
  assert first('zh').startswith('柏林')
  assert first('ko').startswith('베를린')


def test_cleaning_real_paragraphs_again_changes_nothing(real):
  for language, articles in real.items():
    for _, paragraphs in articles[:3]:
      for paragraph in paragraphs[:60]:
        assert clean_wikitext(paragraph, language=language) == [paragraph]


def test_the_parser_alone_finds_the_same_words(real):
  """Of the words in the prose, nearly all are in what `mwparserfromhell` alone leaves of the article."""
  for language in ('es', 'ru', 'hi', 'ar'):
    page, paragraphs = real[language][0]
    expected = set(re.findall(r'\w+', mwparserfromhell.parse(page.text).strip_code(keep_template_params=True)))
    words = re.findall(r'\w+', ' '.join(paragraphs))
    assert sum(word in expected for word in words) > 0.99 * len(words), language
    assert len(words) > 300


def test_nothing_real_needs_the_fallback(real):
  counts = CleaningCounts()
  for language, articles in real.items():
    for page, _ in articles[:5]:
      clean_wikitext(page.text, language=language, counts=counts)
  assert counts.fallbacks == 0
  assert counts.unstable == 0
  assert max(len(page.text) for articles in real.values() for page, _ in articles) < cleaning.LARGEST_ARTICLE
