import bz2
import gzip
import lzma

import pytest
from etils import epath

from tasks.text_files import DAMAGED, read_text_documents

TEXT = 'eins \r\nzwei\n\n\n \ndrei\n'


@pytest.mark.parametrize(
  ('ending', 'pack'), [('', bytes), ('.xz', lzma.compress), ('.gz', gzip.compress), ('.bz2', bz2.compress)]
)
def test_blank_lines_part_documents_however_the_file_is_packed(tmp_path, ending, pack):
  file = epath.Path(tmp_path) / f'de.txt{ending}'
  file.write_bytes(pack(TEXT.encode()))
  assert list(read_text_documents(file)) == [['eins', 'zwei'], ['drei']]


def test_what_stands_before_the_damage_is_read_and_the_damage_told(tmp_path):
  file = epath.Path(tmp_path) / 'de.txt.gz'
  file.write_bytes(gzip.compress(b'eins\n\nzwei\n')[:-6])
  documents = read_text_documents(file)
  assert next(documents) == ['eins']
  assert next(documents) == ['zwei']
  with pytest.raises(DAMAGED):
    next(documents)
