"""Trained models to call."""
