"""From packed rows of ids to sharded batches: mixture, packing, masking, prefetch. NumPy only; no TensorFlow.

B rows of a batch · S sequence · K masked positions per row
"""
