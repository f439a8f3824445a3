"""Observers of a run: console, metrics, goodput, profiles, watchdog. None of them affects the computation."""
