import mwparserfromhell
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wikipedia import templates
from tasks.wikipedia.templates import (
  kept_for_reading,
  with_parameters_read,
  with_templates_read,
  without_templates,
)
from tasks.wikipedia.text import UNHIDE


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
    ('A {{LANG|la|flumen}} {{lang_de|x}} ends.', 'A flumen  ends.'),
    ("A '''{{lang|la|[[x]] & <b>y</b>}}''' ends.", "A '''[[x]] & <b>y</b>''' ends."),
  ],
)
def test_templates_that_carry_a_part_of_the_sentence_are_read(wikitext, text):
  assert with_templates_read(wikitext) == text


@pytest.mark.parametrize('name', ['Infobox river', 'cite book', 'IPA', 'flagicon', 'cn', 'Main', 'DISPLAYTITLE:x'])
def test_templates_that_are_no_part_of_a_sentence_are_dropped(name):
  assert kept_for_reading(f'{name}|one|two=2') == ''
  assert with_templates_read(f'A {{{{{name}|one}}}}river.') == 'A river.'


def test_templates_that_are_a_part_of_a_sentence_are_kept_on_one_line():
  assert kept_for_reading('quote\n|text=A river\n|author=x') == '{{quote |text=A river |author=x}}'
  assert kept_for_reading(' lang |la|flumen') == '{{ lang |la|flumen}}'
  assert kept_for_reading('lang|la|' + 'x' * 30_000) == ''
  assert kept_for_reading('lang' + '|x' * 200) == ''


def test_of_a_parameter_the_default_is_read():
  assert with_parameters_read('A {{{name|broad}}} river {{{1}}} flows {{{a|}}}on.') == 'A broad river  flows on.'


def test_what_the_parser_cannot_take_is_left_to_the_pattern(monkeypatch):
  long = 'A {{lang|la|' + 'x' * 30_000 + '}}'
  assert with_templates_read(long) is None
  assert without_templates('A {{nowrap|{{lang|la|flumen}}}} is {{broad}}.') == 'A flumen is broad.'
  nested = '{{a|' * templates.DEEPEST + 'x' + '}}' * templates.DEEPEST
  assert [without_templates(text) for text in (nested, '{{a|' + nested + '}}')] == ['x', '{{a|x}}']

  def fail(*args, **kwargs):
    raise mwparserfromhell.parser.ParserError('no')

  monkeypatch.setattr(mwparserfromhell, 'parse', fail)
  assert with_templates_read('The word {{lang|la|flumen}}.') is None


@given(st.text(st.characters(exclude_characters='{}|=', exclude_categories=('Cs', 'Cc')), max_size=40))
def test_the_text_of_a_template_comes_out_as_it_went_in(text):
  text = ' '.join(text.translate(UNHIDE).split())
  assert with_templates_read(f'A {{{{nowrap|{text}}}}} river.') == f'A {text} river.'
