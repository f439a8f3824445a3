"""Checkpoints from and to Hugging Face, and from the original TensorFlow code: `python -m rembert.convert --help`."""
