"""Checkpoints: saved, checked and restored; models read from them."""
