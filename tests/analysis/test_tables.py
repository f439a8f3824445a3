"""The two tables, wherever a model lies."""

import numpy as np
import pytest

from rembert.analysis.tables import read_tables
from rembert.convert.exporting import export
from rembert.errors import UsageError


def test_tables_are_the_parameters_without_padding_rows(saved):
  checkpoint = saved('mlm')
  tables = read_tables(checkpoint.workdir)
  assert tables.input_VxI.shape == (331, 18)
  assert tables.output_VxE.shape == (331, 43)
  np.testing.assert_array_equal(tables.input_VxI, checkpoint.read('encoder/embeddings/word/embedding')[:331])
  np.testing.assert_array_equal(tables.output_VxE, checkpoint.read('mlm/output_embedding')[:331])
  assert list(tables.by_name) == ['input', 'output']


def test_a_folder_of_hugging_face_has_the_same(saved, tmp_path):
  checkpoint = saved('mlm')
  export(checkpoint, tmp_path / 'exported')
  ours, theirs = read_tables(checkpoint.workdir), read_tables(tmp_path / 'exported')
  np.testing.assert_array_equal(theirs.input_VxI, ours.input_VxI)
  np.testing.assert_array_equal(theirs.output_VxE, ours.output_VxE)


@pytest.mark.parametrize('options', [{'head': None}, {'input_embedding_size': 43, 'tie_word_embeddings': True}])
def test_without_an_output_embedding_there_is_one_table(saved, options):
  tables = read_tables(saved(options.pop('head', 'mlm'), **options).workdir)
  assert tables.output_VxE is None
  assert list(tables.by_name) == ['input']


def test_nothing_to_read_is_told(tmp_path):
  with pytest.raises(UsageError, match='nothing to load'):
    read_tables(tmp_path)
