"""A corpus: text cleaned and deduplicated once, kept as a prepared TFDS dataset. `python -m tasks.corpus --help`."""
