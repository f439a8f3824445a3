"""Loads and checks SentencePiece vocabularies with the special ids of the released RemBERT, and encodes text.

`tasks.vocabulary` trains them; `tasks.seqio_vocabulary` is the tokenizer of TensorFlow Text.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from rembert.command_line import quiet_stderr
from rembert.errors import Setting, UsageError, first_line
from rembert.files import is_remote, why_unreachable

if TYPE_CHECKING:
  import sentencepiece

MASK = '[MASK]'
_ALTERNATIVE = (
  'train one on your corpus: python -m tasks.vocabulary --help',
  'or, in pre-training, let the run train one: --gin.vocabulary.path=None',
)


@dataclasses.dataclass(frozen=True)
class SpecialIds:
  """Ids of special tokens, and the first ordinary id; defaults are the released vocabulary's."""

  pad: int = 0
  unknown: int = 2
  cls: int = 312
  sep: int = 313
  mask: int = 314

  @property
  def first_piece(self) -> int:
    """The first ordinary id: all below are special or unused. Random replacements are sampled from here on."""
    return self.mask + 1


# How vocabularies spell them.
SPECIAL_PIECES = dict(zip(('[PAD]', '[UNK]', '[CLS]', '[SEP]', MASK), dataclasses.astuple(SpecialIds()), strict=True))


def _read(path: epath.Path) -> bytes:
  """The content of a file; exception types differ by file system."""
  if reason := why_unreachable(str(path)):
    raise ConnectionError(reason)
  if not is_remote(path):
    return path.read_bytes()
  from tasks import tensorflow_import  # noqa: F401 - which reads remote files, and logs every attempt

  with quiet_stderr():
    return path.read_bytes()


def find_vocabulary(folder: epath.PathLike) -> epath.Path | None:
  """The `sentencepiece.model` in a directory, if there is one."""
  file = epath.Path(folder) / 'sentencepiece.model'
  return file if file.exists() else None


def load_vocabulary(path: epath.PathLike) -> 'sentencepiece.SentencePieceProcessor':
  """Loads a SentencePiece model; UsageError if the file does not exist or is not one."""
  import sentencepiece

  path, processor = epath.Path(path), sentencepiece.SentencePieceProcessor()
  try:
    content = _read(path)
  except Exception as error:
    what = f'the vocabulary cannot be read: {first_line(error)}'
    raise UsageError(what, where=str(path), fix=_ALTERNATIVE) from error
  try:
    processor.LoadFromSerializedProto(content)
  except RuntimeError as error:
    raise UsageError('not a SentencePiece model', where=str(path), fix=_ALTERNATIVE) from error
  return processor


def parse_model(model: bytes) -> Any:
  """A serialised SentencePiece model as its protocol buffer, whose module has no types."""
  from sentencepiece import sentencepiece_model_pb2

  proto: Any = sentencepiece_model_pb2
  return proto.ModelProto.FromString(model)


def check_vocabulary(path: epath.PathLike, vocab_size: int) -> SpecialIds:
  """Loads a vocabulary and returns its special ids.

  Raises:
    UsageError: no such file, not a SentencePiece model, special ids missing, or more tokens than `vocab_size`.
  """
  processor = load_vocabulary(path)
  ids = {piece: (processor.piece_to_id(piece), expected) for piece, expected in SPECIAL_PIECES.items()}
  if wrong := [f'{piece} is {found}, not {expected}' for piece, (found, expected) in ids.items() if found != expected]:
    raise UsageError(f"special ids differ from RemBERT's: {', '.join(wrong)}", where=str(path), fix=_ALTERNATIVE)
  if processor.get_piece_size() > vocab_size:
    raise UsageError(
      f'vocabulary size mismatch: {processor.get_piece_size()} in the file, {vocab_size} in the model',
      where=f'RemBertConfig.vocab_size, {path}',
      fix=Setting('RemBertConfig.vocab_size', processor.get_piece_size()),
    )
  return SpecialIds()


class TextEncoder:
  """Text to ids with a SentencePiece vocabulary of RemBERT, as `[CLS] text [SEP]`.

  `[MASK]` in a text becomes the mask token, with the space before it; the text before and after it is encoded
  separately, as in Hugging Face's tokenizer.
  """

  def __init__(self, vocabulary: epath.PathLike):
    self._processor = load_vocabulary(vocabulary)
    self.special = SpecialIds()

  def encode(self, text: str) -> list[int]:
    """Ids of one text with [CLS] and [SEP]."""
    *before_masks, last = text.split(MASK)
    ids = [self.special.cls]
    for part in before_masks:
      ids += [*self._processor.encode(part.rstrip()), self.special.mask]
    return [*ids, *self._processor.encode(last), self.special.sep]

  def piece(self, index: int) -> str:
    """The token of an id, as written in the vocabulary."""
    return self._processor.id_to_piece(int(index)) if index < self._processor.get_piece_size() else f'[{index}]'

  def __len__(self) -> int:
    return self._processor.get_piece_size()


def cut(ids: Sequence[int], longest: int) -> list[int]:
  """Truncates to `longest` ids; [SEP] stays the last."""
  return list(ids) if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]
