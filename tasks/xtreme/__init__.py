"""XTREME (Hu et al. 2020): nine tasks, learned in English and judged in forty languages. `task.py` says what a task is.

The root of the data is a folder in the layout that XTREME's own download script leaves, see `files.py`.
"""
