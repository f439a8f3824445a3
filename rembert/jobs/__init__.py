"""Jobs of `rembert.main`, each a script that reads from top to bottom."""
