"""Inference with trained models: `rembert.load`, sentence embeddings, mask filling."""
