"""The tiny model and its steps."""

from tiny_training import by_name, new_step, packed_batch, step, tiny, trainable

__all__ = ['by_name', 'new_step', 'packed_batch', 'step', 'tiny', 'trainable']
