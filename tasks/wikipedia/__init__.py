"""Multilingual Wikipedia: dumps parsed, wikitext cleaned, documents by language."""
