"""What an example is: SeqIO sources, preprocessors, vocabularies and metrics. Importing this package alone is light."""
