"""The jobs, each a script that reads from top to bottom."""
