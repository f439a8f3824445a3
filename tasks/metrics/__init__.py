"""Scores as the benchmarks' own scripts compute them."""
