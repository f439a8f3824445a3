"""Saving, verifying and restoring checkpoints, and loading models from them."""
