"""RemBERT in JAX: pre-training with decoupled embeddings, XTREME fine-tuning, Hugging Face in and out.

Importing this package alone is light: no JAX, no TensorFlow.
"""

__version__ = '0.1.0'


def load(path, head=None, **options):
  """A trained model to call, from a workdir, checkpoint or Hugging Face folder: see `rembert.inference.model.load`."""
  from rembert.inference import model

  return model.load(path, head, **options)
