"""PAN-X: tokens without their language, tags, and no empty tokens."""

import pytest
from xtreme_archives import tar_of, zip_of

from rembert.errors import UsageError
from tasks.xtreme.conversion.panx import sentences_of
from tasks.xtreme.statistics import LANGUAGES


def test_forty_languages_come_out(convert):
  files = convert('panx')
  assert len(files) == 40 * 4
  assert {path.split('-')[-1] for path in files} == {f'{language}.tsv' for language in LANGUAGES['panx']}
  assert files['panx/train-jv.tsv'] == 'Anna\tB-PER\na:b\tO\n\nRom\tB-LOC\n'
  assert files['panx/test-jv.tsv'] == 'Anna\na:b\n\nRom\n'
  assert files['labels/panx/test-jv.tsv'] == 'B-PER\nO\n\nB-LOC\n'


def test_sentences_end_at_empty_lines_and_at_the_end():
  content = b'de:a\tO\n\n\nde:b\tO\nde:\xc2\xa0\tO\n\nde: \tO\n\nde:c\tB-ORG'
  assert sentences_of(content, 'f') == [[('a', 'O')], [('b', 'O')], [('c', 'B-ORG')]]


@pytest.mark.parametrize(
  ('line', 'what'), [('de:a\tB-MISC', "unknown tag 'B-MISC'"), ('de:a O', 'a line is a token, a tab and a tag')]
)
def test_what_is_no_token_with_a_tag_is_told_with_its_line(convert, line, what):
  broken = zip_of({'panx_dataset/de.tar.gz': tar_of({'dev': f'de:a\tO\n{line}\n'})})
  with pytest.raises(UsageError, match=what) as error:
    convert('panx', {'panx_dataset.zip': broken})
  assert error.value.where.endswith('de.tar.gz:dev:2')
