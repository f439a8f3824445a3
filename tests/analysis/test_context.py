"""The two tables, wherever a model lies."""

import numpy as np
import pytest
from random_checkpoints import leaves_of

from rembert.analysis.context import read_embeddings
from rembert.checkpoint.load import open_source
from rembert.convert.exporting import export
from rembert.errors import UsageError


def test_tables_are_the_parameters_without_padding_rows(saved):
  checkpoint = saved('mlm')
  tables = read_embeddings(open_source(checkpoint.workdir))
  assert tables['input'].shape == (331, 18)
  assert tables['output'].shape == (331, 43)
  parameters = leaves_of(checkpoint)
  np.testing.assert_array_equal(tables['input'], parameters['encoder/embeddings/word/embedding'][:331])
  np.testing.assert_array_equal(tables['output'], parameters['mlm/output_embedding'][:331])
  assert list(tables) == ['input', 'output']


def test_a_folder_of_hugging_face_has_the_same(saved, tmp_path):
  checkpoint = saved('mlm')
  export(checkpoint, tmp_path / 'exported')
  ours, theirs = (read_embeddings(open_source(path)) for path in (checkpoint.workdir, tmp_path / 'exported'))
  np.testing.assert_array_equal(theirs['input'], ours['input'])
  np.testing.assert_array_equal(theirs['output'], ours['output'])


def test_without_an_output_embedding_there_is_one_table(saved):
  tied = {'input_embedding_size': 43, 'tie_word_embeddings': True}
  for checkpoint in (saved(None), saved(name='tied', **tied)):
    tables = read_embeddings(open_source(checkpoint.workdir))
    assert tables['output'] is None
    assert tables['input'] is not None


def test_a_model_that_is_not_there_is_refused(tmp_path):
  with pytest.raises(UsageError, match='nothing to load'):
    read_embeddings(open_source(tmp_path))
