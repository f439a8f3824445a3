"""XTREME (Hu et al. 2020): nine tasks, fine-tuned in English, evaluated in forty languages; `task.py` is the interface.

The root of the data is a folder in the layout that XTREME's own download script leaves, see `files.py`.
"""
