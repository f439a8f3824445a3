"""RemBERT in JAX: pre-training with decoupled embeddings, XTREME fine-tuning, Hugging Face in and out.

Importing this package alone is light: no JAX, no TensorFlow.
"""

__version__ = '0.1.0'
