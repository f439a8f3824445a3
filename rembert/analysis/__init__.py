"""What a trained model knows: one file per analysis, with its arrays, its `run` for `--mode=analyze`, and its table.

L layers · N source sentences · M target sentences · V vocabulary · W width of an embedding · P positions · T targets ·
S positions of a sequence · B sequences · H hidden
"""
