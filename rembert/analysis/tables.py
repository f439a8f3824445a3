"""The two embedding tables of a model, read without the rest of it."""

import dataclasses

import numpy as np
from etils import epath

from rembert.convert.importing import Source, open_source
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig

_INPUT, _OUTPUT = 'encoder/embeddings/word/embedding', 'mlm/output_embedding'


@dataclasses.dataclass(frozen=True)
class EmbeddingTables:
  """Tables with a row for each piece, without padding rows, float32.

  Attributes:
    config: of the model.
    path: of the checkpoint or folder that was read.
    vocabulary: the SentencePiece model beside it, or None.
    input_VxI: the word embedding.
    output_VxE: the output embedding; None where the model has none of its own: what Hugging Face publishes for
      fine-tuning lacks it, and tied models have one table for both.
  """

  config: RemBertConfig
  path: str
  vocabulary: epath.PathLike | None
  input_VxI: np.ndarray
  output_VxE: np.ndarray | None

  @property
  def by_name(self) -> dict[str, np.ndarray]:
    """`input`, and `output` where there is one."""
    tables = {'input': self.input_VxI, 'output': self.output_VxE}
    return {name: table for name, table in tables.items() if table is not None}


def read_tables(path: epath.PathLike) -> EmbeddingTables:
  """The tables of a workdir, a checkpoint or a folder of Hugging Face; UsageError if there is no word embedding."""
  source = open_source(path)
  table = _read(source, _INPUT)
  if table is None:
    raise UsageError('the model has no word embedding', where=source.path, fix='name another checkpoint')
  return EmbeddingTables(source.config, source.path, source.vocabulary, table, _read(source, _OUTPUT))


def _read(source: Source, leaf: str) -> np.ndarray | None:
  if source.config.tie_word_embeddings and leaf == _OUTPUT:
    return None
  [slot] = [slot for slot in source.slots(source.config, 'mlm', has_pooler=False) if slot.leaf == leaf]
  name = slot.name(source.form)
  if name not in source.tensors.shapes:
    return None
  tensor = source.tensors.read(name)
  return np.asarray(tensor.T if slot.transposed.get(source.form) else tensor, np.float32)
