"""The tiny model and its steps."""

from tiny_training import by_name, packed_batch, step, tiny, trainable

__all__ = ['by_name', 'packed_batch', 'step', 'tiny', 'trainable']
