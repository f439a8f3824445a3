"""Analyses of trained models: a file for each, with its computation, its `run` for `--mode=analyze`, and its table.

L layers · N source sentences · M target sentences · V vocabulary · W width of an embedding · P positions · T targets ·
S positions of a sequence · B sequences · H hidden
"""
