import pytest

from rembert.errors import UsageError
from rembert.json_files import parsed_json


@pytest.mark.parametrize(
  ('text', 'what', 'where'),
  [
    ('{"a": [1,\n2', 'not JSON: Expecting', 'f.json:2'),
    (b'', 'not JSON: Expecting value', 'f.json:1'),
    (b'\xff{}', 'not UTF-8', 'f.json'),
    ('[' * 200_000 + ']' * 200_000, 'nested too deeply', 'f.json'),
    ('{"a":' * 200_000, 'nested too deeply', 'f.json'),
  ],
)
def test_what_is_no_json_is_told_with_file_and_line(text, what, where):
  with pytest.raises(UsageError, match=what) as error:
    parsed_json(text, 'f.json', fix='mend it')
  assert (error.value.where, error.value.fix) == (where, ['mend it'])


def test_json_is_read(tmp_path):
  assert parsed_json('{"a": [1, null]}', tmp_path / 'f.json') == {'a': [1, None]}
