"""Metrics of fine-tuning tasks, as defined by their official scorers."""
