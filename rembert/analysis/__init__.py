"""What a trained model knows, measured on arrays: one file an analysis. `--mode=analyze` runs them on models and files.

L layers · N source sentences · M target sentences · V pieces · W width of a table · P positions · T targets · S
positions of a row · B rows · H hidden
"""
