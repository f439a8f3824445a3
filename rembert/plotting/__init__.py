"""Pictures: numbers in, PNG out. Imports nothing else of this project; whoever calls it writes the file."""
