"""Observers of a run: console, metrics, goodput, profiles. None of them affects the computation."""
