"""Lines of text as vectors, one of every layer."""

from collections.abc import Callable, Sequence

import numpy as np

from rembert.data.text import TextEncoder, cut
from rembert.inference.embed import vectors_of_all_layers
from rembert.inference.model import LoadedModel


def layer_means(
  model: LoadedModel,
  encoder: TextEncoder,
  lines: Sequence[str],
  *,
  batch_size: int = 64,
  on_progress: Callable[[float, str], None] = lambda fraction, note: None,
) -> tuple[np.ndarray, int]:
  """The mean of each layer over each line's pieces, without [CLS] and [SEP]: float32 [L + 1, N, H], embeddings first.

  The second value is how many lines were longer than the model has positions, and were cut.
  """
  longest = model.config.max_position_embeddings
  encoded = [encoder.encode(line) for line in lines]
  sentences = [cut(ids, longest) for ids in encoded]
  vectors_LxNxH = vectors_of_all_layers(model, sentences, batch_size=batch_size, on_progress=on_progress)
  return vectors_LxNxH, sum(len(ids) > longest for ids in encoded)
