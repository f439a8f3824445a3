"""Token stores: pre-tokenized, packed text, made by Apache Beam and read by index (`python -m tasks.token_store`)."""
