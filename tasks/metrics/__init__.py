"""Scores of XTREME, each as its official script defines it, from plain values: no model or file is known here."""
