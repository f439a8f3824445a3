"""RemBERT in JAX: pre-training with decoupled embeddings, XTREME fine-tuning, conversion to and from Hugging Face.

Importing this package imports neither JAX nor TensorFlow; each export is imported when it is first used.
"""

import importlib

__version__ = '0.1.0'
__all__ = ['RemBertConfig', 'RemBertEncoder', 'RemBertForMaskedLM', 'RemBertForTask', 'load']

_MODULES = {'load': 'inference.model', 'RemBertConfig': 'model.config', 'RemBertEncoder': 'model.encoder'}


def __getattr__(name: str):
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(f'{__name__}.{_MODULES.get(name, "model.heads")}'), name)
