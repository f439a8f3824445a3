"""RemBERT as Flax NNX modules: config, embeddings, attention, encoder, heads.

Shapes are part of a tensor's name. One legend for the whole package:

B batch · S sequence · K masked positions per sequence · H hidden · N heads · D head dimension · F feed-forward ·
I input embedding · E output embedding · V vocabulary · L layers
"""
