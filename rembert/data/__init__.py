"""The data pipeline after tokenization: mixture, packing, masking, prefetch. Uses NumPy, not TensorFlow.

B sequences of a batch · S sequence length · K masked positions per sequence
"""
