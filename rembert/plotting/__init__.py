"""Plots, from numbers to PNG. Imports nothing else of this project; callers write the files."""
