"""Token stores: text prepared once by Apache Beam, to be read by index. `python -m tasks.token_store --help`."""
