"""Multilingual Wikipedia: parses dumps, cleans wikitext, and yields documents by language."""
