"""RemBERT in JAX: pre-training with decoupled embeddings, XTREME fine-tuning, Hugging Face in and out.

Importing this package alone is light: no JAX, no TensorFlow.
"""

__version__ = '0.1.0'


def load(path, head=None, **options):
  """A trained model to call, from a workdir, a checkpoint or a folder of Hugging Face: see `rembert.loading.load`."""
  from rembert import loading

  return loading.load(path, head, **options)
