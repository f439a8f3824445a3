"""What is wrong here, and what to do: `python -m rembert.doctor --help`."""
