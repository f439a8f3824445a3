"""Checks of the machine, the installation and a workdir: `python -m rembert.doctor --help`."""
