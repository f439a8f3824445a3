"""The two embedding matrices, for any kind of path."""

import numpy as np
from random_checkpoints import leaves_of

from rembert.analysis.context import read_embeddings
from rembert.checkpoint.load import open_source
from rembert.convert.exporting import export


def test_embeddings_are_the_parameters_without_padding_for_any_kind_of_path(saved, tmp_path):
  checkpoint = saved('mlm')
  export(checkpoint, tmp_path / 'exported')
  parameters = leaves_of(checkpoint)
  for path in (checkpoint.workdir, tmp_path / 'exported'):
    tables = read_embeddings(open_source(path))
    assert {name: table.shape for name, table in tables.items()} == {'input': (331, 18), 'output': (331, 43)}
    np.testing.assert_array_equal(tables['input'], parameters['encoder/embeddings/word/embedding'][:331])
    np.testing.assert_array_equal(tables['output'], parameters['mlm/output_embedding'][:331])


def test_without_an_output_embedding_there_is_one_table(saved):
  tied = {'input_embedding_size': 43, 'tie_word_embeddings': True}
  for checkpoint in (saved(None), saved(name='tied', **tied)):
    tables = read_embeddings(open_source(checkpoint.workdir))
    assert tables['output'] is None
    assert tables['input'] is not None
