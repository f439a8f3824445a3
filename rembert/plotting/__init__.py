"""Pictures: numbers in, PNG out. Imports nothing else of this project; callers write the files."""
