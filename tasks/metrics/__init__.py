"""Metrics of fine-tuned tasks, as their official scorers define them."""
